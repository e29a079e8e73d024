package coordinator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/saga"
)

// ages makes everything about sagas that long ago.
func (f *flow) ages(by string) {
	f.t.Helper()
	for _, sql := range []string{
		"UPDATE troupe.sagas SET started_at = started_at - $1::interval, ended_at = ended_at - $1::interval",
		"UPDATE troupe.saga_events SET recorded_at = recorded_at - $1::interval",
		"UPDATE troupe.answers SET answered_at = answered_at - $1::interval",
	} {
		_, err := f.pool.Exec(f.t.Context(), sql, by)
		require.NoError(f.t, err)
	}
}

// removes removes closed records. The flow's members do so too, once a minute.
func (f *flow) removes() {
	f.t.Helper()
	_, err := retention.NewRecords(f.pool).Remove(f.t.Context())
	require.NoError(f.t, err)
}

const rowsOf = "SELECT (SELECT count(*) FROM troupe.sagas WHERE id = $1) + (SELECT count(*) FROM troupe.saga_events WHERE saga_id = $1)"

// TestAKeyIsGivenOutAgainOnceNothingOfItsSagaIsLeft: until the hops have forgotten their answers, a second saga of the key would get the
// answers of the first, without any effect. So the first one is kept as long, and a start finds it.
func TestAKeyIsGivenOutAgainOnceNothingOfItsSagaIsLeft(t *testing.T) {
	t.Parallel()
	f := newFlow(t, true)
	id := f.start("o-1")
	f.await(id, saga.Completed)
	first := f.effects("o-1")
	require.NotEmpty(t, first)
	f.waitCount("the deadlines to be handled", 0, "SELECT count(*) FROM troupe.deadlines WHERE scope = $1", id)
	rows := f.count(rowsOf, id)
	f.removes()
	require.Equal(t, rows, f.count(rowsOf, id), "it has ended just now")

	f.ages("91 days")
	f.removes()
	require.Equal(t, rows, f.count(rowsOf, id), "the answers of its steps are stored")
	f.start("o-1")
	require.Equal(t, first, f.effects("o-1"))
	_, err := f.pool.Exec(t.Context(), "DELETE FROM troupe.answers")
	require.NoError(t, err)
	f.removes()
	f.waitCount("the saga to be removed", 0, rowsOf, id)

	f.start("o-1")
	f.await(id, saga.Completed)
	require.Len(t, f.effects("o-1"), 2*len(first), "the second saga has effects of its own")
}

// TestAnAnswerToARemovedSagaChangesNothing, and the coordinator goes on.
func TestAnAnswerToARemovedSagaChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFlow(t, true)
	id := f.start("o-1")
	f.await(id, saga.Completed)
	f.waitCount("the deadlines to be handled", 0, "SELECT count(*) FROM troupe.deadlines WHERE scope = $1", id)
	f.ages("91 days")
	_, err := f.pool.Exec(t.Context(), "DELETE FROM troupe.answers")
	require.NoError(t, err)
	f.removes()
	f.waitCount("the saga to be removed", 0, rowsOf, id)

	f.answer(id, "payment", "PaymentCharged", "payment", "forward", "success")
	next := f.start("o-2")
	f.await(next, saga.Completed)
	f.waitCount("the answer to be tried again later", 1, "SELECT count(*) FROM troupe.deadlines WHERE name = 'retry-event' AND key = $1", id)
	require.Zero(t, f.count(rowsOf, id))
	require.Zero(t, f.count("SELECT count(*) FROM troupe.dead_letters"))
}
