package sagadesk_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/saga"
)

// TestManyDefinitionsFillNoMemory: a role that may start sagas can store definitions of any number. It can use one text with many hashes.
func TestManyDefinitionsFillNoMemory(t *testing.T) { // not parallel: it measures the memory of the process
	pool, desk := lent(t, loan(t), "l-1")
	many := func(name string, n int, d *saga.Definition) {
		_, err := pool.Exec(t.Context(), `INSERT INTO troupe.saga_definitions (hash, saga, version, definition)
			SELECT $1::text || n, 'loan', 1, $3 FROM generate_series(1, $2::int) AS n`, name, n, string(d.JSON()))
		require.NoError(t, err)
	}
	many("large", 100, loan(t, func(s *saga.Spec) {
		for i := range 200 {
			s.Ends = append(s.Ends, saga.End{When: fmt.Sprintf("data.cents == %d && data.name != \"%s\"", i, strings.Repeat("n", 1000)), Then: saga.ThenPark})
		}
	}))
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	list, _, err := desk.Questions(t.Context(), "", sagadesk.Page{})
	require.NoError(t, err)
	require.Len(t, list, 1, "the smallest definitions are read first")
	require.Less(t, heap()-before, uint64(96<<20), "100 took 183 MiB")
	for n := range 100 { // one saga after the other, as on the pages of sagas
		_, err := desk.Definition(t.Context(), fmt.Sprint("large", n+1))
		require.NoError(t, err)
	}
	require.Less(t, heap()-before, uint64(160<<20))
	many("small", 3000, loan(t))
	_, err = desk.CountQuestions(t.Context(), 10)
	require.NoError(t, err)
	require.Less(t, heap()-before, uint64(160<<20), "2,000 took 74 MiB")
	runtime.KeepAlive(desk)
}
