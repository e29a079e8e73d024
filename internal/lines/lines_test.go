package lines_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/lines"
)

func TestAPathHasItsLine(t *testing.T) {
	t.Parallel()
	l, err := lines.Of([]byte("{\n\"a\": 1,\n\"b\": [\n{\"c\": null},\n{\n\"c\": 2}]\n}"))
	require.NoError(t, err)
	for path, line := range map[string]int{"a": 2, "b": 3, "b[0]": 4, "b[1].c": 6, "b[1].nothing": 5, "": 1, "z": 1} {
		require.Equal(t, line, l.Of(path), path)
	}
}

func TestAnInvalidValueIsReportedWithItsLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{\n\"a\": }":             "line 2: ",
		"{\"a\": 1,\n\"a\": 2}":   "line 2: a is set twice",
		"{}\n{}":                  "line 2: something follows the JSON value",
		"{":                       "line 1: ",
		"":                        "line 1: ",
		strings.Repeat("[", 1000): "line 1: nested too deeply",
	} {
		_, err := lines.Of([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
}

// TestALongNameTakesNoMemoryForEachValueInIt reads texts of 128 KiB. If the path of each value contained all of the names around it, the
// paths would take 2 GB.
func TestALongNameTakesNoMemoryForEachValueInIt(t *testing.T) {
	name, values := strings.Repeat("n", 64<<10), strings.Repeat("1,\n", 20<<10)
	for _, form := range []string{`{"%s": [%s1]}`, `{"a": {"%s": {"b": [%s1]}}}`} {
		text := fmt.Appendf(nil, form, name, values)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := lines.Of(text)
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
	}
}

func TestAValueBehindALongNameHasItsLine(t *testing.T) {
	t.Parallel()
	l, err := lines.Of([]byte("{\n\"" + strings.Repeat("n", 1000) + "\": [\n1,\n{\"a\": 2}],\n\"b\": 1,\n\"c\": {\"b\": 1}}"))
	require.NoError(t, err)
	require.Equal(t, 5, l.Of("b"))
	require.Equal(t, 6, l.Of("c.b"))
	require.Equal(t, 1, l.Of(strings.Repeat("n", 1000)+"[1].a"), "the line of the nearest value with a path")
}

// TestMistakesAreListedUpToAHundred: a file of a megabyte may have a hundred thousand of them.
func TestMistakesAreListedUpToAHundred(t *testing.T) {
	all := make([]error, 102)
	for i := range all {
		all[i] = errors.New(lines.Mistake("steps[1]", i+1, "wrong"))
	}
	text := lines.Mistakes(all)
	require.True(t, strings.HasPrefix(text, "line 1: steps[1]: wrong\nline 2: "))
	require.True(t, strings.HasSuffix(text, "line 100: steps[1]: wrong\nand 2 more mistakes"))
	require.Equal(t, "wrong", lines.Mistake("", 0, "wrong"))
}
