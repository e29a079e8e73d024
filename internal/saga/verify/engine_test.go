package verify_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/rule"
	"github.com/troupe-go/troupe/internal/saga/verify"
	"github.com/troupe-go/troupe/saga"
)

// TestTheEngineBearsOutWhatTheVerifierSays makes definitions at random, and compares the findings of the verifier with the
// results of Decide, for random answers, refusals, time-outs and actions of operators.
func TestTheEngineBearsOutWhatTheVerifierSays(t *testing.T) {
	t.Parallel()
	bearOut(t, false)
}

// TestTheEngineBearsOutWhatTheVerifierSaysOfOptionalSteps does the same for optional steps and quorums.
func TestTheEngineBearsOutWhatTheVerifierSaysOfOptionalSteps(t *testing.T) {
	t.Parallel()
	bearOut(t, true)
}

func bearOut(t *testing.T, optional bool) {
	const definitions, runs = 400, 60
	sound, clean, unsound := 0, 0, map[string]int{}
	for seed := range uint64(definitions) {
		d := random(t, rand.New(rand.NewPCG(seed, 1)), optional)
		rules, errors := make(map[string][]string), 0
		for _, f := range verify.Definition(d, verify.Options{}) {
			rules[f.Rule] = append(rules[f.Rule], f.Path)
			unsound[f.Rule]++
			if f.Severity == rule.Error {
				errors++
			}
		}
		if len(rules["unset-variable"])+len(rules["compensation-unset"]) == 0 {
			sound++
		}
		if errors == 0 {
			clean++
		}
		begun := make(map[string]bool)
		for k := range uint64(runs) {
			r := &driven{d: d, dice: rand.New(rand.NewPCG(seed, k)), mood: mood(k % 3)}
			r.drive(t)
			said := func() string { return fmt.Sprintf("seed %d, run %d:\n%s\n%v", seed, k, d.JSON(), r.log) }
			if len(rules["unset-variable"])+len(rules["compensation-unset"]) == 0 {
				require.NotContains(t, r.s.Reason, "not set", "it parks over a variable that the verifier holds for set: %s", said())
			}
			if errors == 0 && r.mood != wild {
				require.True(t, r.s.Ended(), "it neither completes nor is compensated: %s", said())
			}
			for i, ss := range r.s.Steps {
				st := d.Spec().Steps[i]
				if r.s.Status == saga.Completed && ss.Phase == saga.Intent {
					require.Contains(t, rules, "end-under-way", "%s is under way: %s", st.Name, said())
				}
				begun[st.Name] = begun[st.Name] || ss.Started > 0
				if r.s.Status != saga.Compensated || ss.Phase != saga.Done || st.Compensation != nil || st.Irreversible != "" || r.person {
					continue
				}
				require.Contains(t, rules["no-way-back"], fmt.Sprintf("steps[%d]", i), "%s stays done: %s", st.Name, said())
			}
		}
		for i, st := range d.Spec().Steps {
			never := slices.Contains(rules["unreachable-step"], fmt.Sprintf("steps[%d].when", i)) ||
				slices.Contains(rules["join-never"], fmt.Sprintf("steps[%d].needs", i))
			require.False(t, never && begun[st.Name], "seed %d: %s begins\n%s", seed, st.Name, d.JSON())
		}
	}
	require.Greater(t, clean, definitions/20, "too few have no errors for this to say anything")
	require.Greater(t, sound, definitions/10, "too few are sound for this to say anything")
	for _, rule := range []string{
		"unset-variable", "compensation-unset", "no-way-back", "unreachable-step", "join-never", "end-under-way", "pivot-twice", "pivot-parallel", "fallible-after-pivot",
	} {
		require.Positive(t, unsound[rule], rule)
	}
}

