package saga_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// TestADefinitionIsReadInBoundedMemory reads definitions that would take hundreds of megabytes, or minutes, at the size that a definition may
// have. As they are, each is read within some seconds also without the limit that it exceeds, so that the test then fails and does not hang.
func TestADefinitionIsReadInBoundedMemory(t *testing.T) {
	ends := func(n int, when string) string {
		end := fmt.Sprintf(`{"when":"%s","then":"park"}`, when)
		return `"ends":[` + strings.Repeat(end+",", n-1) + end + `]`
	}
	const patterns = "''.matches('(x{1,30}){1,16}')||"
	numbered := func(format string, n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(format, i)
		}
		return strings.Join(all, ",")
	}
	for name, one := range map[string]struct{ part, mistake string }{
		"many expressions": {ends(7_000, "true"), "ends[5681].when: the expressions have more than 250000 characters"},
		"long expressions": {ends(150, strings.Repeat("true||", 300)+"true"), "the expressions have more than 250000 characters"},
		"many forms": {`"steps":[{"name":"a","success":[` + numbered(`{"event":"E%d","hop":"a","form":{}}`, 7_000) + `]}]`,
			"the expressions have more than 250000 characters"},
		"many patterns": {ends(1, strings.Repeat(patterns, 20)+"true"), "the patterns have"},
		"a long name":   {`"` + strings.Repeat("n", 50_000) + `":[` + strings.Repeat("1,", 20_000) + `1]`, "unknown field"},
		"a wrong duration, and a long name": {`"timeout":"soon","` + strings.Repeat("n", 50_000) + `":[` + strings.Repeat("1,", 20_000) + `1]`,
			"timeout: duration"},
	} {
		t.Run(name, func(t *testing.T) {
			text := []byte(`{"saga":"order","version":1,"key":"id","data":{"id":"string"},` + one.part + `}`)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := saga.Parse(text)
			runtime.ReadMemStats(&after)
			require.ErrorContains(t, err, one.mistake)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<20))
		})
	}
	var many saga.Mistakes
	_, err := saga.Parse([]byte(`{"saga":"order","version":1,"key":"id","data":{"id":"string"},"ends":[` + strings.Repeat("{},", 999) + `{}]}`))
	require.ErrorAs(t, err, &many)
	require.Len(t, many, 2000)
	require.True(t, strings.HasSuffix(err.Error(), "\nand 1900 more mistakes"))
}
