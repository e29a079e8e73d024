package saga_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func load(t testing.TB, file string) *saga.Definition {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	d, err := saga.Parse(text)
	require.NoError(t, err)
	return d
}

// run holds one saga under test; each event is decided at now.
type run struct {
	t   testing.TB
	d   *saga.Definition
	s   saga.State
	now time.Time
}

func (r *run) take(e saga.Event) saga.Effects {
	r.t.Helper()
	s, fx := saga.Decide(r.d, r.s, e, r.now)
	r.s = s
	return fx
}

func startOrder(t testing.TB) (*run, saga.Effects) {
	t.Helper()
	r := &run{t: t, d: load(t, "testdata/order.saga.json"), now: noon}
	fx := r.take(saga.Event{Kind: saga.Started, Fields: map[string]any{
		"order_id": "o-1", "customer_id": "c-1", "amount_cents": 500, "title": 7, "quantity": 1,
	}})
	require.Empty(t, fx.Refused)
	return r, fx
}

func answer(step, operation, outcome, typ string, fields map[string]any) saga.Event {
	return saga.Event{Kind: saga.Answered, Step: step, Operation: operation, Outcome: outcome, Type: typ, Fields: fields}
}

// sent returns the commands that were sent, as step/operation.
func sent(fx saga.Effects) (all []string) {
	for _, c := range fx.Commands {
		all = append(all, c.Step+"/"+c.Operation)
	}
	return all
}

func (r *run) pay() saga.Effects {
	return r.take(answer("payment", "forward", "success", "PaymentCharged", map[string]any{"payment_id": "p-1"}))
}

func (r *run) reserve() saga.Effects {
	return r.take(answer("inventory", "forward", "success", "StockReserved", map[string]any{"reservation_id": "r-1"}))
}

func TestAnOrderCompletes(t *testing.T) {
	r, fx := startOrder(t)
	require.Equal(t, []string{"payment/forward"}, sent(fx))
	require.Equal(t, map[string]any{"order_id": "o-1", "customer_id": "c-1", "amount_cents": int64(500)}, fx.Commands[0].Fields)
	require.Equal(t, noon.Add(10*time.Minute), fx.Scheduled[0].At)

	fx = r.pay()
	require.Equal(t, []string{"inventory/forward"}, sent(fx))
	require.Equal(t, []string{"payment.timeout"}, fx.Cancelled)
	require.NotEmpty(t, r.pay().Ignored, "a duplicate")
	require.Equal(t, []string{"shipping/forward"}, sent(r.reserve()))
	fx = r.take(answer("shipping", "forward", "success", "OrderShipped", map[string]any{"shipment_id": "s-1"}))
	require.Equal(t, saga.Completed, r.s.Status)
	require.Equal(t, "OrderCompleted", fx.Events[0].Type)
	require.Equal(t, "s-1", fx.Events[0].Fields["shipment_id"])
	require.Empty(t, r.s.Deadlines)
	require.Equal(t, 4, r.s.Version)
}

// TestARefusalUndoesWhatWasDoneInReverse covers defects 2, 3 and 8: a refused shipment releases the stock and then refunds the
// payment.
func TestARefusalUndoesWhatWasDoneInReverse(t *testing.T) {
	r, _ := startOrder(t)
	r.pay()
	r.reserve()
	fx := r.take(answer("shipping", "forward", "failure", "ShippingRefused", map[string]any{"reason": "no carrier"}))
	require.Equal(t, []string{"inventory/compensate"}, sent(fx))
	require.Equal(t, "r-1", fx.Commands[0].Fields["reservation_id"])
	require.False(t, fx.Commands[0].Doubt)
	fx = r.take(answer("inventory", "compensate", "success", "StockReleased", nil))
	require.Equal(t, []string{"payment/compensate"}, sent(fx))
	require.Equal(t, "p-1", fx.Commands[0].Fields["payment_id"])
	fx = r.take(answer("payment", "compensate", "success", "PaymentRefunded", nil))
	require.Equal(t, saga.Compensated, r.s.Status)
	require.Equal(t, map[string]any{
		"order_id": "o-1", "customer_id": "c-1", "reason": "no carrier", "compensated": []any{"inventory", "payment"},
	}, fx.Events[0].Fields)
}

// TestATimedOutStepIsInDoubtAndCompensated covers defects 11 and 12: a step that timed out may have taken effect.
func TestATimedOutStepIsInDoubtAndCompensated(t *testing.T) {
	r, _ := startOrder(t)
	r.pay()
	r.now = noon.Add(time.Minute)
	require.NotEmpty(t, r.take(saga.Event{Kind: saga.Fired, Deadline: "inventory.timeout"}).Ignored, "not due yet")
	r.now = noon.Add(10 * time.Minute)
	fx := r.take(saga.Event{Kind: saga.Fired, Deadline: "inventory.timeout"})
	require.Equal(t, []string{"inventory/compensate"}, sent(fx))
	require.True(t, fx.Commands[0].Doubt)
	require.Empty(t, fx.Commands[0].Fields["reservation_id"])
	r.reserve() // late
	require.Equal(t, "r-1", r.s.Data["reservation_id"])
	fx = r.take(answer("inventory", "compensate", "success", "StockReleased", nil))
	require.Equal(t, []string{"payment/compensate"}, sent(fx))
	r.take(answer("payment", "compensate", "success", "PaymentRefunded", nil))
	require.Equal(t, saga.Compensated, r.s.Status)
}

