package sagatest

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/troupe-go/troupe/saga"
)

// Explore plays n random histories of sagas of defs: starts; answers of every kind, also repeated and late ones; awaited events,
// early and late; time; and actions of operators. Then it answers every command until each saga has ended or is parked. The test
// fails, with the history and the seed that reproduces it, unless in each history
//
//   - nothing panics, and time passes without an error;
//   - a version rises by one when the saga changes, and only then;
//   - a saga that has ended does not change, and has no deadline to come;
//   - no command is sent twice under one idempotency key;
//   - an answer that is repeated at once changes nothing;
//   - a saga's log, replayed, gives the saga;
//   - every saga ends at last, is parked, or waits for the lock that a parked one may hold.
//
// The same seed gives the same histories as long as the definitions do not change.
func Explore(t testing.TB, n int, seed uint64, defs ...*saga.Definition) reached {
	t.Helper()
	all := make(reached)
	samples := samplesOf(defs)
	for i := range n {
		f, err := newFixture(t, defs)
		if err != nil {
			t.Fatalf("sagatest: %v", err)
		}
		x := &explorer{
			Fixture: f, names: names(defs), samples: samples, rand: rand.New(rand.NewPCG(seed, uint64(i))),
			keyed: make(map[string]bool),
		}
		if wrong := x.run(); wrong != "" {
			f.fail("%s\n(history %d of seed %d)", wrong, i, seed)
		}
		x.reach(all)
	}
	return all
}

// reached holds, as the saga's type, the step and the phase, each phase that a step came to.
type reached map[string]bool

// reach adds the phases of a history.
func (x *explorer) reach(all reached) {
	for _, s := range x.memory.Sagas() {
		d := x.defs[s.Saga]
		var folded saga.State
		for _, e := range x.memory.Log(s.ID()) {
			folded, _ = saga.Decide(d, folded, e.Event, e.At)
			for _, ss := range folded.Steps {
				all[s.Saga+"/"+ss.Name+"/"+string(ss.Phase)] = true
			}
		}
	}
}

func names(defs []*saga.Definition) (all []string) {
	for _, d := range defs {
		all = append(all, d.Spec().Saga)
	}
	slices.Sort(all)
	return all
}

// An explorer plays one history.
type explorer struct {
	*Fixture
	names   []string // of the definitions
	samples map[string]*samples
	rand    *rand.Rand
	all     []saga.State // the sagas after the last step
	seen    int          // how many of f.sent have been checked
	keyed   map[string]bool
	wrong   string // describes how a repeated answer changed a saga; "" if none did
}

// outcomes holds each outcome of a command as often as it is to be chosen.
var outcomes = []string{"success", "success", "success", "failure", "exhausted"}

// These are the limits of a history.
const (
	moves  = 40  // random moves
	rounds = 200 // rounds of answering all open commands
)

func (x *explorer) run() (wrong string) {
	defer func() {
		if r := recover(); r != nil {
			wrong = fmt.Sprintf("it panicked: %v", r)
		}
	}()
	for range 1 + x.rand.IntN(moves) {
		if wrong := x.step(x.move); wrong != "" {
			return wrong
		}
	}
	for range rounds {
		if x.settled() {
			return ""
		}
		if wrong := x.step(x.settle); wrong != "" {
			return wrong
		}
	}
	var stuck []string
	for _, s := range x.all {
		if !over(s) {
			stuck = append(stuck, fmt.Sprintf("%s is %s", s.ID(), s.Status))
		}
	}
	return fmt.Sprintf("all is answered, but not every saga has ended or is parked: %s", strings.Join(stuck, ", "))
}

// over reports whether a saga has ended or needs an operator.
func over(s saga.State) bool { return s.Ended() || s.Status == saga.Parked }

// settled reports whether all sagas are over. A saga may still wait for a lock if a saga of its type is parked.
func (x *explorer) settled() bool {
	parked := make(map[string]bool)
	for _, s := range x.all {
		parked[s.Saga] = parked[s.Saga] || s.Status == saga.Parked
	}
	for _, s := range x.all {
		if !over(s) && (s.Status != saga.Waiting || !parked[s.Saga]) {
			return false
		}
	}
	return true
}

