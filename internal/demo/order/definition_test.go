package order

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/demo/messages"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/testkit"
)

var rewrite = flag.Bool("update", false, "rewrite the golden files")

var parse = sync.OnceValues(func() (*saga.Definition, error) { return saga.Parse(definition) })

func parsed(t *testing.T) *saga.Definition {
	t.Helper()
	d, err := parse()
	require.NoError(t, err)
	return d
}

type fields = map[string]any

func answered(step, operation string, outcome envelope.Outcome, typ string, f fields) saga.Event {
	return saga.Event{
		Kind: saga.Answered, Step: step, Operation: operation, Outcome: string(outcome), Hop: step, Type: "troupe.order." + typ, Fields: f,
	}
}

// The answers of the hops to the commands of newOrder.
var (
	charged         = answered("payment", "forward", "success", "PaymentCharged", fields{"order_id": "o-1", "payment_id": "pay-1", "amount_cents": int64(2933)})
	paymentRefused  = answered("payment", "forward", "failure", "PaymentRefused", fields{"order_id": "o-1", "reason": "credit limit"})
	refunded        = answered("payment", "compensate", "success", "PaymentRefunded", fields{"order_id": "o-1", "payment_id": "pay-1", "amount_cents": int64(2933)})
	reserved        = answered("inventory", "forward", "success", "StockReserved", fields{"order_id": "o-1", "reservation_id": "res-1", "title": int64(7), "quantity": int64(2)})
	stockRefused    = answered("inventory", "forward", "failure", "StockRefused", fields{"order_id": "o-1", "reason": "out of stock"})
	released        = answered("inventory", "compensate", "success", "StockReleased", fields{"order_id": "o-1", "reservation_id": "res-1"})
	shipped         = answered("shipping", "forward", "success", "OrderShipped", fields{"order_id": "o-1", "shipment_id": "shp-1"})
	shippingRefused = answered("shipping", "forward", "failure", "ShippingRefused", fields{"order_id": "o-1", "reason": "no road"})
	answers         = []saga.Event{charged, paymentRefused, refunded, reserved, stockRefused, released, shipped, shippingRefused}
)

// exhausted returns the event with which a participant gives up a command.
func exhausted(step, operation string) saga.Event {
	e := answered(step, operation, envelope.Exhausted, "", fields{
		"handler": step, "type": "a command", "attempts": int64(8), "error": "no route",
	})
	e.Type = "troupe.Exhausted"
	return e
}

// everyEvent returns all events that an order can get, by their names in the golden file.
func everyEvent() map[string]saga.Event {
	events := map[string]saga.Event{"started": {Kind: saga.Started, Fields: newOrder("o-1").data()}}
	for _, e := range answers {
		events[strings.TrimPrefix(e.Type, "troupe.order.")] = e
	}
	for _, step := range []string{"payment", "inventory", "shipping"} {
		for _, operation := range []string{envelope.Forward, envelope.Compensate} {
			events[fmt.Sprintf("exhausted %s %s", step, operation)] = exhausted(step, operation)
		}
	}
	return events
}

// afterSetBack has, for each outcome of a forward command, the phases of its step in which a hop gives that answer only after a set back.
var afterSetBack = map[string][]saga.Phase{
	string(envelope.Success): {saga.Skipped, saga.Refused},
	string(envelope.Failure): {saga.Done, saga.CompensateIntent, saga.CompensateFailed, saga.Undone},
}

// events returns everyEvent and the deadlines that s has. It leaves out answers that come only after a database was set back: the
// success of a step that s skips or of a compensation that s never began, since the decision that sent the command is lost, and an
// answer that contradicts an earlier one.
func events(s saga.State) map[string]saga.Event {
	all := everyEvent()
	for name, e := range all {
		for _, st := range s.Steps {
			if st.Name == e.Step && (e.Operation == envelope.Forward && slices.Contains(afterSetBack[e.Outcome], st.Phase) ||
				e.Operation == envelope.Compensate && e.Outcome == string(envelope.Success) && s.Status == saga.Completed) {
				delete(all, name)
			}
		}
	}
	for _, a := range s.Deadlines {
		all["time-out "+a.Name] = saga.Event{Kind: saga.Fired, Deadline: a.Name}
	}
	return all
}

