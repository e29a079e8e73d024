package explore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/explore"
	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/internal/saga/verify"
	"github.com/troupe-go/troupe/saga"
)

// sane returns an order saga without a mistake: a payment, the stock, and shipping, the pivot.
func sane() saga.Spec {
	step := func(hop, command, done, refused, undo, undone string, needs ...string) saga.Step {
		st := saga.Step{
			Name: hop, Needs: needs, Timeout: saga.Duration(10 * time.Minute),
			Command: &saga.Command{Hop: hop, Type: command, Input: saga.Mapping{"id": "data.id"}},
			Success: []saga.Answer{{Event: done}}, Failure: []saga.Answer{{Event: refused}},
		}
		if undo != "" {
			st.Compensation = &saga.Compensation{
				Command: &saga.Command{Hop: hop, Type: undo, Input: saga.Mapping{"id": "data.id"}}, Success: []saga.Answer{{Event: undone}},
			}
		}
		return st
	}
	spec := saga.Spec{
		Saga: "order", Version: 1, Key: "id",
		Data: map[string]saga.Type{"id": saga.String, "cents": saga.Int, "payment_id": saga.String, "shipment_id": saga.String},
		Steps: []saga.Step{
			step("payment", "Charge", "Charged", "ChargeRefused", "Refund", "Refunded"),
			step("stock", "Reserve", "Reserved", "SoldOut", "Release", "Released", "payment"),
			step("shipping", "Ship", "Shipped", "NotShipped", "", "", "stock"),
		},
	}
	spec.Steps[0].Success[0].Set = saga.Mapping{"payment_id": "event.payment_id"}
	spec.Steps[2].Success[0].Set = saga.Mapping{"shipment_id": "event.shipment_id"}
	spec.Steps[2].Pivot = true
	return spec
}

func waits(name, event string, needs ...string) saga.Step {
	return saga.Step{Name: name, Needs: needs, Timeout: saga.Duration(24 * time.Hour), Success: []saga.Answer{{Hop: "desk", Event: event}}}
}

func mails(needs ...string) saga.Step {
	return saga.Step{
		Name: "mail", Needs: needs, Retriable: true, Irreversible: "a mail", Timeout: saga.Duration(10 * time.Minute),
		Command: &saga.Command{Hop: "mail", Type: "Send"}, Success: []saga.Answer{{Event: "Sent"}},
	}
}

func guard(step int, when string) func(s *saga.Spec) {
	return func(s *saga.Spec) { s.Steps[step].When = when }
}

// A planted mistake is a change of the sane saga, with the tool that finds it: define, verify or explore, a colon, and a part of the
// finding.
type planted struct {
	name  string
	plant func(s *saga.Spec)
	found string
}