// random returns a definition of two to six steps, of which some are optional or need a quorum if optional is true.
func random(t testing.TB, dice *rand.Rand, optional bool) *saga.Definition {
	t.Helper()
	maybe := func(percent int) bool { return dice.IntN(100) < percent }
	spec := saga.Spec{Saga: "random", Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String, "a": saga.Int, "b": saga.Bool}}
	conditions := []string{
		"data.a < 10", "data.a >= 10", "data.a > 10", "data.a == 10", "data.b", "!data.b", "data.b && data.a < 10",
		"data.a < 5 && data.a > 20",
	}
	n := 2 + dice.IntN(5)
	for i := range n {
		st := saga.Step{Name: fmt.Sprintf("s%d", i), Join: []saga.Join{saga.All, saga.All, saga.First, saga.Merge}[dice.IntN(4)]}
		for k := range i {
			if maybe(40) {
				st.Needs = append(st.Needs, fmt.Sprintf("s%d", k))
			}
		}
		if maybe(40) {
			st.When = conditions[dice.IntN(len(conditions))]
		}
		out := fmt.Sprintf("out%d", i)
		spec.Data[out] = saga.Int
		gives := saga.Mapping{out: "event.n"}
		st.Command = &saga.Command{Hop: "hop", Type: "Do" + st.Name, Input: saga.Mapping{}}
		st.Success = []saga.Answer{{Event: "Done", Set: gives}}
		if maybe(15) {
			st.Success = append(st.Success, saga.Answer{Event: "DoneOtherwise"})
		}
		st.Retriable = maybe(40)
		if maybe(30) {
			st.Timeout = saga.Duration(time.Minute)
		}
		if i > 0 && maybe(30) {
			st.Command.Input["in"] = fmt.Sprintf("data.out%d", dice.IntN(i))
		}
		if i > 0 && maybe(20) {
			v := fmt.Sprintf("data.out%d", dice.IntN(i))
			st.When = fmt.Sprintf("has(%s) && %s > 1", v, v)
		}
		switch {
		case maybe(60):
			st.Compensation = &saga.Compensation{
				Command: &saga.Command{Hop: "hop", Type: "Undo" + st.Name, Input: saga.Mapping{}}, Success: []saga.Answer{{Event: "Undone"}},
			}
			if maybe(40) {
				v := fmt.Sprintf("data.out%d", dice.IntN(i+1))
				st.Compensation.Command.Input["out"] = []string{v, fmt.Sprintf("has(%s) ? %s : 0", v, v)}[dice.IntN(2)]
			}
		case maybe(40):
			st.Irreversible = "it only reads"
		case maybe(20):
			st.Pivot = true
		}
		spec.Steps = append(spec.Steps, st)
	}
	if maybe(20) {
		spec.Ends = []saga.End{{When: fmt.Sprintf("data.out%d > 1", dice.IntN(n)), Then: []saga.Then{saga.ThenComplete, saga.ThenCompensate}[dice.IntN(2)]}}
	}
	if maybe(20) {
		dl := saga.Deadline{Name: "late", After: saga.Duration(time.Minute), Then: []saga.Then{saga.ThenComplete, saga.ThenCompensate}[dice.IntN(2)]}
		if maybe(50) {
			dl.Since = fmt.Sprintf("s%d", dice.IntN(n))
		}
		if maybe(70) {
			dl.Until = []string{fmt.Sprintf("s%d", dice.IntN(n))}
		}
		spec.Deadlines = []saga.Deadline{dl}
	}
	if maybe(20) {
		spec.Timeout = saga.Duration(time.Hour)
	}
	if maybe(30) {
		spec.Completed = []saga.Emit{{Event: "Completed", Input: saga.Mapping{"out": fmt.Sprintf("data.out%d", dice.IntN(n))}}}
	}
	for i := range spec.Steps {
		st := &spec.Steps[i]
		st.Optional = optional && !st.Pivot && maybe(40)
		if optional && st.Join == saga.All && len(st.Needs) > 0 && maybe(40) {
			st.AtLeast = 1 + dice.IntN(len(st.Needs))
		}
	}
	d, err := saga.Define(spec)
	require.NoError(t, err)
	return d
}

// mood selects the events that occur.
type mood int

const (
	calm     mood = iota // everything succeeds
	refusing             // steps may also be refused
	wild                 // hops also give up, time passes and operators act
)

// driven runs a saga on the engine, with random answers.
type driven struct {
	d      *saga.Definition
	dice   *rand.Rand
	mood   mood
	person bool // an operator acted
	s      saga.State
	sent   []saga.Send
	now    time.Time
	log    []string
}

func (r *driven) take(e saga.Event) {
	var fx saga.Effects
	r.s, fx = saga.Decide(r.d, r.s, e, r.now)
	r.sent = append(r.sent, fx.Commands...)
	what := strings.Join([]string{string(e.Kind), e.Step, e.Operation, e.Outcome, e.Type, e.Deadline, "→", string(r.s.Status), r.s.Reason}, " ")
	r.log = append(r.log, what)
}

func (r *driven) drive(t testing.TB) {
	r.now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	r.take(saga.Event{Kind: saga.Started, Fields: map[string]any{
		"id": "x", "a": int64(r.dice.IntN(13) + r.dice.IntN(13)), "b": r.dice.IntN(2) == 0,
	}})
	for range 100 {
		switch {
		case r.s.Ended():
			return
		case r.mood == wild && r.dice.IntN(8) == 0 && len(r.s.Deadlines) > 0:
			due := r.s.Deadlines[r.dice.IntN(len(r.s.Deadlines))]
			r.now = due.At
			r.take(saga.Event{Kind: saga.Fired, Deadline: due.Name})
		case r.mood == wild && r.dice.IntN(30) == 0:
			r.person = true
			r.take(saga.Event{Kind: saga.ActCompensate, Actor: "eve", Reason: "she thought so"})
		case len(r.sent) > 0:
			r.answer()
		default:
			require.Equal(t, saga.Parked, r.s.Status, "it hangs: %v", r.log)
			return
		}
	}
}

// answer takes one of the sent commands and answers it.
func (r *driven) answer() {
	k := r.dice.IntN(len(r.sent))
	c := r.sent[k]
	r.sent = slices.Delete(r.sent, k, k+1)
	i := slices.IndexFunc(r.d.Spec().Steps, func(st saga.Step) bool { return st.Name == c.Step })
	st := r.d.Spec().Steps[i]
	e := saga.Event{Kind: saga.Answered, Step: c.Step, Operation: c.Operation, Hop: c.Hop, Outcome: "success"}
	e.Fields = map[string]any{"n": int64(r.dice.IntN(4))}
	switch {
	case c.Operation == "compensate":
		e.Type = "Undone"
	case r.mood != calm && !st.Retriable && r.dice.IntN(4) == 0:
		e.Outcome, e.Type = "failure", "Refused"
	case r.mood == wild && r.dice.IntN(10) == 0:
		e.Outcome, e.Type = "exhausted", "GivenUp"
	default:
		e.Type = st.Success[r.dice.IntN(len(st.Success))].Event
	}
	r.take(e)
}
