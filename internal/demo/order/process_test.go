package order

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	messages "github.com/troupe-go/troupe/schemas/order"
)

var rewrite = flag.Bool("update", false, "rewrite the golden files")

// begin is an order as the first request leaves it in memory.
func begin() Order {
	return Order{ID: "o-1", CustomerID: "c-1", Title: 7, Quantity: 2, AmountCents: 2933, State: started, Status: Running}
}

// The answers of the hops, each as it would be for begin.
var (
	charged         = messages.PaymentCharged{OrderID: "o-1", PaymentID: "pay-1", AmountCents: 2933}
	paymentRefused  = messages.PaymentRefused{OrderID: "o-1", Reason: "credit limit"}
	refunded        = messages.PaymentRefunded{OrderID: "o-1", PaymentID: "pay-1", AmountCents: 2933}
	reserved        = messages.StockReserved{OrderID: "o-1", ReservationID: "res-1", Title: 7, Quantity: 2}
	stockRefused    = messages.StockRefused{OrderID: "o-1", Reason: "out of stock"}
	released        = messages.StockReleased{OrderID: "o-1", ReservationID: "res-1"}
	shipped         = messages.OrderShipped{OrderID: "o-1", ShipmentID: "shp-1"}
	shippingRefused = messages.ShippingRefused{OrderID: "o-1", Reason: "no road"}
)

// everyEvent is all that can come to an order, by the name it has in the golden file. nil is no event: the process called again.
func everyEvent() map[string]any {
	events := map[string]any{"nothing": nil}
	for _, e := range []any{charged, paymentRefused, refunded, reserved, stockRefused, released, shipped, shippingRefused} {
		events[strings.TrimPrefix(fmt.Sprintf("%T", e), "order.")] = e
	}
	for _, hop := range []string{"payment", "inventory", "shipping", "order", ""} {
		for _, operation := range []string{envelope.Forward, envelope.Compensate, ""} {
			events[fmt.Sprintf("exhausted %s %s", hop, operation)] = exhausted{hop, operation, "gave up"}
		}
	}
	return events
}

