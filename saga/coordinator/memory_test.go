package coordinator_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func order(t testing.TB) *saga.Definition {
	t.Helper()
	text, err := os.ReadFile("../testdata/order.saga.json")
	require.NoError(t, err)
	d, err := saga.Parse(text)
	require.NoError(t, err)
	return d
}

var anOrder = map[string]any{"order_id": "o-1", "customer_id": "c-1", "amount_cents": 500, "title": 7, "quantity": 1}

// fold returns the state that a log folds to.
func fold(t testing.TB, d *saga.Definition, log []decisions.Entry) (s saga.State) {
	t.Helper()
	for i, e := range log {
		require.Equal(t, i+1, e.Version)
		s, _ = saga.Decide(d, s, e.Event, e.At)
	}
	return s
}

func TestMemoryRunsASaga(t *testing.T) {
	m, err := decisions.NewMemory(noon, order(t))
	require.NoError(t, err)
	var sent []string
	m.OnDecided = func(d decisions.Decided) {
		for _, c := range d.Effects.Commands {
			sent = append(sent, c.Step+"/"+c.Operation)
		}
	}
	id, err := m.Start("order", anOrder)
	require.NoError(t, err)
	require.Equal(t, "order/o-1", id)
	_, err = m.Start("order", anOrder)
	require.NoError(t, err, "again")
	charged := decisions.Message{ID: "m-1", Hop: "payment", Type: "PaymentCharged", Outcome: "success", SagaID: id,
		SagaStep: "payment", SagaOperation: "forward", Fields: map[string]any{"payment_id": "p-1"}}
	require.NoError(t, m.Take(charged))
	require.NoError(t, m.Take(charged))
	require.NoError(t, m.Advance(11*time.Minute)) // the inventory does not answer
	require.Equal(t, []string{"payment/forward", "inventory/forward", "inventory/compensate"}, sent)
	require.Equal(t, saga.Compensating, m.Sagas()[0].Status)
	require.Equal(t, m.Sagas()[0], fold(t, order(t), m.Log(id)))

	_, err = m.Act(id, saga.Event{Kind: saga.ActResume})
	require.ErrorIs(t, err, decisions.ErrRefused)
	_, err = m.Act(id, saga.Event{Kind: saga.ActAbandon, Actor: "me", Reason: "enough"})
	require.NoError(t, err)
	require.Equal(t, saga.Abandoned, m.Sagas()[0].Status)
}

// An answer to one saga is an event for others: it starts some, and others await it. The saga that it answers gets it once.
func TestAnAnswerIsAnEventToOtherSagas(t *testing.T) {
	parcel := func(name string, start []saga.Start, awaits saga.Answer) *saga.Definition {
		d, err := saga.Define(saga.Spec{
			Saga: name, Version: 1, Key: "order_id",
			Data:  map[string]saga.Type{"order_id": saga.String, "customer_id": saga.String},
			Start: start, Steps: []saga.Step{{Name: "wait", Success: []saga.Answer{awaits}}},
		})
		require.NoError(t, err)
		return d
	}
	charged := saga.Answer{Hop: "payment", Event: "PaymentCharged"}
	byCustomer := charged
	byCustomer.By = &saga.Association{Variable: "customer_id", Field: "customer_id"}
	m, err := decisions.NewMemory(noon, order(t), parcel("by-key", nil, charged), parcel("by-customer", nil, byCustomer),
		parcel("started", []saga.Start{{Hop: "payment", Event: "PaymentCharged", Set: saga.Mapping{"order_id": "event.order_id"}}},
			saga.Answer{Hop: "post", Event: "Delivered"}))
	require.NoError(t, err)
	for _, name := range []string{"order", "by-key", "by-customer"} {
		fields := map[string]any{"order_id": "o-1", "customer_id": "c-1"}
		if name == "order" {
			fields = anOrder
		}
		_, err := m.Start(name, fields)
		require.NoError(t, err)
	}
	moved := make(map[string]int)
	m.OnDecided = func(d decisions.Decided) { moved[d.ID]++ }
	require.NoError(t, m.Take(decisions.Message{ID: "m-1", Hop: "payment", Type: "PaymentCharged", Key: "o-1", Outcome: "success",
		SagaID: "order/o-1", SagaStep: "payment", SagaOperation: "forward",
		Fields: map[string]any{"payment_id": "p-1", "order_id": "o-1", "customer_id": "c-1"}}))
	require.Equal(t, map[string]int{"order/o-1": 1, "by-key/o-1": 1, "by-customer/o-1": 1, "started/o-1": 1}, moved)
	for _, s := range m.Sagas() {
		ends := s.Saga == "by-key" || s.Saga == "by-customer"
		require.Equal(t, ends, s.Ended(), s.ID())
	}
}
