package sagatest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
)

// Start is the time at which a fixture's clock begins.
var Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A Fixture runs sagas of its definitions. Its methods return it, so that calls can be chained. It is not safe for concurrent
// use.
type Fixture struct {
	t       testing.TB
	memory  *decisions.Memory
	defs    map[string]*saga.Definition
	ids     int
	sent    []Command // all commands, in order
	since   outcome   // the effects of the last When
	history []string
	states  map[string]saga.State
}

// outcome holds the effects of a When.
type outcome struct {
	commands []Command
	events   []Emitted
	met      []string
	moved    []string // the ids of the sagas that changed, once per change
	refused  string
}

// New returns a fixture without any saga. It fails the test if the definitions cannot be used together.
func New(t testing.TB, defs ...*saga.Definition) *Fixture {
	t.Helper()
	f, err := newFixture(t, defs)
	if err != nil {
		t.Fatalf("sagatest: %v", err)
	}
	return f
}

func newFixture(t testing.TB, defs []*saga.Definition) (*Fixture, error) {
	memory, err := decisions.NewMemory(Start, defs...)
	if err != nil {
		return nil, err
	}
	f := &Fixture{
		t: t, memory: memory, defs: make(map[string]*saga.Definition), states: make(map[string]saga.State),
	}
	for _, d := range defs {
		f.defs[d.Spec().Saga] = d
	}
	memory.OnDecided = f.decided
	return f, nil
}

// decided records the effects of a decision.
func (f *Fixture) decided(d decisions.Decided) {
	f.note("%s: %s", d.ID, told(d))
	if d.State.Version > f.states[d.ID].Version {
		f.since.moved = append(f.since.moved, d.ID)
	}
	f.states[d.ID] = d.State
	for _, c := range d.Effects.Commands {
		sent := Command{d.ID, c.Step, c.Operation, c.Hop, c.Type, c.Fields, c.Epoch}
		f.sent = append(f.sent, sent)
		f.since.commands = append(f.since.commands, sent)
		f.note("    command %s", sent)
	}
	for _, e := range d.Effects.Events {
		out := Emitted{d.ID, e.Hop, e.Type, "success", e.Fields}
		if e.Failure {
			out.Outcome = "failure"
		}
		f.since.events = append(f.since.events, out)
		f.note("    event %s", out)
	}
	for _, a := range d.Effects.Scheduled {
		f.note("    deadline %s in %s %s", a.Name, saga.Duration(a.At.Sub(f.memory.Clock())), shown(a.Payload))
	}
	f.since.met = append(f.since.met, d.Effects.Met...)
}

// told returns a decision as a line of the history.
func told(d decisions.Decided) string {
	switch {
	case d.Effects.Ignored != "":
		return line(event(d.Event), "is ignored:", d.Effects.Ignored)
	case d.Effects.Refused != "":
		return line(event(d.Event), "is refused:", d.Effects.Refused)
	}
	words := []string{event(d.Event), "─►", string(d.State.Status)}
	for _, m := range d.Effects.Moments {
		why := ""
		if m.Why != "" {
			why = "(" + m.Why + ")"
		}
		words = append(words, line(m.What, m.Step, why)+",")
	}
	return strings.TrimSuffix(line(words...), ",")
}

func event(e saga.Event) string {
	return line(string(e.Kind), e.Step, e.Operation, e.Outcome, e.Deadline, prefixed("by ", e.Actor))
}

func (f *Fixture) note(format string, args ...any) {
	at := saga.Duration(f.memory.Clock().Sub(Start)).String()
	f.history = append(f.history, strings.TrimRight(fmt.Sprintf("%10s  %s", at, fmt.Sprintf(format, args...)), " "))
}

// Given publishes messages whose effects no Then checks.
func (f *Fixture) Given(messages ...Message) *Fixture {
	f.t.Helper()
	f.publish(messages)
	f.since = outcome{}
	return f
}

// WhenPublished publishes messages, in this order.
func (f *Fixture) WhenPublished(messages ...Message) *Fixture {
	f.t.Helper()
	f.since = outcome{}
	f.publish(messages)
	return f
}

