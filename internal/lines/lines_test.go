package lines_test

import (
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