var mistakes = []planted{
	{"a compensation reads a later variable", func(s *saga.Spec) { s.Steps[0].Compensation.Command.Input["s"] = "data.shipment_id" }, "verify: unset-variable"},
	{"a compensation reads a parallel step's variable", func(s *saga.Spec) {
		s.Steps[1].Needs = nil
		s.Steps[1].Compensation.Command.Input["p"] = "data.payment_id"
	}, "verify: unset-variable"},
	{"a guard reads a later variable", guard(0, "data.shipment_id != ''"), "verify: unset-variable"},
	{"the lock reads a later variable", func(s *saga.Spec) { s.Lock = "data.payment_id" }, "verify: unset-variable"},
	{"an event finds the saga by a later variable", func(s *saga.Spec) {
		st := waits("paid-out", "Settled", "payment")
		st.Success[0].By = &saga.Association{Variable: "shipment_id", Field: "id"}
		s.Steps[1].Needs = []string{"paid-out"}
		s.Steps = append(s.Steps, st)
	}, "verify: unset-variable"},
	{"two steps set one variable", func(s *saga.Spec) { s.Steps[1].Success[0].Set = saga.Mapping{"payment_id": "event.x"} }, "define: is set by step payment already"},
	{"steps that need each other", func(s *saga.Spec) { s.Steps[0].Needs = []string{"shipping"} }, "define: comes before itself"},
	{"a guard of the wrong type", guard(1, "data.cents == '100'"), "define: no matching overload"},
	{"a guard that is no condition", guard(1, "data.cents"), "define: is of type int, want bool"},
	{"the key is no text", func(s *saga.Spec) { s.Key = "cents" }, "define: want a variable of data of type string"},
	{"a deadline until an unknown step", func(s *saga.Spec) {
		s.Deadlines = []saga.Deadline{{Name: "late", After: 1, Until: []string{"shiping"}, Then: saga.ThenPark}}
	}, "define: there is no step"},
	{"a join of which one branch is guarded off", func(s *saga.Spec) {
		st := mails("payment")
		st.When = "data.cents > 100"
		s.Steps[2].Needs = []string{"stock", "mail"}
		s.Steps = append(s.Steps, st)
	}, "verify: join-incomplete"},
	{"a guard that never holds", guard(1, "data.payment_id == 'a' && data.payment_id == 'b'"), "verify: unreachable-step"},
	{"a guard that calculates and never holds", guard(1, "data.cents * 2 > data.cents * 4 + 10000000 && data.cents > 0"), "explore: step stock never begins"},
	{"two branches with a gap", func(s *saga.Spec) {
		s.Steps[1].When = "data.cents < 10"
		st := mails("payment")
		st.When = "data.cents > 10"
		s.Steps[2].Needs, s.Steps[2].Join = []string{"stock", "mail"}, saga.Merge
		s.Steps = append(s.Steps, st)
	}, "verify: guard-gap"},
	{"two branches with a calculated gap", func(s *saga.Spec) {
		s.Steps[1].When = "data.cents / 2 > 100"
		st := mails("payment")
		st.When = "data.cents / 2 < 100"
		s.Steps[2].Needs, s.Steps[2].Join = []string{"stock", "mail"}, saga.Merge
		s.Steps = append(s.Steps, st)
	}, "verify: guard-gap"},
	{"a guard that skips the rest, with the payment done", guard(1, "data.cents > 5"), "verify: pivot-skipped"},
	{"the first step's guard skips all", guard(0, "data.cents > 0"), "verify: pivot-skipped"},
	{"branches that overlap, joined by the first", func(s *saga.Spec) {
		st := mails("payment")
		s.Steps[2].Needs, s.Steps[2].Join = []string{"stock", "mail"}, saga.First
		s.Steps = append(s.Steps, st)
	}, "verify: first-goes-on"},
	{"a guard that overflows", guard(1, "data.cents * 1000000000000 > 5"), "explore: integer overflow"},
	{"a guard that divides by zero", guard(1, "1000 / data.cents > 10"), "explore: division by zero"},
	{"a compensation that divides by zero", func(s *saga.Spec) { s.Steps[0].Compensation.Command.Input["n"] = "1000 / data.cents" }, "explore: division by zero"},
	{"a guard that always parks", guard(1, "1 / (data.cents - data.cents) > 0"), "explore: no execution completes the saga"},
	{"a guard reads inside a value that has no such part", func(s *saga.Spec) {
		s.Data["customer"] = saga.Any
		s.Steps[1].When = "data.customer.zip == '8000'"
	}, "explore: no such key"},
	{"an answer's field is read inside", func(s *saga.Spec) { s.Steps[0].Success[0].Set["payment_id"] = "event.payment.id" }, "explore: no such key"},
	{"a misspelt field of an answer", func(s *saga.Spec) { s.Steps[0].Success[0].Set["payment_id"] = "event.paymentId" }, "verify: message-field"},
	{"a misspelt field of an answer, in has()", func(s *saga.Spec) {
		s.Steps[0].Success[0].Set["payment_id"] = "has(event.paymentId) ? event.payment_id : ''"
	}, "verify: message-field"},
	{"a misspelt field of a refusal", func(s *saga.Spec) { s.Steps[0].Failure[0].Reason = "event.raeson" }, "verify: message-field"},
	{"a misspelt field of a command", func(s *saga.Spec) { s.Steps[0].Command.Input["cent"] = "data.cents" }, "verify: message-field"},
	{"a command without a field that its schema requires", func(s *saga.Spec) { s.Steps[0].Command.Input = nil }, "verify: message-field"},
	{"a number of an answer where the variable is a text", func(s *saga.Spec) { s.Steps[0].Success[0].Set["payment_id"] = "event.amount" }, "verify: message-field"},
	{"a text of an answer is added to a number", func(s *saga.Spec) {
		s.Data["total"] = saga.Double
		s.Steps[0].Success[0].Set["total"] = "1.5 + event.payment_id"
	}, "verify: message-field"},
	{"a condition compares an answer's number with a text", func(s *saga.Spec) {
		other := saga.Answer{Event: "Charged", Set: s.Steps[0].Success[0].Set}
		s.Steps[0].Success[0].When = "event.amount == '100'"
		s.Steps[0].Success = append(s.Steps[0].Success, other)
	}, "verify: message-field"},
	{"dates as texts, with the day first", func(s *saga.Spec) {
		s.Data["departure"] = saga.String
		s.Steps[1].When = "data.departure < '9.12.2026'"
		s.Steps[2].Needs, s.Steps[2].Join = []string{"payment", "stock"}, saga.Merge
	}, "verify: date-order"},
	{"a condition of the only success chooses by a bool", func(s *saga.Spec) { s.Steps[0].Success[0].When = "event.ok" }, "verify: guard-gap"},
	{"an answer with a condition and no other", func(s *saga.Spec) { s.Steps[0].Success[0].When = "event.amount == data.cents" }, "explore: does not know the answer"},
	{"success and failure by one event", func(s *saga.Spec) {
		s.Steps[0].Success[0].Event, s.Steps[0].Success[0].When = "Answered", "event.ok"
		s.Steps[0].Failure[0].Event = "Answered"
	}, "verify: guard-gap"},
	{"two approvals by one event, one after the other", func(s *saga.Spec) {
		s.Steps = append(s.Steps, waits("first", "Approved", "payment"), waits("second", "Approved", "first"))
		s.Steps[1].Needs = []string{"second"}
	}, "explore: no execution completes the saga"},
	{"two approvals by one event, at once", func(s *saga.Spec) {
		s.Steps = append(s.Steps, waits("first", "Approved", "payment"), waits("second", "Approved", "payment"))
		s.Steps[1].Needs = []string{"first", "second"}
	}, "verify: event-expected-twice"},
	{"a step awaits the answer to another step", func(s *saga.Spec) {
		st := waits("confirmed", "Charged", "payment")
		st.Success[0].Hop = "payment"
		s.Steps[1].Needs = []string{"confirmed"}
		s.Steps = append(s.Steps, st)
	}, "verify: event-expected-twice"},
	{"the answer to a step starts the saga", func(s *saga.Spec) {
		s.Start = []saga.Start{{Hop: "payment", Event: "Charged", Set: saga.Mapping{"id": "event.payment_id", "cents": "event.cents"}}}
	}, "verify: start-awaited"},
	{"a time-out below the retries", func(s *saga.Spec) {
		s.Steps[0].Timeout, s.Steps[0].Retry = saga.Duration(30*time.Second), &saga.Retry{Attempts: 6, Initial: saga.Duration(time.Second), Cap: saga.Duration(30 * time.Second), Try: saga.Duration(10 * time.Second)}
	}, "verify: timeout-below-retries"},
	{"a compensation's time-out below its retries", func(s *saga.Spec) {
		c := s.Steps[0].Compensation
		c.Timeout, c.Retry = saga.Duration(10*time.Second), &saga.Retry{Attempts: 9, Initial: saga.Duration(time.Second), Cap: saga.Duration(30 * time.Second), Try: saga.Duration(10 * time.Second)}
	}, "verify: timeout-below-retries"},
	{"the saga's time-out below its steps'", func(s *saga.Spec) { s.Timeout = saga.Duration(15 * time.Minute) }, "verify: saga-timeout-below-steps"},
	{"a step without a time-out", func(s *saga.Spec) { s.Steps[0].Timeout = 0 }, "verify: no-timeout"},
	{"another hop undoes a step in doubt", func(s *saga.Spec) { s.Steps[0].Compensation.Command.Hop = "refunds" }, "verify: compensation-elsewhere"},
	{"a compensation behind the pivot", func(s *saga.Spec) {
		st := s.Steps[1]
		st.Name, st.Needs = "invoice", []string{"shipping"}
		s.Steps = append(s.Steps, st)
	}, "verify: compensable-after-pivot"},
	{"a step behind the pivot may fail", func(s *saga.Spec) {
		st := mails("shipping")
		st.Retriable = false
		s.Steps = append(s.Steps, st)
	}, "verify: fallible-after-pivot"},
	{"a step parallel to the pivot may fail", func(s *saga.Spec) { s.Steps[2].Needs = []string{"payment"} }, "verify: pivot-parallel"},
	{"a deadline that a guarded step behind the pivot cancels", func(s *saga.Spec) {
		st := mails("shipping")
		st.When = "data.cents > 100"
		s.Steps = append(s.Steps, st)
		s.Deadlines = []saga.Deadline{{Name: "slow", After: saga.Duration(time.Minute), Until: []string{"mail"}, Then: saga.ThenCompensate}}
	}, "verify: back-after-pivot"},
	{"a step behind the pivot compensates if it is given up", func(s *saga.Spec) {
		st := mails("shipping")
		st.Exhausted = saga.CompensateThen
		s.Steps = append(s.Steps, st)
	}, "verify: back-after-pivot"},
	{"a deadline counts from the pivot and compensates", func(s *saga.Spec) {
		s.Deadlines = []saga.Deadline{{Name: "never", After: saga.Duration(100 * time.Hour), Since: "shipping", Then: saga.ThenCompensate}}
	}, "verify: back-after-pivot"},
	{"an end that always comes before a step", func(s *saga.Spec) {
		s.Ends = []saga.End{{When: "has(data.payment_id)", Then: saga.ThenComplete}}
	}, "verify: unreachable-step"},
	{"a reminder of an approval that is skipped", func(s *saga.Spec) {
		st := waits("approved", "Approved", "payment")
		st.When = "data.cents > 100"
		s.Steps = append(s.Steps, st)
		s.Steps[1].Needs, s.Steps[1].Join = []string{"approved", "payment"}, saga.Merge
		s.Deadlines = []saga.Deadline{{Name: "remind", After: saga.Duration(time.Minute), Until: []string{"approved"}, Emit: []saga.Emit{{Event: "PleaseApprove"}}}}
	}, "verify: deadline-not-cancelled"},
	{"a variable of an optional step is read", func(s *saga.Spec) {
		s.Steps[0].Optional = true
		s.Steps[1].Command.Input["p"] = "data.payment_id"
	}, "verify: unset-variable"},
	{"a quorum that is never reached", func(s *saga.Spec) {
		st := mails()
		s.Steps[0].When, st.When = "data.cents > 5", "data.cents <= 5"
		s.Steps[1].Needs, s.Steps[1].AtLeast = []string{"payment", "mail"}, 2
		s.Steps = append(s.Steps, st)
	}, "verify: join-never"},
}

