package saga_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// patient is a saga whose steps and compensations have no time-outs.
const patient = `{"saga":"order","version":1,"key":"id","data":{"id":"string"},"steps":[
 {"name":"pay","command":{"hop":"bank","type":"Pay"},"success":[{"event":"Paid"}],"failure":[{"event":"NotPaid"}],
  "compensation":{"command":{"hop":"bank","type":"Refund"},"success":[{"event":"Refunded"}]}},
 {"name":"ship","needs":["pay"],"command":{"hop":"store","type":"Ship"},"success":[{"event":"Shipped"}],"failure":[{"event":"NotShipped"}]}]}`

// TestARunningStepWithoutATimeoutIsSentAgain loses the command and the compensation of a step, as if the retention of a topic had deleted them
// before they were read. Nothing but the operator ends the step then.
func TestARunningStepWithoutATimeoutIsSentAgain(t *testing.T) {
	r := &run{t: t, d: parse(t, patient), now: noon}
	r.take(saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "o-1"}})
	r.now = noon.Add(time.Hour)
	fx := r.take(saga.Event{Kind: saga.ActRetry, Step: "pay", Actor: "ann"})
	require.Equal(t, []string{"pay/forward"}, sent(fx))
	require.Equal(t, 1, fx.Commands[0].Epoch)
	require.Zero(t, fx.Commands[0].First, "a service outside recognises the call by the key of the first one")
	require.Equal(t, noon, fx.Commands[0].Since.UTC())
	r.take(answer("pay", "forward", "success", "Paid", nil))
	r.take(answer("ship", "forward", "failure", "NotShipped", nil))
	require.Equal(t, saga.CompensateIntent, r.s.Steps[0].Phase)
	fx = r.take(saga.Event{Kind: saga.ActRetry, Step: "pay", Actor: "ann"})
	require.Equal(t, []string{"pay/compensate"}, sent(fx))
	require.Equal(t, 1, fx.Commands[0].Epoch)
	r.take(answer("pay", "compensate", "success", "Refunded", nil))
	require.Equal(t, saga.Compensated, r.s.Status)
}

// TestARunningStepThatASagaWaitsForWhenItGoesBackIsSentAgain lets an operator compensate the saga first, which waits for the step's answer.
func TestARunningStepThatASagaWaitsForWhenItGoesBackIsSentAgain(t *testing.T) {
	r := &run{t: t, d: parse(t, patient), now: noon}
	r.take(saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "o-1"}})
	r.take(saga.Event{Kind: saga.ActCompensate, Actor: "ann"})
	require.Equal(t, saga.Compensating, r.s.Status)
	require.Equal(t, []string{"pay/forward"}, sent(r.take(saga.Event{Kind: saga.ActRetry, Step: "pay", Actor: "ann"})))
	require.Equal(t, []string{"pay/compensate"}, sent(r.take(answer("pay", "forward", "success", "Paid", nil))))
	r.take(answer("pay", "compensate", "success", "Refunded", nil))
	require.Equal(t, saga.Compensated, r.s.Status)
}

// TestARunningStepIsSentAgainOnceItsTimeoutIsOver: before that the time-out ends it. After that its wake may be lost, too.
func TestARunningStepIsSentAgainOnceItsTimeoutIsOver(t *testing.T) {
	r, _ := startOrder(t)
	again := saga.Event{Kind: saga.ActRetry, Step: "payment", Actor: "ann"}
	r.now = noon.Add(9 * time.Minute)
	require.Equal(t, "step payment is running until its time-out: retry it after that", r.take(again).Refused)
	r.now = noon.Add(10 * time.Minute)
	fx := r.take(again)
	require.Equal(t, []string{"payment/forward"}, sent(fx))
	require.Equal(t, noon.Add(20*time.Minute), fx.Scheduled[0].At.UTC())
}

func TestTheCompensationOfAStepThatTheSagaWentOnWithoutIsSentAgain(t *testing.T) {
	r := &run{t: t, now: noon, d: parse(t, `{"saga":"gift","version":1,"key":"id","data":{"id":"string"},"steps":[
 {"name":"hotel","optional":true,"timeout":"1m","command":{"hop":"hotel","type":"Book"},"success":[{"event":"Booked"}],
  "compensation":{"command":{"hop":"hotel","type":"Cancel"},"success":[{"event":"Cancelled"}]}}]}`)}
	r.take(saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "g-1"}})
	r.now = noon.Add(time.Minute)
	require.Equal(t, []string{"hotel/compensate"}, sent(r.take(saga.Event{Kind: saga.Fired, Deadline: "hotel.timeout"})))
	require.Equal(t, []string{"hotel/compensate"}, sent(r.take(saga.Event{Kind: saga.ActRetry, Step: "hotel", Actor: "ann"})))
	r.take(answer("hotel", "compensate", "success", "Cancelled", nil))
	require.Equal(t, saga.Completed, r.s.Status)
}
