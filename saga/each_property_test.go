package saga_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

const seatFields = `"timeout":"1h","command":{"hop":"seats","type":"BookSeat"},"success":[{"event":"SeatBooked"}],"failure":[{"event":"SeatRefused"}]`

// twins returns a saga that has a step with ForEach for n items, and one that has n steps instead, of which none has a list. Both
// have a step seat that is done when all items are done.
func twins(t testing.TB, n int, more string) (each, plain *saga.Definition) {
	t.Helper()
	one := seatFields + more
	definition := func(needs, steps string) *saga.Definition {
		return parse(t, `{"saga":"flight","version":1,"key":"id","data":{"id":"string","passengers":"any"},"timeout":"5h","steps":[
{"name":"pay","command":{"hop":"pay","type":"Pay"},"success":[{"event":"Paid"}],"failure":[{"event":"PayRefused"}],
"compensation":{"command":{"hop":"pay","type":"Refund"},"success":[{"event":"Refunded"}]}},`+steps+`
{"name":"taxi","command":{"hop":"taxi","type":"Order"},"success":[{"event":"Ordered"}],"failure":[{"event":"OrderRefused"}],
"compensation":{"command":{"hop":"taxi","type":"Drop"},"success":[{"event":"Dropped"}]}},
{"name":"ticket","needs":`+needs+`,"pivot":true,"command":{"hop":"tickets","type":"Issue"},"success":[{"event":"Issued"}],"failure":[{"event":"IssueRefused"}]}]}`)
	}
	var names, steps []string
	for i := range n {
		names = append(names, fmt.Sprintf(`"seat-%d"`, i))
		steps = append(steps, fmt.Sprintf(`{"name":"seat-%d","needs":["pay"],%s},`, i, one))
	}
	if n == 0 {
		names = []string{`"pay"`}
	}
	each = definition(`["seat"]`, `{"name":"seat","needs":["pay"],"forEach":{"list":"data.passengers","as":"passenger","max":4},`+one+`},`)
	return each, definition(`["seat"]`, strings.Join(steps, "")+`{"name":"seat","needs":[`+strings.Join(names, ",")+`]},`)
}

// twin returns the name in the saga without ForEach of an item, or of a deadline of one.
func twin(name string) string {
	step, rest, is := strings.Cut(name, "[")
	if !is {
		return name
	}
	item, rest, _ := strings.Cut(rest, "]")
	return step + "-" + item + rest
}

// seen returns the parts of a decision and of its state that both sagas must have in common.
func seen(s saga.State, fx saga.Effects) string {
	var all []string
	for _, c := range fx.Commands {
		all = append(all, fmt.Sprint("send ", twin(c.Step), c.Operation, c.Epoch, c.First, c.Type, c.Doubt))
	}
	for _, ss := range s.Steps {
		if ss.Name != "seat" && ss.Phase != saga.StepWaiting && ss.Phase != saga.Skipped { // an item is not there before its step begins
			all = append(all, fmt.Sprint(twin(ss.Name), ss.Phase, ss.Epoch, ss.BackEpoch, ss.Doubt, ss.Tolerated))
		}
	}
	for _, dl := range s.Deadlines {
		all = append(all, "deadline "+twin(dl.Name))
	}
	slices.Sort(all)
	return fmt.Sprint(s.Status, s.Back, fx.Ignored != "", fx.Refused != "", fx.Early, len(fx.Moments) > 0, strings.Join(all, "; "))
}

// TestAStepWithForEachBehavesAsSoManySteps applies the same random events to a saga with ForEach and to one that has a step for
// each item, and compares every decision.
func TestAStepWithForEachBehavesAsSoManySteps(t *testing.T) {
	t.Parallel()
	undo := `,"compensation":{"command":{"hop":"seats","type":"ReleaseSeat"},"success":[{"event":"SeatReleased"}],"timeout":"1h"}`
	ends := make(map[saga.Status]int)
	for n := range 4 {
		for _, more := range []string{undo, undo + `,"optional":true`, undo + `,"exhausted":"compensate"`, `,"irreversible":"free"`, `,"optional":true,"irreversible":"free"`} {
			each, plain := twins(t, n, more)
			for seed := range uint64(60) {
				ends[walkTwins(t, rand.New(rand.NewPCG(seed, uint64(n))), each, plain, n)]++
			}
		}
	}
	for _, status := range []saga.Status{saga.Completed, saga.Compensated, saga.Parked, saga.Running, saga.Compensating} {
		require.Positive(t, ends[status], "%s: %v", status, ends)
	}
}