// messages are the schemas of the sane saga's messages.
var messages = map[string]*expr.Shape{
	"Charge":        {Fields: map[string]*expr.Shape{"id": {Type: expr.String}}, Required: []string{"id"}},
	"Charged":       {Fields: map[string]*expr.Shape{"payment_id": {Type: expr.String}, "payment": nil, "amount": {Type: expr.Int}, "ok": {Type: expr.Bool}, "cents": {Type: expr.Int}}},
	"ChargeRefused": {Fields: map[string]*expr.Shape{"reason": {Type: expr.String}}},
}

// noMistakes are changes of the sane saga that look like mistakes and are none.
var noMistakes = []planted{
	{name: "an upper bound of a text", plant: func(s *saga.Spec) {
		s.Data["grade"] = saga.String
		s.Steps[1].When = "data.grade <= 'b'"
		s.Steps = append(s.Steps, saga.Step{Name: "manual", Needs: []string{"payment"}, When: "data.grade > 'b'"})
		s.Steps[2].Needs, s.Steps[2].Join = []string{"stock", "manual"}, saga.Merge
	}},
	{name: "dates with the year first", plant: func(s *saga.Spec) {
		s.Data["departure"] = saga.String
		s.Steps[1].When = "data.departure < '2026-12-01'"
		s.Steps[2].Needs, s.Steps[2].Join = []string{"payment", "stock"}, saga.Merge
	}},
	{name: "two pivots, of which one runs", plant: func(s *saga.Spec) {
		pickup := s.Steps[2]
		pickup.Name, pickup.When, pickup.Success = "pickup", "data.cents <= 100", []saga.Answer{{Event: "Handed"}}
		s.Steps[2].When = "data.cents > 100"
		s.Steps = append(s.Steps, pickup)
	}},
	{name: "the same command in two steps", plant: func(s *saga.Spec) {
		second := s.Steps[0]
		second.Name, second.Needs, second.Success = "second", []string{"payment"}, []saga.Answer{{Event: "Charged"}}
		s.Steps[1].Needs = []string{"second"}
		s.Steps = append(s.Steps, second)
	}},
	{name: "a retriable step with a time-out behind the pivot", plant: func(s *saga.Spec) { s.Steps = append(s.Steps, mails("shipping")) }},
	{name: "an end that parks for an approval", plant: func(s *saga.Spec) {
		s.Ends = []saga.End{{When: "data.cents > 1000000", Then: saga.ThenPark, Reason: "'a person must approve'"}}
	}},
	{name: "steps that need no compensation", plant: func(s *saga.Spec) {
		for i := range s.Steps {
			s.Steps[i].Compensation, s.Steps[i].Pivot, s.Steps[i].Irreversible = nil, false, "it changes nothing"
		}
	}},
	{name: "an event that finds the saga by a variable of the start", plant: func(s *saga.Spec) {
		s.Data["settlement_id"] = saga.String
		st := waits("paid-out", "Settled", "payment")
		st.Success[0].By = &saga.Association{Variable: "settlement_id", Field: "id"}
		s.Steps[1].Needs = []string{"paid-out"}
		s.Steps = append(s.Steps, st)
	}},
	{name: "a whole number of an answer times another number", plant: func(s *saga.Spec) {
		s.Data["price"], s.Data["total"] = saga.Double, saga.Double
		s.Steps[0].Success[0].Set["total"] = "data.price * event.amount"
	}},
	{name: "an answer's field by its name in brackets", plant: func(s *saga.Spec) {
		s.Steps[0].Success[0].Set["payment_id"] = "'payment_id' in event ? event['payment_id'] : ''"
	}},
	{name: "a calculated condition and its opposite", plant: func(s *saga.Spec) {
		s.Steps[1].When = "data.cents / 2 > 100"
		s.Steps = append(s.Steps, saga.Step{Name: "small", Needs: []string{"payment"}, When: "data.cents / 2 <= 100"})
		s.Steps[2].Needs, s.Steps[2].Join = []string{"stock", "small"}, saga.Merge
	}},
	{name: "a large input", plant: func(s *saga.Spec) {
		s.Completed = []saga.Emit{{Event: "Done", Input: saga.Mapping{"x": "[0].map(v, [v, v, v]).map(v, [v, v, v])"}}}
	}},
}

