package explore

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/saga"
)

// The operations of a step, as indexes.
const (
	forward    = 0
	compensate = 1
)

var operations = [2]string{"forward", "compensate"}

// Outcomes of a command.
const (
	success   = "success"
	failure   = "failure"
	exhausted = "exhausted"
)

// model has the parts of a definition that are the same in all worlds.
type model struct {
	d       *saga.Definition
	spec    saga.Spec
	steps   []step
	hops    []string
	awaited []awaited
	starts  []saga.Event
	buttons []button
	// leftOut describes the values at the start that are not searched; "" if there are none.
	leftOut string
	// early is true if the saga may complete before all of its steps have.
	early bool
}

type step struct {
	saga.Step
	// hop is the index of the hop that gets the command, by operation; -1: none.
	hop [2]int
	// sends is the message's type.
	sends [2]string
	// replies has the possible answers by operation; the first is troupe.Nothing, the last exhausted.
	replies [2][]reply
	// after has all steps that depend on it, also indirectly; before has all that it depends on.
	after  []int
	before []int
	// outputs are the values that an operator gives who skips or resolves the step.
	outputs map[string]any
	// at is the index in the definition of the step, or of the step that the item belongs to.
	at int
	// of, for an item, is the index of its step, and item its index in the list; of is -1 for a step.
	of, item int
	// first is the index of the first item of a step with ForEach, and items their number.
	first, items int
}

// sameHop reports whether one barrier has both operations.
func (s *step) sameHop() bool { return s.hop[forward] == s.hop[compensate] }

func (s *step) undoable() bool { return s.hop[compensate] >= 0 }

type reply struct {
	outcome, typ string
	fields       map[string]any
}

// awaited is an event that answers no command, with all contents that it may have. Steps that await the same event with the same
// conditions share one: the event comes once.
type awaited struct {
	hop    int
	typ    string
	when   string // the conditions of the step's answers of this type
	fields []map[string]any
}

// button is an operator's action; step is -1 for an action on the whole saga.
type button struct {
	event saga.Event
	step  int
}

func newModel(d *saga.Definition, starts []map[string]any) (*model, error) {
	m := &model{d: d, spec: d.Spec(), hops: d.Hops()}
	v, err := newValues(m.spec, starts != nil)
	if err != nil {
		return nil, err
	}
	index := make(map[string]int)
	for i, st := range m.spec.Steps {
		index[st.Name] = i
		s, err := m.step(st, v)
		if err != nil {
			return nil, err
		}
		s.at = i
		m.steps = append(m.steps, s)
	}
	for i := range m.steps {
		m.behind(i, index, i)
	}
	if err := m.addItems(v, starts); err != nil {
		return nil, err
	}
	if err := m.await(v); err != nil {
		return nil, err
	}
	for _, e := range m.spec.Ends {
		m.early = m.early || e.Then == saga.ThenComplete
	}
	for _, dl := range m.spec.Deadlines {
		m.early = m.early || dl.Then == saga.ThenComplete
	}
	if starts == nil {
		starts, m.leftOut = v.starts()
	}
	for _, fields := range starts {
		m.starts = append(m.starts, saga.Event{Kind: saga.Started, Fields: fields})
		if m.spec.Lock != "" {
			m.starts = append(m.starts, saga.Event{Kind: saga.Started, Fields: fields, Locked: true})
		}
	}
	m.press(v)
	return m, nil
}

