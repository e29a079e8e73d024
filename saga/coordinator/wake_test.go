package coordinator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
)

// The compensation that the timeout of the first step sends cannot be rendered, so the wake becomes a dead letter. The answer
// comes late, and the next step has a timeout too.
func TestATimeoutFiresAfterAWakeThatBecameADeadLetter(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	spec := visitSaga(t).Spec()
	spec.Steps[0].Timeout = saga.Duration(500 * time.Millisecond)
	spec.Steps[0].Compensation = &saga.Compensation{Command: &saga.Command{Hop: "hotel", Type: "CancelSlot"}, Success: []saga.Answer{{Event: "SlotCancelled"}}}
	spec.Steps[1].Timeout = saga.Duration(500 * time.Millisecond)
	spec.Steps[1].Irreversible = "a note"
	d, err := saga.Define(spec)
	require.NoError(t, err)
	p := f.participant("order", f.pool)
	f.c, err = coordinator.New(t.Context(), coordinator.Config{
		Participant: p, Pool: f.pool, Definitions: []*saga.Definition{d}, Schemas: without("CancelSlot"), Log: testkit.Logger(t),
	})
	require.NoError(t, err)
	f.goOn(p)
	id := f.startVisit("v-1")
	testkit.Wait(t, "the dead letter", func() (is bool, err error) {
		return is, f.pool.QueryRow(t.Context(), "SELECT count(*) > 0 FROM troupe.dead_letters").Scan(&is)
	})
	f.answerBook(id, "v-1", `{"slot": "9:15"}`)
	f.awaitParked(id)
	require.Contains(t, f.reason(id), "tell: no answer within 500ms")
}