// TestSoundDefinitionsHaveNoFindings checks the changes that look like mistakes.
func TestSoundDefinitionsHaveNoFindings(t *testing.T) {
	t.Parallel()
	for _, m := range noMistakes {
		spec := sane()
		m.plant(&spec)
		require.Empty(t, findings(t, spec), m.name)
	}
}

// findings returns the findings of each tool, prefixed by its name.
func findings(t *testing.T, spec saga.Spec) (all []string) {
	d, err := saga.Define(spec)
	if err != nil {
		return []string{"define: " + err.Error()}
	}
	for _, f := range verify.Definition(d, verify.Options{Types: messages}) {
		all = append(all, "verify: "+f.Rule+": "+f.Text)
	}
	r, err := explore.Explore(t.Context(), d, explore.Config{})
	require.NoError(t, err)
	if r.Counterexample != nil {
		all = append(all, "explore: "+r.Counterexample.Problem)
	}
	for _, line := range r.Lines() {
		all = append(all, "explore: "+line)
	}
	return all
}

// TestThePlantedMistakesThatAreFound prints which tool finds which mistake (go test -v).
func TestThePlantedMistakesThatAreFound(t *testing.T) {
	t.Parallel()
	require.Empty(t, findings(t, sane()), "the definition in which the mistakes are planted")
	var table strings.Builder
	for _, m := range mistakes {
		spec := sane()
		m.plant(&spec)
		all := findings(t, spec)
		tool, part, _ := strings.Cut(m.found, ": ")
		k := slices.IndexFunc(all, func(f string) bool { return strings.HasPrefix(f, tool+": ") && strings.Contains(f, part) })
		require.GreaterOrEqual(t, k, 0, "%s: want %s, found %s", m.name, m.found, strings.Join(all, "\n"))
		says, _, _ := strings.Cut(all[k], "\n")
		fmt.Fprintf(&table, "%-58s  %.90s\n", m.name, says)
	}
	t.Logf("%d planted mistakes are found\n%s", len(mistakes), table.String())
}
