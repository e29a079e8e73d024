package sagadesk_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
)

// TestManyDefinitionsFillNoMemory: a role that may start sagas can store definitions of any number. It can use one text with many hashes.
func TestManyDefinitionsFillNoMemory(t *testing.T) { // not parallel: it measures the memory of the process
	pool, desk := lent(t, loan(t), "l-1")
	many := func(name string, n int, d *saga.Definition) {
		storeCopies(t, pool, name, n, d)
		beginWithCopies(t, pool, name)
	}
	many("large", 100, largeLoan(t))
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	found, err := desk.Questions(t.Context(), "", sagadesk.Page{})
	require.NoError(t, err)
	require.Len(t, found.Questions, 1, "the smallest definitions are read first")
	require.Less(t, heap()-before, uint64(96<<20), "100 took 183 MiB")
	for n := range 100 { // one saga after the other, as on the pages of sagas
		_, err := desk.Definition(t.Context(), fmt.Sprint("large", n+1))
		require.NoError(t, err)
	}
	require.Less(t, heap()-before, uint64(160<<20))
	many("small", 3000, loan(t))
	_, _, err = desk.CountQuestions(t.Context(), 10)
	require.NoError(t, err)
	require.Less(t, heap()-before, uint64(160<<20), "2,000 took 74 MiB")
	runtime.KeepAlive(desk)
}

// storeCopies stores a definition n times, under the hashes name1 to name<n>.
func storeCopies(t testing.TB, pool *pgxpool.Pool, name string, n int, d *saga.Definition) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `INSERT INTO troupe.saga_definitions (hash, saga, version, definition)
		SELECT $1::text || n, 'loan', 1, $3 FROM generate_series(1, $2::int) AS n`, name, n, string(d.JSON()))
	require.NoError(t, err)
}

// beginWithCopies stores a saga at the step approval for each definition of storeCopies. The state of the saga cannot be read.
func beginWithCopies(t testing.TB, pool *pgxpool.Pool, name string) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `INSERT INTO troupe.sagas (id, saga, key, hop, consumer_group, definition, version, status, steps, state, started_at)
		SELECT saga || '/' || hash, saga, hash, 'bank.loans', 'g', hash, 1, 'running', 'approval', '{}', now()
		FROM troupe.saga_definitions
		WHERE starts_with(hash, $1)`, name)
	require.NoError(t, err)
}

// largeLoan is a loan with a definition of 200 kB.
func largeLoan(t testing.TB) *saga.Definition {
	return loan(t, func(s *saga.Spec) {
		for i := range 200 {
			s.Ends = append(s.Ends, saga.End{When: fmt.Sprintf("data.cents == %d && data.name != \"%s\"", i, strings.Repeat("n", 1000)), Then: saga.ThenPark})
		}
	})
}

// TestSmallerDefinitionsHideNoQuestion: definitions that no saga has any more, as many as the console reads at most, are smaller.
func TestSmallerDefinitionsHideNoQuestion(t *testing.T) {
	t.Parallel()
	pool, desk := lent(t, largeLoan(t), "l-1")
	storeCopies(t, pool, "retired", 3000, loan(t))
	found, err := desk.Questions(t.Context(), "", sagadesk.Page{})
	require.NoError(t, err)
	require.Len(t, found.Questions, 1)
	require.Zero(t, found.LeftOut)
	n, more, err := desk.CountQuestions(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.False(t, more)
}

// TestLeftOutDefinitionsAreCounted: open sagas have more definitions with forms than the console reads, and one that it cannot read.
func TestLeftOutDefinitionsAreCounted(t *testing.T) {
	t.Parallel()
	pool, desk := lent(t, loan(t), "l-1")
	storeCopies(t, pool, "large", 60, largeLoan(t))
	storeCopies(t, pool, "retired", 1, loan(t))
	_, err := pool.Exec(t.Context(), "INSERT INTO troupe.saga_definitions (hash, saga, version, definition) VALUES ('newer', 'loan', 9, '{\"form\"')")
	require.NoError(t, err)
	beginWithCopies(t, pool, "large")
	beginWithCopies(t, pool, "newer")
	found, err := desk.Questions(t.Context(), "", sagadesk.Page{})
	require.NoError(t, err)
	require.Len(t, found.Questions, 1)
	require.Equal(t, 60-33+1, found.LeftOut, "the ones beyond 64 MiB, and the newer one")
	_, more, err := desk.CountQuestions(t.Context(), 100)
	require.NoError(t, err)
	require.True(t, more, "sagas of the others may have questions")
}

// TestAFormOfAnotherDefinitionIsNoQuestion: a step has a form in one definition, and none in another one with a form at another step.
func TestAFormOfAnotherDefinitionIsNoQuestion(t *testing.T) {
	t.Parallel()
	pool, desk := lent(t, loan(t, func(s *saga.Spec) {
		s.Version = 2
		s.Steps[0].Success[0].Form, s.Steps[0].Failure[0].Form = nil, nil
		s.Steps = append(s.Steps, saga.Step{Name: "review", Needs: []string{"pay"}, Success: []saga.Answer{{Event: "Reviewed", Hop: "desk", Form: &saga.Form{}}}})
	}), "a-1", "a-2")
	d := loan(t)
	require.NoError(t, decisions.StoreDefinition(t.Context(), pool, d))
	_, err := desk.Start(t.Context(), sagadesk.StartRequest{Definition: d, Fields: map[string]any{"id": "l-1"}, Actor: "ann", Reason: "a test", Hop: "bank.loans"})
	require.NoError(t, err)
	n, _, err := desk.CountQuestions(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	found, err := desk.Questions(t.Context(), "", sagadesk.Page{Limit: 1})
	require.NoError(t, err)
	require.Len(t, found.Questions, 1, "the sagas without a question take no place on the page")
	require.Empty(t, found.Next)
}
