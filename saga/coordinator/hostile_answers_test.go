package coordinator_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// A hop whose events a coordinator reads may answer a saga with any bytes. It can park that saga, and stops no other.
func TestAnswersOfAnyBytesStopNoOtherSaga(t *testing.T) {
	t.Parallel()
	f := newFlow(t, false)
	f.start("o-1")
	f.await("order/o-1", saga.Completed)
	client, err := kafka.NewClient(testkit.Kafka(t))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	hop := topics.MustHop(f.name, "payment")
	answer := func(n int, change func(*envelope.Message)) *kgo.Record {
		m := envelope.Message{
			Topic: hop.Events(), Key: []byte("o-1"), ID: envelope.NewID(), Type: "PaymentCharged", Source: "payment", ContentType: envelope.JSON,
			Outcome: envelope.Success, SagaID: "order/o-1", SagaStep: "charge", SagaOperation: "forward", CorrelationID: "c", Payload: []byte(`{"payment_id":"p-2"}`),
			IdempotencyKey: fmt.Sprint("odd-", n),
		}
		change(&m)
		return kafka.Record(m)
	}
	var records []*kgo.Record
	for n, change := range []func(*envelope.Message){
		func(m *envelope.Message) { m.SagaID = "\x00" },
		func(m *envelope.Message) { m.SagaID = "order/\x00" },
		func(m *envelope.Message) { m.SagaID = "order/" + strings.Repeat("x", 1000) },
		func(m *envelope.Message) { m.SagaID = "/" },
		func(m *envelope.Message) { m.SagaID = "order/none" },
		func(m *envelope.Message) { m.SagaStep = "\x00" },
		func(m *envelope.Message) { m.SagaStep = "none" },
		func(m *envelope.Message) { m.SagaStep = "charge[0]" },
		func(m *envelope.Message) { m.SagaStep = "charge[999999999]" },
		func(m *envelope.Message) { m.IdempotencyKey = "order/o-1/charge/forward/9223372036854775807" },
		func(m *envelope.Message) { m.IdempotencyKey = "order/o-1/charge/forward/-9223372036854775808" },
		func(m *envelope.Message) { m.SagaOperation = "\x00" },
		func(m *envelope.Message) { m.SagaOperation = "sideways" },
		func(m *envelope.Message) { m.SagaOperation = "backward" },
		func(m *envelope.Message) { m.Type = "\x00" },
		func(m *envelope.Message) { m.Type = "Other" },
		func(m *envelope.Message) { m.ContentType = "\x00" },
		func(m *envelope.Message) { m.ContentType = "application/avro" },
		func(m *envelope.Message) { m.Payload = nil },
		func(m *envelope.Message) { m.Payload = []byte{} },
		func(m *envelope.Message) { m.Payload = []byte("null") },
		func(m *envelope.Message) { m.Payload = []byte("[1]") },
		func(m *envelope.Message) { m.Payload = []byte(`{"payment_id":"\u0000"}`) },
		func(m *envelope.Message) { m.Payload = []byte(`{"payment_id":"\ud800"}`) },
		func(m *envelope.Message) { m.Payload = []byte(`{"payment_id":1e999999}`) },
		func(m *envelope.Message) {
			m.Payload = []byte(strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000))
		},
		func(m *envelope.Message) { m.Payload = []byte(`{"payment_id":"` + strings.Repeat("x", 900_000) + `"}`) },
		func(m *envelope.Message) { m.Outcome = envelope.Failure; m.Payload = []byte(`{"reason":"\u0000"}`) },
		func(m *envelope.Message) {
			m.Outcome = envelope.Exhausted
			m.Payload = []byte(`{"dead_letter_id":"\u0000","error":"\u0000"}`)
		},
		func(m *envelope.Message) { m.Outcome = "" },
		func(m *envelope.Message) { m.Key = nil },
		func(m *envelope.Message) { m.Key = []byte("\x00\xff") },
		func(m *envelope.Message) { m.CorrelationID = "\x00"; m.CausationID = "\x00" },
	} {
		records = append(records, answer(n, change))
		early := answer(n+1000, change) // for a saga that has not started: an early answer is stashed
		for i := range early.Headers {
			if string(early.Headers[i].Value) == "order/o-1" {
				early.Headers[i].Value = []byte("order/o-9")
			}
		}
		records = append(records, early)
	}
	require.NoError(t, client.ProduceSync(t.Context(), records...).FirstErr())
	for n := range 8 { // keys of both partitions
		key := fmt.Sprint("o-", 100+n)
		f.start(key)
		f.await("order/"+key, saga.Completed)
	}
	require.Equal(t, saga.Completed, f.state("order/o-1").Status)
}