func walkTwins(t testing.TB, r *rand.Rand, each, plain *saga.Definition, n int) saga.Status {
	t.Helper()
	passengers := make([]any, n)
	for i := range passengers {
		passengers[i] = fmt.Sprint("p-", i)
	}
	now := noon
	var a, b saga.State
	var sent []saga.Send
	var history []string
	apply := func(e saga.Event) {
		history = append(history, fmt.Sprint(e.Kind, " ", e.Step, e.Deadline, " ", e.Operation, e.Outcome, e.Epoch))
		other := e
		other.Step, other.Deadline = twin(e.Step), twin(e.Deadline)
		var fxa, fxb saga.Effects
		a, fxa = saga.Decide(each, a, e, now)
		b, fxb = saga.Decide(plain, b, other, now)
		require.Equal(t, seen(b, fxb), seen(a, fxa), strings.Join(history, "\n"))
		sent = append(sent, fxa.Commands...)
	}
	apply(saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "f-1", "passengers": passengers}})
	answers := map[string][2]string{
		"Pay": {"Paid", "PayRefused"}, "Refund": {"Refunded", "No"}, "BookSeat": {"SeatBooked", "SeatRefused"}, "ReleaseSeat": {"SeatReleased", "No"},
		"Order": {"Ordered", "OrderRefused"}, "Drop": {"Dropped", "No"}, "Issue": {"Issued", "IssueRefused"},
	}
	for range 5 + r.IntN(30) {
		c := sent[max(0, len(sent)-1-r.IntN(6))]
		answer := saga.Event{Kind: saga.Answered, Step: c.Step, Operation: c.Operation, Epoch: c.Epoch, Hop: c.Hop}
		switch k := r.IntN(12); {
		case k < 6:
			answer.Outcome, answer.Type = "success", answers[c.Type][0]
			apply(answer)
		case k < 8:
			answer.Outcome, answer.Type = "failure", answers[c.Type][1]
			apply(answer)
		case k == 8:
			answer.Outcome, answer.Type, answer.Reason = "exhausted", "troupe.Exhausted", "gave up"
			apply(answer)
		case k == 9 && len(a.Deadlines) > 0:
			dl := a.Deadlines[r.IntN(len(a.Deadlines))]
			if now.Before(dl.At) {
				now = dl.At
			}
			apply(saga.Event{Kind: saga.Fired, Deadline: dl.Name, Keep: true})
		default:
			kinds := []saga.Kind{saga.ActRetry, saga.ActSkip, saga.ActResolve, saga.ActCompensate, saga.ActResume}
			apply(saga.Event{Kind: kinds[r.IntN(len(kinds))], Step: c.Step, Happened: r.IntN(2) == 0})
		}
		now = now.Add(time.Minute)
	}
	return a.Status
}

// TestNoMoreItemsRunThanMay applies random answers, and counts the items that run.
func TestNoMoreItemsRunThanMay(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		parallel := 1 + r.IntN(3)
		d := parse(t, fmt.Sprintf(`{"saga":"flight","version":1,"key":"id","data":{"id":"string","passengers":"any","seats":"any"},"steps":[
{"name":"seat","optional":true,"irreversible":"free","forEach":{"list":"data.passengers","as":"p","max":9,"parallel":%d},
"command":{"hop":"seats","type":"BookSeat","input":{"of":"p"}},"success":[{"event":"SeatBooked","set":{"seats":"event.of"}}],"failure":[{"event":"SeatRefused"}]}]}`, parallel))
		passengers := make([]any, r.IntN(10))
		for i := range passengers {
			passengers[i] = int64(i)
		}
		want := make([]any, len(passengers))
		s, fx := saga.Decide(d, saga.State{}, saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "f-1", "passengers": passengers}}, noon)
		open := fx.Commands
		for len(open) > 0 {
			require.LessOrEqual(t, len(open), parallel)
			k := r.IntN(len(open))
			c := open[k]
			e := saga.Event{Kind: saga.Answered, Step: c.Step, Operation: c.Operation, Outcome: "success", Hop: "seats", Type: "SeatBooked", Fields: c.Fields}
			if r.IntN(4) == 0 {
				e.Outcome, e.Type = "failure", "SeatRefused"
			} else {
				want[c.Fields["of"].(int64)] = c.Fields["of"]
			}
			s, fx = saga.Decide(d, s, e, noon)
			open = append(slices.Delete(open, k, k+1), fx.Commands...)
		}
		require.Equal(t, saga.Completed, s.Status)
		require.Equal(t, want, s.Data["seats"])
	}
}