func eventNames() []string {
	var names []string
	for name := range everyEvent() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// play is the order after those events, and all that was sent.
func play(o Order, events ...any) (Order, []message) {
	var sent []message
	for _, e := range events {
		var m *message
		if o, m = advance(o, e); m != nil {
			sent = append(sent, *m)
		}
	}
	return o, sent
}

func bodies(sent []message) []any {
	var all []any
	for _, m := range sent {
		all = append(all, m.body)
	}
	return all
}

func states(o Order) []string {
	var all []string
	for _, m := range o.passed {
		all = append(all, m.state)
	}
	return all
}

// place is where an order stands, whatever came before.
type place struct {
	state  string
	status Status
}

// reach is every place an order can come to, with one order that is there, found by trying every event at each.
func reach() map[place]Order {
	first, _ := play(begin(), nil)
	found := map[place]Order{{first.State, first.Status}: first}
	for queue := []Order{first}; len(queue) > 0; queue = queue[1:] {
		for _, e := range everyEvent() {
			next, _ := advance(queue[0], e)
			at := place{next.State, next.Status}
			if _, known := found[at]; !known {
				found[at] = next
				queue = append(queue, next)
			}
		}
	}
	return found
}

// visits is every state that an order passes on any way.
func visits() (all []string) {
	for _, o := range reach() {
		for _, e := range everyEvent() {
			next, _ := advance(o, e)
			all = append(all, states(next)...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func ended(s Status) bool { return s == Completed || s == Compensated }

func TestA14PaymentInventoryShippingCompleted(t *testing.T) {
	o, sent := play(begin(), nil, charged, reserved, shipped)
	require.Equal(t, Completed, o.Status)
	require.Equal(t, []any{
		messages.ChargePayment{OrderID: "o-1", CustomerID: "c-1", AmountCents: 2933},
		messages.ReserveStock{OrderID: "o-1", Title: 7, Quantity: 2},
		messages.ShipOrder{OrderID: "o-1", CustomerID: "c-1", Title: 7, Quantity: 2},
		messages.OrderCompleted{OrderID: "o-1", CustomerID: "c-1", AmountCents: 2933, ShipmentID: "shp-1"},
	}, bodies(sent))
	require.Equal(t, []string{
		"payment_intent", "payment_done", "inventory_intent", "inventory_done", "shipping_intent", "shipping_done", "completed",
	}, states(o))
}

func TestRefusedPaymentLeavesNothingToUndo(t *testing.T) {
	o, sent := play(begin(), nil, paymentRefused)
	require.Equal(t, Compensated, o.Status)
	require.Equal(t, messages.OrderCancelled{OrderID: "o-1", CustomerID: "c-1", Reason: "credit limit", Compensated: []string{}},
		sent[len(sent)-1].body)
	require.Len(t, sent, 2)
}

func TestA16InventoryFailureRefundsThePayment(t *testing.T) {
	o, sent := play(begin(), nil, charged, stockRefused, refunded)
	require.Equal(t, Compensated, o.Status)
	require.Equal(t, []any{
		messages.RefundPayment{OrderID: "o-1", PaymentID: "pay-1", AmountCents: 2933},
		messages.OrderCancelled{OrderID: "o-1", CustomerID: "c-1", Reason: "out of stock", Compensated: []string{"payment"}},
	}, bodies(sent[2:]))
}

// Defect 3: the pattern refunded the payment and kept the stock.
func TestDefect3ShippingFailureReleasesInventoryAndRefundsThePayment(t *testing.T) {
	o, sent := play(begin(), nil, charged, reserved, shippingRefused, released, refunded)
	require.Equal(t, Compensated, o.Status)
	require.Equal(t, []any{
		messages.ReleaseStock{OrderID: "o-1", ReservationID: "res-1"},
		messages.RefundPayment{OrderID: "o-1", PaymentID: "pay-1", AmountCents: 2933},
		messages.OrderCancelled{OrderID: "o-1", CustomerID: "c-1", Reason: "no road", Compensated: []string{"inventory", "payment"}},
	}, bodies(sent[3:]), "in reverse, one after the other")
}

func TestA17CompensationReadsEarlierResults(t *testing.T) {
	o, _ := play(begin(), nil,
		messages.PaymentCharged{PaymentID: "the payment's own id"},
		messages.StockReserved{ReservationID: "the reservation's own id"}, shippingRefused)
	require.Equal(t, "the reservation's own id", inventory.compensate(o).(messages.ReleaseStock).ReservationID)
	require.Equal(t, "the payment's own id", payment.compensate(o).(messages.RefundPayment).PaymentID)
}

// Defect 2: the pattern's compensation waited for states that no worker ever set. Every state that is derived from a
// step comes about, and a worker's answer is what brings it.
func TestDefect2EveryStateTheProcessKnowsComesAbout(t *testing.T) {
	visited := visits()
	for _, s := range steps {
		require.Subset(t, visited, []string{s.intent(), s.done(), s.refused()})
		if s.compensate != nil {
			require.Subset(t, visited, []string{s.compensateIntent(), s.compensated()})
		}
	}
	require.Subset(t, visited, []string{completed, cancelled})
}

// Defect 8: refund_intent had no way on and no way out.
func TestDefect8EveryPlaceHasAWayOnAndAWayOut(t *testing.T) {
	for at, o := range reach() {
		if ended(at.status) {
			continue
		}
		ends, parks := false, at.status == Parked
		seen := map[place]bool{at: true}
		for queue := []Order{o}; len(queue) > 0; queue = queue[1:] {
			for _, e := range everyEvent() {
				next, _ := advance(queue[0], e)
				to := place{next.State, next.Status}
				ends = ends || ended(to.status)
				parks = parks || to == place{at.state, Parked}
				if !seen[to] {
					seen[to] = true
					queue = append(queue, next)
				}
			}
		}
		require.True(t, ends, "%v: no end can be reached", at)
		require.True(t, parks, "%v: an operator never hears of it", at)
	}
}

// Defect 7: after a worker's success nothing called the orchestrator again.
func TestDefect7TheAnswerItselfLeadsToTheNextCommand(t *testing.T) {
	for at, o := range reach() {
		for name, e := range everyEvent() {
			next, m := advance(o, e)
			if next.State == at.state {
				require.Nil(t, m, "%v + %s", at, name)
				continue
			}
			require.NotNil(t, m, "%v + %s went to %s and told nobody", at, name, next.State)
			resting := slices.Contains([]string{completed, cancelled}, next.State) || strings.HasSuffix(next.State, "_intent")
			require.True(t, resting, "%v + %s stopped at %s, where nothing is awaited", at, name, next.State)
		}
	}
}

func TestA10CalledAgainTheProcessSendsNothing(t *testing.T) {
	for at, o := range reach() {
		again, m := advance(o, nil)
		require.Nil(t, m, at)
		require.Equal(t, o, again)
	}
}

func TestADuplicateChangesNothing(t *testing.T) {
	for at, o := range reach() {
		for name, e := range everyEvent() {
			once, _ := advance(o, e)
			twice, m := advance(once, e)
			require.Nil(t, m, "%v + %s twice", at, name)
			require.Equal(t, once, twice, "%v + %s twice", at, name)
		}
	}
}

func TestAnEndIsTheEnd(t *testing.T) {
	for at, o := range reach() {
		if !ended(at.status) {
			continue
		}
		for name, e := range everyEvent() {
			next, m := advance(o, e)
			require.Nil(t, m, "%v + %s", at, name)
			require.Equal(t, o, next, "%v + %s", at, name)
		}
	}
}

// Every event in every place leaves a place that the table's constraints allow, under a status that fits the state.
func TestEveryEventInEveryPlaceLeavesALegalOrder(t *testing.T) {
	legal := []string{completed, cancelled}
	for _, s := range steps {
		legal = append(legal, s.intent(), s.done(), s.refused())
		if s.compensate != nil {
			legal = append(legal, s.compensateIntent(), s.compensated())
		}
	}
	for at, o := range reach() {
		for name, e := range everyEvent() {
			next, m := advance(o, e)
			require.Contains(t, legal, next.State, "%v + %s", at, name)
			require.Equal(t, next.State == completed, next.Status == Completed)
			require.Equal(t, next.State == cancelled, next.Status == Compensated)
			require.Equal(t, o.Version, next.Version, "versions are the store's")
			for _, passed := range next.passed {
				require.Contains(t, legal, passed.state)
			}
			if m != nil {
				require.Equal(t, m.operation == "", m.outcome != "", "a command or an end")
			}
		}
	}
}

// A12: the states of a step follow from its name, in pairs, and there are no others.
func TestA12EveryIntentHasItsDone(t *testing.T) {
	visited := visits()
	for _, state := range visited {
		if step, compensation := strings.CutSuffix(state, "_compensate_intent"); compensation {
			require.Contains(t, visited, step+"_compensated")
		} else if step, forward := strings.CutSuffix(state, "_intent"); forward {
			require.Subset(t, visited, []string{step + "_done", step + "_refused"})
		}
	}
	require.Len(t, visited, 3*3+2*2+2, "intent, done, refused of three steps, two compensations, two ends")
}

func TestAParkedOrderIsTakenUpByTheAnswer(t *testing.T) {
	o, sent := play(begin(), nil, charged, exhausted{"inventory", envelope.Forward, "gave up"})
	require.Equal(t, Parked, o.Status)
	require.Equal(t, "inventory_intent", o.State)
	require.Equal(t, "gave up", o.Reason)
	require.Len(t, sent, 2, "nothing is sent for a parked order")

	o, _ = play(o, reserved, shipped)
	require.Equal(t, Completed, o.Status)
	require.Empty(t, o.Reason)
}

func TestACompensationThatParksKeepsTheReason(t *testing.T) {
	o, _ := play(begin(), nil, charged, stockRefused, exhausted{"payment", envelope.Compensate, "gave up"})
	require.Equal(t, Parked, o.Status)
	require.Equal(t, "payment_compensate_intent", o.State)
	require.Equal(t, "out of stock; then gave up", o.Reason)

	o, _ = play(o, refunded)
	require.Equal(t, Compensated, o.Status)
}

// A forward command that was given up, redriven and answered must not park the order when its exhausted event comes late.
func TestALateExhaustedEventParksOnlyWhatItIsAbout(t *testing.T) {
	o, _ := play(begin(), nil, charged, stockRefused)
	o, _ = advance(o, exhausted{"payment", envelope.Forward, "gave up"})
	require.Equal(t, Running, o.Status)
	o, _ = advance(o, exhausted{"inventory", envelope.Forward, "gave up"})
	require.Equal(t, Running, o.Status)
}

// The whole process, one line per change: what is not in the file changes nothing.
func TestTransitions(t *testing.T) {
	var lines []string
	for at, o := range reach() {
		for _, name := range eventNames() {
			was := len(o.passed)
			next, m := advance(o, everyEvent()[name])
			if len(next.passed) == was {
				continue
			}
			line := fmt.Sprintf("%s %s + %s ->", at.state, at.status, name)
			for _, passed := range next.passed[was:] {
				line += fmt.Sprintf(" %s", passed.state)
			}
			line += fmt.Sprintf(" %s", next.Status)
			if m != nil {
				line += fmt.Sprintf(": %s", strings.TrimPrefix(fmt.Sprintf("%T", m.body), "order."))
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	const golden = "testdata/transitions.golden"
	if *rewrite {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}