// step calls do and checks the result.
func (x *explorer) step(do func() error) string {
	before := make(map[string]saga.State)
	for _, s := range x.all {
		before[s.ID()] = s
	}
	if err := do(); err != nil {
		return err.Error()
	}
	if x.wrong != "" {
		return x.wrong
	}
	x.all = x.memory.Sagas()
	for _, s := range x.all {
		if wrong := x.check(before[s.ID()], s); wrong != "" {
			return s.ID() + ": " + wrong
		}
	}
	for _, c := range x.sent[x.seen:] {
		s := x.states[c.Saga]
		i := slices.IndexFunc(s.Steps, func(ss saga.StepState) bool { return ss.Name == c.Step })
		epoch := s.Steps[i].Epoch
		if c.Operation != "forward" {
			epoch = s.Steps[i].BackEpoch
		}
		id := fmt.Sprintf("%s/%s/%s/%d", c.Saga, c.Step, c.Operation, epoch)
		if x.keyed[id] {
			return "the command " + id + " was sent twice"
		}
		x.keyed[id] = true
	}
	x.seen = len(x.sent)
	return ""
}

func (x *explorer) check(before, after saga.State) string {
	log := x.memory.Log(after.ID())
	switch {
	case after.Version != len(log):
		return fmt.Sprintf("version %d after %d decisions", after.Version, len(log))
	case after.Version == before.Version && !reflect.DeepEqual(before, after):
		return fmt.Sprintf("it changed, and its version did not: %+v became %+v", before, after)
	case before.Ended() && after.Version != before.Version:
		return "it had ended, and changed"
	case after.Ended() && len(after.Deadlines) > 0:
		return "it has ended, with deadlines to come: " + after.Deadlines[0].Name
	case after.Version == before.Version:
		return ""
	}
	var again saga.State
	for _, e := range log {
		again, _ = saga.Decide(x.defs[after.Saga], again, e.Event, e.At)
	}
	if again.Version != after.Version || again.Status != after.Status || !reflect.DeepEqual(again.Steps, after.Steps) {
		return fmt.Sprintf("its log gives %+v, it is %+v", again, after)
	}
	return ""
}

// move does something that may happen at any time.
func (x *explorer) move() error {
	d := x.defs[pick(x.rand, x.names)]
	switch n := x.rand.IntN(20); {
	case n < 4:
		x.start(d)
	case n < 11:
		x.answer()
	case n < 15:
		x.event(d)
	case n < 17:
		return x.pass(time.Duration(x.rand.IntN(7200)) * time.Second)
	case n < 18:
		return x.pass(x.untilNext())
	default:
		x.person()
	}
	return nil
}

// settle answers the open commands, sends the awaited events, and lets time pass until the next deadline.
func (x *explorer) settle() error {
	for _, s := range x.all {
		if over(s) {
			continue
		}
		for i, st := range x.defs[s.Saga].Spec().Steps {
			switch s.Steps[i].Phase {
			case saga.Intent:
				if st.Command == nil && st.Call == nil {
					x.give(s, pick(x.rand, slices.Concat(st.Success, st.Failure)))
					continue
				}
				x.reply(s.ID(), st, "forward", pick(x.rand, outcomes))
			case saga.CompensateIntent:
				x.reply(s.ID(), st, "compensate", "success")
			}
		}
	}
	return x.pass(x.untilNext())
}

// start starts a saga, by an event if the definition has one, and else by a call.
func (x *explorer) start(d *saga.Definition) {
	spec, samples := d.Spec(), x.samples[d.Spec().Saga]
	if len(spec.Start) > 0 {
		s := pick(x.rand, spec.Start)
		key := pick(x.rand, keys)
		x.try(Event(s.Hop, s.Event, key, samples.fields(x.rand, key, s.Event)))
		return
	}
	fields := make(Fields)
	for name, typ := range spec.Data {
		if !samples.set[name] {
			fields[name] = samples.value(x.rand, name, typ, nil)
		}
	}
	fields[spec.Key] = pick(x.rand, keys)
	x.note("start of %s %s", spec.Saga, shown(fields))
	if _, err := x.memory.Start(spec.Saga, fields); err != nil {
		x.note("    %v", err)
	}
}

// answer answers one of the last commands, with any outcome.
func (x *explorer) answer() {
	if len(x.sent) == 0 {
		return
	}
	c := x.sent[max(0, len(x.sent)-1-x.rand.IntN(6))] // older commands are no longer answered
	spec := x.defs[x.states[c.Saga].Saga].Spec()
	i := slices.IndexFunc(spec.Steps, func(st saga.Step) bool { return st.Name == c.Step })
	x.reply(c.Saga, spec.Steps[i], c.Operation, pick(x.rand, outcomes))
}