func (m *model) step(st saga.Step, v *values) (step, error) {
	s := step{Step: st, hop: [2]int{-1, -1}, outputs: make(map[string]any), of: -1}
	target := func(op int, cmd *saga.Command, call *saga.Call) {
		switch {
		case cmd != nil:
			s.hop[op], s.sends[op] = slices.Index(m.hops, cmd.Hop), cmd.Type
		case call != nil:
			s.hop[op], s.sends[op] = slices.Index(m.hops, call.Hop), call.Method+" "+call.Endpoint
		}
	}
	target(forward, st.Command, st.Call)
	if c := st.Compensation; c != nil {
		target(compensate, c.Command, c.Call)
	}
	for op := range s.replies {
		yes, no := st.Success, st.Failure
		call := st.Call != nil
		if op == compensate {
			no = []saga.Answer{{Event: "Refused"}}
			if c := st.Compensation; c != nil {
				yes, call = c.Success, c.Call != nil
			}
		}
		if call && len(yes) == 0 {
			yes = []saga.Answer{{Event: saga.CallDone}}
		}
		if call && len(no) == 0 {
			no = []saga.Answer{{Event: saga.CallRefused}}
		}
		nothing := reply{failure, saga.NothingType, nil}
		if op == compensate {
			nothing.outcome = success
		}
		s.replies[op] = []reply{nothing}
		for k, as := range [][]saga.Answer{yes, no} {
			for i, a := range as {
				same := alike(as, i)
				if same == nil {
					continue
				}
				all, err := v.of(same)
				if err != nil {
					return s, fmt.Errorf("step %s: %w", st.Name, err)
				}
				for _, fields := range all {
					s.replies[op] = append(s.replies[op], reply{[]string{success, failure}[k], a.Event, fields})
				}
			}
		}
		s.replies[op] = append(s.replies[op], reply{exhausted, "troupe.Exhausted", nil})
		if len(s.replies[op]) > 250 {
			return s, fmt.Errorf("step %s has %d answers: at most 250", st.Name, len(s.replies[op]))
		}
	}
	for _, a := range st.Success {
		for name := range a.Set {
			s.outputs[name] = v.data[name][0]
		}
	}
	return s, nil
}

// behind adds i to the after of each step that at needs, also indirectly, and these steps to the before of i.
func (m *model) behind(i int, index map[string]int, at int) {
	for _, name := range m.spec.Steps[at].Needs {
		n := index[name]
		if !slices.Contains(m.steps[n].after, i) {
			m.steps[n].after = append(m.steps[n].after, i)
			m.steps[i].before = append(m.steps[i].before, n)
		}
		m.behind(i, index, n)
	}
}

func (m *model) await(v *values) error {
	for _, st := range m.spec.Steps {
		if st.Command != nil || st.Call != nil {
			continue
		}
		answers := slices.Concat(st.Success, st.Failure)
		for i, a := range answers {
			same := alike(answers, i)
			if same == nil {
				continue
			}
			all, err := v.of(same)
			if err != nil {
				return fmt.Errorf("event %s of %s: %w", a.Event, a.Hop, err)
			}
			hop, when := slices.Index(m.hops, a.Hop), ""
			for _, b := range same {
				when += b.When + "\n"
			}
			i := slices.IndexFunc(m.awaited, func(b awaited) bool {
				return b.hop == hop && b.typ == a.Event && strings.TrimSpace(b.when) == strings.TrimSpace(when)
			})
			if i < 0 {
				m.awaited = append(m.awaited, awaited{hop, a.Event, when, all})
				continue
			}
			m.awaited[i].fields = append(m.awaited[i].fields, all...)
		}
	}
	if err := m.awaitCancel(v); err != nil {
		return err
	}
	if len(m.awaited) > maxAwaited {
		return fmt.Errorf("%d awaited events: at most %d", len(m.awaited), maxAwaited)
	}
	return nil
}

// press sets the operator actions. A variable is set to each value that conditions distinguish.
func (m *model) press(v *values) {
	for _, name := range slices.Sorted(maps.Keys(v.data)) {
		for _, value := range v.data[name] {
			if name != m.spec.Key {
				m.buttons = append(m.buttons, button{saga.Event{
					Kind: saga.ActSet, Fields: map[string]any{name: value}, Actor: "operator", Reason: "explored",
				}, -1})
			}
		}
	}
	for _, kind := range m.kinds() {
		m.buttons = append(m.buttons, button{saga.Event{Kind: kind, Actor: "operator", Reason: "explored"}, -1})
	}
	for i, s := range m.steps {
		e := saga.Event{Step: s.Name, Actor: "operator", Reason: "explored"}
		for _, b := range []saga.Event{
			{Kind: saga.ActRetry}, {Kind: saga.ActSkip, Fields: s.outputs},
			{Kind: saga.ActResolve, Happened: true, Fields: s.outputs}, {Kind: saga.ActResolve},
		} {
			e.Kind, e.Fields, e.Happened = b.Kind, b.Fields, b.Happened
			m.buttons = append(m.buttons, button{e, i})
		}
	}
}
