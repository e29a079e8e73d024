package coordinator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// TestAHopCannotAnswerForAnother: the service of the hop desk writes to the events of its hop, and names steps of the hop hotel. Each of its
// messages is a dead letter, and no saga is parked, refused or undone by it; also by one that cannot be read.
func TestAHopCannotAnswerForAnother(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	spec := visitSaga(t).Spec()
	spec.Cancel = &saga.Cancel{Events: []saga.Answer{{Event: "VisitCancelled", Hop: "desk"}}} // the coordinator consumes the hop's events
	d, err := saga.Define(spec)
	require.NoError(t, err)
	stop := f.process(d)
	id := f.startVisit("v-1")
	const forge = `
INSERT INTO troupe.outbox (topic, key, type, payload, headers)
VALUES ($1, 'v-1', $2, $3, jsonb_build_object('ce_sagaid', $4::text, 'ce_sagastep', 'book', 'ce_sagaoperation', $5::text,
        'ce_outcome', $6::text, 'ce_idempotencykey', $4 || '/book/' || $5 || '/0'))`
	forged := [][]string{
		{"SlotBooked", `{"slot": "9:15"`, "forward", "success"},
		{"SlotBooked", `{"slot": "9:15"}`, "forward", "success"},
		{saga.NothingType, `{}`, "forward", "success"},
		{"SlotRefused", `{}`, "forward", "failure"},
	}
	for _, one := range forged {
		_, err := f.pool.Exec(t.Context(), forge, f.name+".desk.events", one[0], one[1], id, one[2], one[3])
		require.NoError(t, err)
	}
	testkit.Wait(t, "the dead letters, and the events about them", func() (is bool, err error) {
		const look = `
SELECT count(*) FILTER (WHERE topic = $2 AND status = 'failed') = $1 AND count(*) FILTER (WHERE topic = $3 AND status = 'done') = $1
FROM troupe.local_work`
		return is, f.pool.QueryRow(t.Context(), look, len(forged), f.name+".desk.events", f.name+".order.events").Scan(&is)
	})
	got, err := f.desk().Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, saga.Running, got.State.Status, got.State.Reason)
	require.Equal(t, saga.Intent, got.State.Steps[0].Phase)
	stop()
}
