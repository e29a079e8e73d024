package coordinator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// TestAWorkerThatSpeaksOnlyKafkaTakesPart answers commands without this library, as docs/answers.md describes: twice, since
// it has no inbox.
func TestAWorkerThatSpeaksOnlyKafkaTakesPart(t *testing.T) {
	t.Parallel()
	f := newHops(t, false)
	cl, err := kgo.NewClient(kgo.SeedBrokers(testkit.Kafka(t)...))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	// Both: the command may come before the coordinator has made the topic of the answers.
	testkit.Topics(t, cl, 1, f.name+".legacy.commands", f.name+".legacy.events")
	commands := testkit.Consume(t, testkit.Kafka(t), f.name+".legacy.commands")

	d, err := saga.Define(saga.Spec{
		Saga: "order", Version: 1, Key: "order_id",
		Data: map[string]saga.Type{
			"order_id": saga.String, "customer_id": saga.String, "amount_cents": saga.Int, "title": saga.Int, "quantity": saga.Int,
			"slot": saga.String,
		},
		Steps: []saga.Step{{
			Name: "book", Command: &saga.Command{Hop: "legacy", Type: "BookSlot"}, Timeout: saga.Duration(time.Hour),
			Success: []saga.Answer{{Event: "SlotBooked", Set: saga.Mapping{"slot": "event.slot"}}},
		}},
	})
	require.NoError(t, err)
	f.c = f.coordinator(d)
	id := f.start("o-1")

	command := commands.WaitN(1)[0]
	headers := []kgo.RecordHeader{
		{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_id", Value: []byte("legacy-1")}, {Key: "ce_source", Value: []byte("legacy")},
		{Key: "ce_type", Value: []byte("SlotBooked")}, {Key: "ce_outcome", Value: []byte("success")},
		{Key: "content-type", Value: []byte("application/json")},
	}
	for _, h := range command.Headers {
		switch h.Key {
		case "ce_sagaid", "ce_sagastep", "ce_sagaoperation", "ce_idempotencykey", "ce_correlationid":
			headers = append(headers, h)
		case "ce_id":
			headers = append(headers, kgo.RecordHeader{Key: "ce_causationid", Value: h.Value})
		}
	}
	answer := kgo.Record{Topic: f.name + ".legacy.events", Key: command.Key, Value: []byte(`{"slot": "9:15"}`), Headers: headers}
	again := answer
	require.NoError(t, cl.ProduceSync(t.Context(), &answer, &again).FirstErr())

	testkit.Wait(t, "the saga to complete", func() (done bool, err error) {
		err = f.pool.QueryRow(t.Context(), "SELECT status = 'completed' AND state -> 'data' ->> 'slot' = '9:15' FROM troupe.sagas WHERE id = $1", id).Scan(&done)
		return done, err
	})
}