func names(events map[string]saga.Event) (all []string) {
	for name := range events {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// decide decides at a time when all deadlines have passed.
func decide(t *testing.T, s saga.State, e saga.Event) (saga.State, saga.Effects) {
	t.Helper()
	return saga.Decide(parsed(t), s, e, noon.Add(time.Duration(s.Version)*time.Hour))
}

// play returns the order after those events, and all messages that were sent, with their type and fields.
func play(t *testing.T, events ...saga.Event) (s saga.State, sent []message) {
	t.Helper()
	s, fx := decide(t, saga.State{}, saga.Event{Kind: saga.Started, Fields: newOrder("o-1").data()})
	require.Empty(t, fx.Refused)
	sent = sentOf(fx)
	for _, e := range events {
		s, fx = decide(t, s, e)
		sent = append(sent, sentOf(fx)...)
	}
	return s, sent
}

// A message is a command to a hop or an event for the customer.
type message struct {
	Type   string
	Fields fields
}

func sentOf(fx saga.Effects) (all []message) {
	for _, c := range fx.Commands {
		all = append(all, message{strings.TrimPrefix(c.Type, "troupe.order."), c.Fields})
	}
	for _, e := range fx.Events {
		all = append(all, message{strings.TrimPrefix(e.Type, "troupe.order."), e.Fields})
	}
	return all
}

// place returns the state of an order as text, without its history.
func stateName(s saga.State) string {
	text := string(s.Status)
	for _, st := range s.Steps {
		if st.Phase != saga.StepWaiting && st.Phase != saga.Skipped {
			text += fmt.Sprintf(" %s_%s", st.Name, st.Phase)
		}
	}
	return text
}

// reach returns every place that an order can reach, with one order in it, found by trying every event at each.
func reach(t *testing.T) map[string]saga.State {
	t.Helper()
	first, _ := play(t)
	found := map[string]saga.State{stateName(first): first}
	for queue := []saga.State{first}; len(queue) > 0; queue = queue[1:] {
		all := events(queue[0])
		for _, name := range names(all) {
			next, _ := decide(t, queue[0], all[name])
			if _, known := found[stateName(next)]; !known {
				found[stateName(next)] = next
				queue = append(queue, next)
			}
		}
	}
	return found
}

func TestPaymentInventoryShippingCompleted(t *testing.T) {
	t.Parallel()
	s, sent := play(t, charged, reserved, shipped)
	require.Equal(t, saga.Completed, s.Status)
	require.Equal(t, []message{
		{"ChargePayment", fields{"order_id": "o-1", "customer_id": "c-1", "amount_cents": int64(2933)}},
		{"ReserveStock", fields{"order_id": "o-1", "title": int64(7), "quantity": int64(2)}},
		{"ShipOrder", fields{"order_id": "o-1", "customer_id": "c-1", "title": int64(7), "quantity": int64(2)}},
		{"OrderCompleted", fields{"order_id": "o-1", "customer_id": "c-1", "amount_cents": int64(2933), "shipment_id": "shp-1"}},
	}, sent)
}

func TestRefusedPaymentLeavesNothingToUndo(t *testing.T) {
	t.Parallel()
	s, sent := play(t, paymentRefused)
	require.Equal(t, saga.Compensated, s.Status)
	require.Equal(t, []message{
		{"OrderCancelled", fields{"order_id": "o-1", "customer_id": "c-1", "reason": "credit limit", "compensated": []any{}}},
	}, sent[1:])
}

func TestInventoryFailureRefundsThePayment(t *testing.T) {
	t.Parallel()
	s, sent := play(t, charged, stockRefused, refunded)
	require.Equal(t, saga.Compensated, s.Status)
	require.Equal(t, []message{
		{"RefundPayment", fields{"order_id": "o-1", "payment_id": "pay-1", "amount_cents": int64(2933)}},
		{"OrderCancelled", fields{"order_id": "o-1", "customer_id": "c-1", "reason": "out of stock", "compensated": []any{"payment"}}},
	}, sent[2:])
}

// The pattern refunded the payment and kept the stock.
func TestShippingFailureReleasesInventoryAndRefundsThePayment(t *testing.T) {
	t.Parallel()
	s, sent := play(t, charged, reserved, shippingRefused, released, refunded)
	require.Equal(t, saga.Compensated, s.Status)
	require.Equal(t, []message{
		{"ReleaseStock", fields{"order_id": "o-1", "reservation_id": "res-1"}},
		{"RefundPayment", fields{"order_id": "o-1", "payment_id": "pay-1", "amount_cents": int64(2933)}},
		{"OrderCancelled", fields{"order_id": "o-1", "customer_id": "c-1", "reason": "no road", "compensated": []any{"inventory", "payment"}}},
	}, sent[3:], "in reverse, one after the other")
}

func TestCompensationReadsEarlierResults(t *testing.T) {
	t.Parallel()
	pay, reserve := charged, reserved
	pay.Fields, reserve.Fields = fields{"payment_id": "the payment's own id"}, fields{"reservation_id": "the reservation's own id"}
	_, sent := play(t, pay, reserve, shippingRefused, released)
	require.Equal(t, "the reservation's own id", sent[3].Fields["reservation_id"])
	require.Equal(t, "the payment's own id", sent[4].Fields["payment_id"])
}

// A payment in doubt is refunded although its id is unknown.
func TestAStepWithoutAnAnswerIsUndone(t *testing.T) {
	t.Parallel()
	s, sent := play(t, saga.Event{Kind: saga.Fired, Deadline: "payment.timeout"})
	require.Equal(t, saga.Compensating, s.Status)
	require.Equal(t, message{"RefundPayment", fields{"order_id": "o-1", "payment_id": "", "amount_cents": int64(2933)}}, sent[1])
}

// The pattern's compensation waited for states that no worker ever set. Here every state of a step is reached.
func TestEveryStateTheProcessKnowsComesAbout(t *testing.T) {
	t.Parallel()
	visited := phases(t)
	for _, st := range parsed(t).Spec().Steps {
		require.Subset(t, visited[st.Name], []saga.Phase{saga.Intent, saga.Done, saga.Refused, saga.GivenUp}, st.Name)
		if st.Compensation != nil { // a step in doubt is compensated at once
			require.Subset(t, visited[st.Name], []saga.Phase{saga.CompensateIntent, saga.Undone, saga.CompensateFailed}, st.Name)
		} else {
			require.Contains(t, visited[st.Name], saga.Doubt, st.Name)
		}
	}
}

// phases returns the phases that each step reaches; a phase counts if it lasts from one decision to the next.
func phases(t *testing.T) map[string][]saga.Phase {
	t.Helper()
	visited := make(map[string][]saga.Phase)
	for _, s := range reach(t) {
		for _, st := range s.Steps {
			if !slices.Contains(visited[st.Name], st.Phase) {
				visited[st.Name] = append(visited[st.Name], st.Phase)
			}
		}
	}
	return visited
}

// A12: every running phase has its end phase, and every compensated step was compensating before.
func TestEveryIntentHasItsDone(t *testing.T) {
	t.Parallel()
	for step, all := range phases(t) {
		for before, after := range map[saga.Phase]saga.Phase{saga.Intent: saga.Done, saga.CompensateIntent: saga.Undone} {
			require.Equal(t, slices.Contains(all, before), slices.Contains(all, after), "%s: %s and %s", step, before, after)
		}
	}
}

// Refund_intent had no next state and no exit.
func TestEveryPlaceHasAWayOnAndAWayOut(t *testing.T) {
	t.Parallel()
	for at, s := range reach(t) {
		if s.Ended() {
			continue
		}
		ends, parks := false, s.Status == saga.Parked
		seen := map[string]bool{at: true}
		for queue := []saga.State{s}; len(queue) > 0; queue = queue[1:] {
			for _, e := range events(queue[0]) {
				next, _ := decide(t, queue[0], e)
				ends, parks = ends || next.Ended(), parks || next.Status == saga.Parked
				if !seen[stateName(next)] {
					seen[stateName(next)] = true
					queue = append(queue, next)
				}
			}
		}
		require.True(t, ends, "%s: no end can be reached", at)
		require.True(t, parks, "%s: an operator never hears of it", at)
	}
}

// After a worker's success nothing called the orchestrator again.
func TestTheAnswerItselfLeadsToTheNextCommand(t *testing.T) {
	t.Parallel()
	for at, s := range reach(t) {
		for name, e := range events(s) {
			next, fx := decide(t, s, e)
			if stateName(next) != at && next.Status != saga.Parked {
				require.NotEmpty(t, sentOf(fx), "%s + %s went to %s and sent no message", at, name, stateName(next))
			}
		}
	}
}

func TestCalledAgainTheProcessSendsNothing(t *testing.T) {
	t.Parallel()
	for at, s := range reach(t) {
		again, fx := decide(t, s, everyEvent()["started"])
		require.NotEmpty(t, fx.Ignored, at)
		require.Empty(t, sentOf(fx), at)
		require.Equal(t, s, again)
	}
}

func TestADuplicateChangesNothing(t *testing.T) {
	t.Parallel()
	for at, s := range reach(t) {
		for name, e := range events(s) {
			once, _ := decide(t, s, e)
			twice, fx := decide(t, once, e)
			require.Empty(t, sentOf(fx), "%s + %s twice", at, name)
			require.Equal(t, once, twice, "%s + %s twice", at, name)
		}
	}
}

func TestAnEndIsTheEnd(t *testing.T) {
	t.Parallel()
	for at, s := range reach(t) {
		if !s.Ended() {
			continue
		}
		require.Empty(t, s.Deadlines, at)
		for name, e := range everyEvent() {
			next, fx := decide(t, s, e)
			require.Empty(t, sentOf(fx), "%s + %s", at, name)
			require.Equal(t, s, next, "%s + %s", at, name)
		}
	}
}

// Every message that the definition sends or reads survives its Avro schema.
func TestEveryMessageFitsItsSchema(t *testing.T) {
	t.Parallel()
	registry, err := schemas.NewRegistry(testkit.Registry(t))
	require.NoError(t, err)
	codec, err := schemas.New(t.Context(), schemas.Config{Registry: registry, Types: messages.Types()})
	require.NoError(t, err)
	known := make(map[string]bool)
	through := func(typ string, f fields) {
		t.Helper()
		text, err := json.Marshal(f)
		require.NoError(t, err)
		payload, err := codec.FromJSON(t.Context(), typ, text)
		require.NoError(t, err, typ)
		name, text, err := codec.ToJSON(t.Context(), payload.Payload)
		require.NoError(t, err)
		require.Equal(t, typ, name)
		back, err := saga.ReadFields(text)
		require.NoError(t, err)
		require.Subset(t, back, f, typ) // fields for services that react have their defaults
		known[typ] = true
	}
	for _, a := range answers {
		through(a.Type, a.Fields)
	}
	for _, s := range reach(t) {
		for _, e := range events(s) {
			_, fx := decide(t, s, e)
			for _, m := range sentOf(fx) {
				through("troupe.order."+m.Type, m.Fields)
			}
		}
	}
	_, first := play(t)
	through("troupe.order.ChargePayment", first[0].Fields)
	known["troupe.order.OrderPlaced"], known["troupe.order.OrderLate"] = true, true // in a choreography
	require.Len(t, known, len(messages.Types()), "all messages of the flow")
}

// The whole process, one line per transition: an event that is not in the file changes nothing.
func TestTransitions(t *testing.T) {
	t.Parallel()
	var lines []string
	for at, s := range reach(t) {
		for name, e := range events(s) {
			next, fx := decide(t, s, e)
			if fx.Ignored != "" {
				continue
			}
			line := fmt.Sprintf("%s + %s -> %s", at, name, stateName(next))
			for _, m := range sentOf(fx) {
				line += ": " + m.Type
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
