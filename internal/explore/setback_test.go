package explore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/troupe-go/troupe/saga"
)

// lossy runs one saga and its hops by chance, and sets the saga's database back once. The hops keep their barriers, and their answers
// are read again. A hop answers no second time if a command comes again by the same decision.
type lossy struct {
	r     *rand.Rand
	d     *saga.Definition
	steps map[string]saga.Step
	now   time.Time
	s     saga.State
	read  map[string]int // answers that the saga has read, by hop
	early []answered

	commands map[string][]sentOnce // by hop
	answers  map[string][]answered // by hop
	barrier  map[string]saga.Event // by step and operation: the answer
	handled  map[string]bool       // by sentOnce.id
	effect   map[string]int        // by step: 1 took effect, 2 is undone
	reported map[string]bool       // by step: an answer is a dead letter, or is ignored with a warning
	log      []string
}

type sentOnce struct {
	saga.Send
	id string
}

type answered struct {
	saga.Event
	id string
}

func runLossy(seed uint64) *lossy {
	r := rand.New(rand.NewPCG(seed, 7))
	spec := chance(r, true)
	spec.Lock = ""
	d, err := saga.Define(spec)
	if err != nil {
		panic(err)
	}
	l := &lossy{
		r: r, d: d, steps: make(map[string]saga.Step), now: time.Unix(1000, 0), read: make(map[string]int), commands: make(map[string][]sentOnce),
		answers: make(map[string][]answered), barrier: make(map[string]saga.Event), handled: make(map[string]bool),
		effect: make(map[string]int), reported: make(map[string]bool),
	}
	l.decide(saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "1", "n": r.IntN(4)}}, "start")
	for _, st := range spec.Steps {
		l.steps[st.Name] = st
		if st.Command == nil && r.IntN(3) > 0 {
			came := append(slices.Clone(st.Success), st.Failure...)[r.IntN(1+len(st.Failure))]
			e := saga.Event{Kind: saga.Observed, Hop: came.Hop, Type: came.Event, Message: came.Event}
			l.answers["event "+st.Name] = []answered{{e, e.Message}}
		}
	}
	setBackTo, setBackAt := 1+r.IntN(6), 7+r.IntN(8)
	var before lossy
	for i, idle := 0, 0; i < 400 && idle < 30; i++ {
		if i == setBackTo {
			before = lossy{s: l.s, early: slices.Clone(l.early), read: make(map[string]int)}
			for hop, n := range l.read {
				before.read[hop] = n
			}
		}
		if i == setBackAt {
			l.log = append(l.log, "the database is set back")
			l.s, l.early, l.read, l.reported, idle = before.s, before.early, before.read, make(map[string]bool), 0
		}
		moves := l.moves(idle > 8)
		if idle++; len(moves) > 0 {
			idle = 0
			moves[r.IntN(len(moves))]()
		}
	}
	for _, a := range l.early {
		l.reported[a.Step] = true
	}
	return l
}

// moves returns the moves that are possible now. A deadline is due seldom, or, if late is true and nothing else moves, at once.
func (l *lossy) moves(late bool) (all []func()) {
	for _, hop := range []string{"h0", "h1"} {
		if len(l.commands[hop]) > 0 {
			all = append(all, func() { l.perform(hop) })
		}
	}
	for _, hop := range []string{"h0", "h1", "event s0", "event s1", "event s2"} {
		if n := l.read[hop]; n < len(l.answers[hop]) {
			all = append(all, func() { l.read[hop]++; l.take(l.answers[hop][n]) })
		}
	}
	if len(l.early) > 0 && l.r.IntN(3) == 0 {
		all = append(all, func() { a := l.early[0]; l.early = slices.Clone(l.early[1:]); l.take(a) })
	}
	if len(l.s.Deadlines) > 0 && (l.r.IntN(6) == 0 || late && len(all) == 0) {
		if due := l.s.Deadlines[l.r.IntN(len(l.s.Deadlines))]; !due.Overdue {
			return []func(){func() {
				if l.now.Before(due.At) {
					l.now = due.At
				}
				l.decide(saga.Event{Kind: saga.Fired, Deadline: due.Name, Keep: true}, due.Name+strconv.Itoa(l.s.Version))
			}}
		}
	}
	return all
}

