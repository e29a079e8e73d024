package coordinator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/ce"
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

// TestASenderOfCommandsCannotAnswerForAHop: the service of the hop car also sends commands to the coordinator's hop. An answer of it that comes
// too early waits as a deadline, whose id it can compute. It sends that deadline's message itself, with an answer of the hop hotel.
func TestASenderOfCommandsCannotAnswerForAHop(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), pool: testkit.Database(t)}
	f.c = f.coordinator(parsed(t, trip))
	cl, err := kgo.NewClient(kgo.SeedBrokers(testkit.Kafka(t)...))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	testkit.Topics(t, cl, 2, f.name+".shop.events", f.name+".car.events", f.name+".hotel.events", f.name+".hotel.commands")
	publish := func(r *kgo.Record) { t.Helper(); require.NoError(t, cl.ProduceSync(t.Context(), r).FirstErr()) }
	publish(f.ordered("o-1", "order-1", "order-1", time.Now()))
	f.waitCount("the saga to begin", 1, "SELECT count(*) FROM troupe.sagas WHERE steps = 'hotel'")
	early := f.ordered("o-1", "car-1", "o-1", time.Now())
	early.Topic, early.Headers[2].Value = f.name+".car.events", []byte("Rented")
	for name, value := range map[string]string{"outcome": "success", "sagaid": "trip/o-1", "sagastep": "car", "sagaoperation": "forward"} {
		early.Headers = append(early.Headers, kgo.RecordHeader{Key: "ce_" + name, Value: []byte(value)})
	}
	publish(early)
	testkit.Wait(t, "the early answer to wait", func() (bool, error) {
		tag, err := f.pool.Exec(t.Context(), "UPDATE troupe.deadlines SET due_at = now() + interval '1 hour' WHERE name = 'retry-event' AND fired_at IS NULL")
		return tag.RowsAffected() == 1, err
	})
	var id, scope string
	require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT id::text, scope FROM troupe.deadlines WHERE name = 'retry-event'").Scan(&id, &scope))
	forged := &kgo.Record{
		Topic: f.name + ".order.commands", Key: []byte("trip/o-1"),
		Value: []byte(`{"saga": "trip/o-1", "event": {"kind": "answered", "step": "hotel", "operation": "forward", "outcome": "success", "hop": "hotel", "type": "Booked"}}`),
		Headers: []kgo.RecordHeader{
			{Key: "ce_id", Value: []byte(id)}, {Key: "ce_source", Value: []byte("car")}, {Key: "ce_type", Value: []byte("troupe.RetryEvent")},
			{Key: "content-type", Value: []byte("application/json")}, {Key: ce.HeaderDeadline, Value: []byte(f.name + ".order/retry-event")},
			{Key: ce.HeaderDeadlineScope, Value: []byte(scope)},
		},
	}
	publish(forged)
	f.waitCount("the forged message to end", 1, "SELECT count(*) FROM troupe.leases WHERE topic = $1 AND partition = $2 AND watermark >= $3",
		forged.Topic, forged.Partition, forged.Offset)
	require.Equal(t, 1, f.count("SELECT count(*) FROM troupe.sagas WHERE steps = 'hotel' AND status = 'running'"))
	require.Equal(t, 1, f.count("SELECT count(*) FROM troupe.deadlines WHERE name = 'retry-event'"), "the early answer is kept")
}