func (f *Fixture) publish(messages []Message) {
	f.t.Helper()
	for _, m := range messages {
		if err := f.take(m); err != nil {
			f.fail("%s: %v", line(m.Hop, m.Type), err)
		}
	}
}

func (f *Fixture) take(m Message) error {
	fields, err := read(m.Fields)
	if err != nil {
		return err
	}
	if m.Step != "" {
		if err := f.address(&m); err != nil {
			return err
		}
	}
	if m.ID == "" {
		f.ids++
		m.ID = fmt.Sprintf("m-%d", f.ids)
	}
	f.note("%s", line("message", prefixed("from ", m.Hop), m.Type, m.Outcome, prefixed("key ", m.Key),
		prefixed("for ", m.Saga), shown(fields)))
	return f.memory.Take(decisions.Message{
		ID: m.ID, Hop: m.Hop, Type: m.Type, Key: m.Key, Outcome: m.Outcome, Reason: m.Reason, Fields: fields,
		SagaID: m.Saga, SagaStep: m.Step, SagaOperation: m.Operation, Epoch: m.epoch,
	})
}

// address finds the command that m answers, and fills in the fields of m that are not set.
func (f *Fixture) address(m *Message) error {
	for _, c := range slices.Backward(f.sent) {
		if c.Step != m.Step || !same(m.Saga, c.Saga) || !same(m.Operation, c.Operation) {
			continue
		}
		m.Saga, m.Operation, m.epoch = c.Saga, c.Operation, c.epoch
		if m.Hop == "" {
			m.Hop = c.Hop
		}
		if m.Key == "" {
			m.Key = f.states[c.Saga].Key
		}
		return nil
	}
	return fmt.Errorf("no command of %s was sent that it could answer", line(m.Saga, "step", m.Step, m.Operation))
}

// WhenStarted starts a saga by a call. Fields are the variables it starts with.
func (f *Fixture) WhenStarted(name string, fields Fields) *Fixture {
	f.t.Helper()
	f.since = outcome{}
	if _, err := f.memory.Start(name, fields); err != nil {
		f.fail("start of saga %s: %v", name, err)
	}
	return f
}

// WhenTimePasses advances the virtual clock by d. Each deadline that becomes due in this time fires when the clock reaches its time.
func (f *Fixture) WhenTimePasses(d time.Duration) *Fixture {
	f.t.Helper()
	f.since = outcome{}
	if d < 0 {
		f.fail("time does not go back: %s", d)
	}
	f.note("%s pass", saga.Duration(d))
	if err := f.memory.Advance(d); err != nil {
		f.fail("while %s passed: %v", d, err)
	}
	return f
}

// WhenActs applies an operator's action to the saga of that id, such as approval/a-1. If the action is refused, ThenRefused
// holds.
func (f *Fixture) WhenActs(id string, action saga.Event) *Fixture {
	f.t.Helper()
	f.since = outcome{}
	fields, err := read(action.Fields)
	if err != nil {
		f.fail("%s of %s: %v", action.Kind, id, err)
	}
	action.Fields = fields
	_, err = f.memory.Act(id, action)
	switch {
	case errors.Is(err, decisions.ErrRefused):
		f.since.refused = err.Error()
	case err != nil:
		f.fail("%s of %s: %v", action.Kind, id, err)
	}
	return f
}

// State returns the state of the saga of that id. It fails the test if there is none.
func (f *Fixture) State(id string) saga.State {
	f.t.Helper()
	for _, s := range f.memory.Sagas() {
		if s.ID() == id {
			return s
		}
	}
	f.fail("there is no saga %s", id)
	return saga.State{}
}

// History returns everything that has happened, one entry per line, with the time since Start.
func (f *Fixture) History() string { return strings.Join(f.history, "\n") }

func (f *Fixture) fail(format string, args ...any) {
	f.t.Helper()
	f.t.Fatalf("%s\n\nwhat happened:\n%s", fmt.Sprintf(format, args...), f.History())
}