func (x *explorer) reply(id string, st saga.Step, operation, outcome string) {
	m := Message{Step: st.Name, Saga: id, Operation: operation, Outcome: outcome, Type: "troupe.Exhausted"}
	answers := st.Failure
	switch {
	case outcome == "exhausted":
		answers = nil
		m.Reason = "it gave up"
	case outcome == "success" && operation == "forward":
		answers = st.Success
	case operation == "compensate":
		answers = nil
		if outcome == "success" {
			answers = st.Compensation.Success
		}
	}
	switch {
	case len(answers) > 0:
		m.Type = pick(x.rand, answers).Event
	case outcome == "success":
		m.Type = saga.CallDone
	case outcome == "failure":
		m.Type = saga.CallRefused
	}
	m.Fields = x.samples[x.states[id].Saga].fields(x.rand, x.states[id].Key, m.Type)
	x.try(m)
	if x.rand.IntN(4) > 0 {
		return
	}
	was := x.states[id].Version
	x.try(m)
	if now := x.states[id].Version; now != was {
		x.wrong = fmt.Sprintf("%s: an answer that came again changed it, from version %d to %d", id, was, now)
	}
}

// event sends an event that some step awaits, for a saga that exists or for none.
func (x *explorer) event(d *saga.Definition) {
	awaited := d.Awaited()
	if len(awaited) == 0 {
		return
	}
	s := saga.State{Saga: d.Spec().Saga, Key: pick(x.rand, keys)}
	if len(x.all) > 0 && x.rand.IntN(4) > 0 {
		if one := pick(x.rand, x.all); one.Saga == s.Saga {
			s = one
		}
	}
	a := pick(x.rand, awaited)
	if c := d.Spec().Cancel; c != nil && slices.ContainsFunc(c.Events, func(b saga.Answer) bool { return b.Event == a.Event }) && x.rand.IntN(24) > 0 {
		return // else most sagas would be cancelled
	}
	x.give(s, a)
}

// give sends an awaited event that fits s.
func (x *explorer) give(s saga.State, a saga.Answer) {
	fields := x.samples[s.Saga].fields(x.rand, s.Key, a.Event)
	if a.By != nil {
		if v, set := s.Data[a.By.Variable]; set {
			fields[a.By.Field] = v
		}
	}
	x.try(Event(a.Hop, a.Event, s.Key, fields))
}

// try publishes m. A message that cannot be decided would become a dead letter: it changes nothing.
func (x *explorer) try(m Message) {
	if err := x.take(m); err != nil {
		x.note("    %v", err)
	}
}

func (x *explorer) pass(d time.Duration) error {
	x.note("%s pass", saga.Duration(d))
	return x.memory.Advance(d)
}

// untilNext returns the time until the next deadline; one hour if there is none.
func (x *explorer) untilNext() time.Duration {
	next := time.Hour
	found := false
	for _, s := range x.all {
		for _, a := range s.Deadlines {
			if in := a.At.Sub(x.memory.Clock()); !a.Overdue && (!found || in < next) {
				next, found = in, true
			}
		}
	}
	return next
}

// person takes a random action of an operator, which may be refused.
func (x *explorer) person() {
	if len(x.all) == 0 {
		return
	}
	s := pick(x.rand, x.all)
	kinds := []saga.Kind{saga.ActRetry, saga.ActSkip, saga.ActResolve, saga.ActCompensate, saga.ActResume, saga.ActSet, saga.ActAbandon}
	if x.defs[s.Saga].Spec().Cancel != nil && x.rand.IntN(12) == 0 {
		kinds = append(kinds, saga.ActCancel)
	}
	act := saga.Event{Kind: pick(x.rand, kinds), Happened: x.rand.IntN(2) == 0, Actor: "somebody", Reason: "why not"}
	if len(s.Steps) > 0 {
		act.Step = pick(x.rand, s.Steps).Name
	}
	if _, err := x.memory.Act(s.ID(), act); err != nil {
		x.note("    %v", err)
	}
}

func pick[T any](r *rand.Rand, all []T) T { return all[r.IntN(len(all))] }