func (l *lossy) decide(e saga.Event, id string) saga.Effects {
	next, fx := saga.Decide(l.d, l.s, e, l.now)
	l.log = append(l.log, fmt.Sprintf("%s %s%s %s %s: %s %s%s", e.Kind, e.Step, e.Deadline, e.Operation, e.Type, next.Status, fx.Ignored, fx.Refused))
	l.s = next
	for _, c := range fx.Commands {
		l.commands[c.Hop] = append(l.commands[c.Hop], sentOnce{c, id + " " + c.Step + " " + c.Operation})
	}
	if fx.Refused != "" {
		l.reported[e.Step] = true
	}
	return fx
}

func (l *lossy) take(a answered) {
	if l.decide(a.Event, a.id).Early {
		l.early = append(l.early, a)
	}
}

// perform handles a hop's next command, with the barrier of package participant.
func (l *lossy) perform(hop string) {
	c := l.commands[hop][0]
	l.commands[hop] = l.commands[hop][1:]
	if l.handled[c.id] {
		return
	}
	l.handled[c.id] = true
	mine, forward := c.Step+" "+c.Operation, c.Operation == "forward"
	e, known := l.barrier[mine]
	other, otherKnown := l.barrier[c.Step+map[bool]string{true: " compensate", false: " forward"}[forward]]
	answer := func(outcome, typ string) {
		e = saga.Event{Kind: saga.Answered, Step: c.Step, Operation: c.Operation, Outcome: outcome, Type: typ, Hop: hop}
		if outcome != "exhausted" {
			l.barrier[mine] = e
		}
	}
	chance := l.r.IntN(6)
	switch st := l.steps[c.Step]; {
	case known:
	case forward && otherKnown:
		answer("failure", saga.NothingType)
	case forward && chance == 0 && len(st.Failure) > 0 && !st.Retriable:
		answer("failure", "Refused")
	case forward && chance == 1:
		answer("exhausted", "troupe.Exhausted")
	case forward:
		answer("success", "Done")
		l.effect[c.Step] = 1
	case c.Doubt && other.Outcome != "success":
		answer("success", saga.NothingType)
		if !otherKnown {
			other = e
			other.Operation, other.Outcome = "forward", "failure"
			l.barrier[c.Step+" forward"] = other
		}
	default:
		answer("success", "Undone")
		l.effect[c.Step] *= 2
	}
	e.Message = fmt.Sprintf("%s %d", hop, len(l.answers[hop]))
	if e.Type == "Done" && c.Step == "s0" {
		e.Fields = map[string]any{"ok": len(l.answers)%3 > 0}
	}
	l.answers[hop] = append(l.answers[hop], answered{e, e.Message})
}

// left returns the effect that an ended saga leaves behind without a trace, "" if none.
func (l *lossy) left() string {
	if l.s.Status != saga.Completed && l.s.Status != saga.Compensated {
		return ""
	}
	for _, ss := range l.s.Steps {
		st := l.steps[ss.Name]
		switch {
		case st.Command == nil || l.reported[ss.Name] || ss.Phase == saga.Intent:
		case ss.Phase == saga.Done && l.effect[ss.Name] == 0:
			return ss.Name + " is done, and never took effect"
		case l.effect[ss.Name] == 1 && st.Compensation != nil && (l.s.Status == saga.Compensated || ss.Phase != saga.Done):
			return fmt.Sprintf("%s took effect, and is %s", ss.Name, ss.Phase)
		}
	}
	return ""
}

// In TestASagaWhoseDatabaseIsSetBackLeavesNoEffectWithoutATrace the definitions have optional steps and quorums.
func TestASagaWhoseDatabaseIsSetBackLeavesNoEffectWithoutATrace(t *testing.T) {
	t.Parallel()
	ends := make(map[saga.Status]int)
	for seed := range uint64(40_000) {
		l := runLossy(seed)
		ends[l.s.Status]++
		if left := l.left(); left != "" {
			t.Fatalf("seed %d, the saga is %s: %s\n%s\n%s", seed, l.s.Status, left, strings.Join(l.log, "\n"), l.d.JSON())
		}
	}
	t.Log(ends)
}
