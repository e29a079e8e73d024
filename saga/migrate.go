package saga

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Migrate gives s, a state of from, as a state of to, with which it goes on at its next event. It is pure, as Decide is:
// a log in which such a move stands (Migrated) folds to the saga's state. s is not changed.
//
// A saga can be moved where everything that has happened to it means the same in to: the same saga, key and lock; each
// variable with its type; each step that has begun asks the same of the same hop, is undone in the same way, is a pivot
// or not, and stands in the same order to the others that have begun; and each deadline to come is known. The error
// names all that is in the way. So is a value that to goes on with and that the saga cannot have: of a variable that to sets
// by a step that was done, or by the start, on from.
//
// What only to has (a step, a deadline) applies to what has not begun: deadlines that count from the saga's start, or from
// the start of a step that has begun, are not scheduled afterwards.
func Migrate(from, to *Definition, s State) (State, error) {
	m := &move{from: from, to: to, s: s}
	switch {
	case s.Definition != from.hash || len(s.Steps) != len(from.steps):
		return s, fmt.Errorf("saga %s is of another definition than %s", s.ID(), from)
	case s.Ended():
		return s, fmt.Errorf("it has ended: %s", s.Status)
	case from.hash == to.hash:
		return s, errors.New("it runs on that definition already")
	case from.spec.Saga != to.spec.Saga:
		return s, fmt.Errorf("it is a saga %s, not %s", from.spec.Saga, to.spec.Saga)
	}
	m.compareSpecs()
	m.compareSteps()
	m.compareDeadlines()
	m.compareValues()
	if len(m.obstacles) > 0 {
		return s, errors.New(strings.Join(m.obstacles, "; "))
	}
	return m.moved(), nil
}

type move struct {
	from, to  *Definition
	s         State
	obstacles []string
}

func (m *move) obstacle(format string, args ...any) {
	m.obstacles = append(m.obstacles, fmt.Sprintf(format, args...))
}

func (m *move) compareSpecs() {
	was, is := m.from.spec, m.to.spec
	if was.Key != is.Key {
		m.obstacle("its key is the variable %s, not %s", was.Key, is.Key)
	}
	if was.Lock != is.Lock {
		m.obstacle("what it locks is another: %s, not %s", orElse(was.Lock, "nothing"), orElse(is.Lock, "nothing"))
	}
	for _, name := range sortedKeys(was.Data) {
		switch t, kept := is.Data[name]; {
		case !kept:
			m.obstacle("there is no variable %s any more", name)
		case t != was.Data[name]:
			m.obstacle("variable %s is %s, not %s", name, was.Data[name], t)
		}
	}
}

// ran says whether a step has begun, so that what it asked and how it is undone is settled.
func ran(p Phase) bool { return p != StepWaiting && p != Skipped }

func (m *move) compareSteps() {
	phase := make(map[string]Phase, len(m.s.Steps))
	for _, ss := range m.s.Steps {
		phase[ss.Name] = ss.Phase
	}
	for i, ss := range m.s.Steps {
		if !ran(ss.Phase) {
			continue
		}
		k, kept := m.to.byName[ss.Name]
		if !kept {
			m.obstacle("step %s is %s, and there is none any more", ss.Name, phaseText(ss.Phase))
			continue
		}
		was, is := m.from.steps[i], m.to.steps[k]
		if a, b := asks(was.Command, was.Call), asks(is.Command, is.Call); a != b {
			m.obstacle("step %s is %s and asks for %s, not %s", ss.Name, phaseText(ss.Phase), a, b)
		}
		if a, b := undoes(was.Compensation), undoes(is.Compensation); a != b {
			m.obstacle("step %s is %s and is undone by %s, not %s", ss.Name, phaseText(ss.Phase), a, b)
		}
		if was.Pivot != is.Pivot {
			m.obstacle("step %s is %s, and the pivot in only one of the two", ss.Name, phaseText(ss.Phase))
		}
		if a, b := m.from.behind(i, phase), m.to.behind(k, phase); !slices.Equal(a, b) {
			m.obstacle("behind step %s came %s, not %s", ss.Name, namesOrNone(a), namesOrNone(b))
		}
	}
}

func asks(c *Command, call *Call) string {
	switch {
	case c != nil:
		return c.Type + " of hop " + c.Hop
	case call != nil:
		return call.Method + " " + call.Endpoint + " of hop " + call.Hop
	}
	return "nothing"
}

func undoes(c *Compensation) string {
	if c == nil {
		return "nothing"
	}
	return asks(c.Command, c.Call)
}

// behind are the steps behind step i, directly or not, that have begun.
func (d *Definition) behind(i int, phase map[string]Phase) (names []string) {
	for _, j := range d.steps[i].after {
		if name := d.steps[j].Name; ran(phase[name]) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func namesOrNone(names []string) string { return orElse(strings.Join(names, ", "), "none") }

func (m *move) compareDeadlines() {
	for _, a := range m.s.Deadlines {
		if !m.to.schedules(a.Name) {
			m.obstacle("it has a deadline %s to come, which there is none of any more", a.Name)
		}
	}
}

// schedules says whether a deadline of that name means something to d.
func (d *Definition) schedules(name string) bool {
	if name == TimeoutName {
		return d.spec.Timeout > 0
	}
	if step, is := strings.CutSuffix(name, compTimeout); is {
		i, known := d.byName[step]
		return known && d.steps[i].back != nil && d.steps[i].back.spec.Timeout > 0
	}
	if step, is := strings.CutSuffix(name, stepTimeout); is {
		i, known := d.byName[step]
		return known && d.steps[i].Timeout > 0
	}
	return slices.ContainsFunc(d.deadlines, func(dl *deadline) bool { return dl.Name == name })
}

func (m *move) moved() State {
	s := m.s
	s.Definition = m.to.hash
	s.Version++
	s.Steps = make([]StepState, len(m.to.steps))
	for i, st := range m.to.steps {
		s.Steps[i].Name = st.Name
		if k, had := m.from.byName[st.Name]; had {
			s.Steps[i] = m.s.Steps[k]
		}
	}
	return s
}