// TestAnExhaustedStepParksUntilItsRedrive covers defect 14: an exhausted step parks the saga, and the outcome of its redrive
// resumes it.
func TestAnExhaustedStepParksUntilItsRedrive(t *testing.T) {
	r, _ := startOrder(t)
	fx := r.take(answer("payment", "forward", "exhausted", "troupe.Exhausted", nil))
	require.Equal(t, saga.Parked, r.s.Status)
	require.NotEmpty(t, fx.Alert)
	fx = r.pay()
	require.Equal(t, saga.Running, r.s.Status)
	require.Equal(t, []string{"inventory/forward"}, sent(fx))
}

func TestParseAndPrintAreTheIdentity(t *testing.T) {
	text, err := os.ReadFile("testdata/order.saga.json")
	require.NoError(t, err)
	d := load(t, "testdata/order.saga.json")
	require.Equal(t, string(text), string(d.JSON()))
	again, err := saga.Define(d.Spec())
	require.NoError(t, err)
	require.Equal(t, d.Hash(), again.Hash())
}

func TestMistakesHaveLinesAndPaths(t *testing.T) {
	_, err := saga.Parse([]byte(`{
  "saga": "order",
  "version": 1,
  "key": "order_id",
  "data": {"order_id": "string"},
  "steps": [
    {"name": "pay", "needs": ["stock"],
     "command": {"hop": "payment", "type": "Charge", "input": {"amount": "data.amount"}}}
  ]
}`))
	require.ErrorContains(t, err, `line 7: steps[0].needs[0]: there is no step "stock"`)
	_, err = saga.Parse([]byte("{\n\"saga\": \"order\",\n\"colour\": 1}"))
	require.ErrorContains(t, err, `line 3: unknown field "colour"`)
}

func TestAnExpressionIsFoundByItsPath(t *testing.T) {
	d := load(t, "testdata/order.saga.json")
	require.Equal(t, "event.payment_id", d.Expr("steps[0].success[0].set.payment_id").Text())
	require.Nil(t, d.Expr("steps[0].when"))
}

// TestNothingIsUndoneWhileAPivotIsInDoubt checks a pivot that was not answered in time and may still be done: until its
// result is known nothing is compensated and no step is skipped.
func TestNothingIsUndoneWhileAPivotIsInDoubt(t *testing.T) {
	t.Parallel()
	step := func(name, needs string) saga.Step {
		st := saga.Step{Name: name, Command: &saga.Command{Hop: "hop", Type: "Do"}, Success: []saga.Answer{{Event: "Done"}}}
		if needs != "" {
			st.Needs = []string{needs}
		}
		return st
	}
	pivot, before, behind := step("pivot", "before"), step("before", ""), step("behind", "pivot")
	pivot.Pivot, pivot.Timeout = true, saga.Duration(time.Minute)
	before.Compensation = &saga.Compensation{Command: &saga.Command{Hop: "hop", Type: "Undo"}, Success: []saga.Answer{{Event: "Undone"}}}
	beside := step("beside", "")
	beside.Compensation = before.Compensation
	d, err := saga.Define(saga.Spec{
		Saga: "x", Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String}, Steps: []saga.Step{before, pivot, behind, beside},
	})
	require.NoError(t, err)
	for outcome, want := range map[string][]string{"success": {"behind/forward"}, "failure": {"beside/compensate", "before/compensate"}} {
		r := &run{t: t, d: d, now: noon}
		r.take(saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "1"}})
		r.take(answer("beside", "forward", "success", "Done", nil))
		require.Equal(t, []string{"pivot/forward"}, sent(r.take(answer("before", "forward", "success", "Done", nil))))
		require.Empty(t, r.take(saga.Event{Kind: saga.ActCompensate, Reason: "the customer asks"}).Commands)
		r.now = noon.Add(time.Minute)
		fx := r.take(saga.Event{Kind: saga.Fired, Deadline: "pivot.timeout"})
		require.Empty(t, fx.Commands)
		require.NotEmpty(t, fx.Alert)
		require.Equal(t, saga.Parked, r.s.Status)
		require.Equal(t, want, sent(r.take(answer("pivot", "forward", outcome, "Done", nil))), outcome)
	}
}

func TestAVariableHasOneSetter(t *testing.T) {
	answer := []saga.Answer{{Event: "Paid", Set: saga.Mapping{"receipt": "event.receipt"}}}
	spec := saga.Spec{
		Saga: "order", Version: 1, Key: "order_id", Data: map[string]saga.Type{"order_id": saga.String, "receipt": saga.String},
		Steps: []saga.Step{
			{Name: "deposit", Command: &saga.Command{Hop: "payment", Type: "Charge"}, Success: answer},
			{Name: "rest", Needs: []string{"deposit"}, Command: &saga.Command{Hop: "payment", Type: "ChargeRest"}, Success: answer},
		},
	}
	_, err := saga.Define(spec)
	require.ErrorContains(t, err, `variable "receipt" is set by step deposit already`)
}
