package saga

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Migrate moves a saga from the definition from to the definition to: it returns the state that s becomes. At the saga's next event, Decide
// uses the new state with to. Migrate has no side effects and does not change s. A log that contains a move (Migrated) therefore still
// gives the saga's state.
//
// In the following, the old definition is from, and the new one is to. A saga can be moved if all of this holds:
//
//   - Both definitions have the same name, the same key and the same expression for the lock. Each variable of the old definition exists in
//     the new one, with the same type.
//   - Each step that has begun exists in the new definition. It sends the same command to the same hop, or makes the same call, and has the
//     same compensation. It is a pivot in both definitions or in neither, and has a ForEach in both or in neither. The same begun steps come
//     after it.
//   - A step without which the saga has gone on (Tolerated) is optional in the new definition.
//   - A step that waits for an event also awaits an event in the new definition, and that event can find the saga: by the key, by a variable
//     that has a value or may still get one, or by a variable by which the old definition has found it too.
//   - Each scheduled deadline exists in the new definition. Its stored payload has all fields that the new definition reads. If the new
//     deadline emits events, it counts from the same step as the old one.
//   - Each variable that the saga may still read has a value, if the new definition sets it at the start or by a step that is over. A variable
//     without a value is allowed if the old definition sets it in the same place: then the old definition has left it unset as well.
//
// If s is not a state of the old definition, the saga has ended, or the definitions are equal or of different sagas, the error gives only
// that reason. Otherwise it lists all obstacles.
//
// The steps and deadlines that only the new definition has apply from now on. Migrate does not schedule a deadline that counts from the
// saga's start, or from a step that has begun already. Migrate cancels a scheduled deadline if one of its Until steps in the new definition is
// done or tolerated.
func Migrate(from, to *Definition, s State) (State, error) {
	m := &move{from: from, to: to, s: s}
	switch {
	case s.Definition != from.hash || !from.fits(s):
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
	m.compareItems()
	m.compareFound()
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
		m.obstacle("its lock is another: %s, not %s", orElse(was.Lock, "nothing"), orElse(is.Lock, "nothing"))
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

// ran reports whether a step in phase p has begun, so that its command and its compensation must not change.
func ran(p Phase) bool { return p != StepWaiting && p != Skipped }

func (m *move) compareSteps() {
	phase := make(map[string]Phase, len(m.s.Steps))
	for _, ss := range m.s.Steps {
		phase[ss.Name] = ss.Phase
	}
	for i, ss := range m.s.Steps[:len(m.from.steps)] {
		_, listed := m.s.Lists[ss.Name]
		if !ran(ss.Phase) && !listed {
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
		if ss.Tolerated && !is.Optional {
			m.obstacle("step %s has failed, and is not optional any more", ss.Name)
		}
		if ss.Phase == Intent && is.waitsForNothing() && !was.waitsForNothing() {
			m.obstacle("step %s waits for an event, and awaits none in the other definition: it would never be done", ss.Name)
		}
		if (was.each == nil) != (is.each == nil) {
			m.obstacle("step %s is %s, and has a forEach in only one of the two", ss.Name, phaseText(ss.Phase))
		}
		if was.Pivot != is.Pivot {
			m.obstacle("step %s is %s, and the pivot in only one of the two", ss.Name, phaseText(ss.Phase))
		}
		if a, b := m.from.behind(i, phase), m.to.behind(k, phase); !slices.Equal(a, b) {
			m.obstacle("behind step %s came %s, not %s", ss.Name, namesOrNone(a), namesOrNone(b))
		}
	}
}

// waitsForNothing reports whether the step only joins other steps, so that it is done as soon as it begins.
func (s *step) waitsForNothing() bool { return s.send == nil && len(s.success)+len(s.failure) == 0 }

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

// behind returns the names of the steps that have begun and come after step i, directly or not.
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
			continue
		}
		k := m.to.deadline(a.Name)
		if k < 0 {
			continue
		}
		next := m.to.deadlines[k]
		if i := m.from.deadline(a.Name); i >= 0 && len(next.emit) > 0 && m.from.deadlines[i].Since != next.Since { // events of both would have the same path, and so the same id
			m.obstacle("deadline %s is scheduled and counts from %s, and in the other definition from %s: keep its since, or add a deadline with another name",
				a.Name, sinceText(m.from.deadlines[i].Since), sinceText(next.Since))
		}
		for _, name := range m.to.readsOf(fmt.Sprintf("deadlines[%d].emit", k), "deadline") {
			if _, has := a.Payload[name]; !has {
				m.obstacle("deadline %s reads deadline.%s, which the one to come does not have", a.Name, name)
			}
		}
	}
}

func sinceText(step string) string {
	if step == "" {
		return "the start"
	}
	return "step " + step
}

// schedules reports whether d may schedule a deadline of this name.
func (d *Definition) schedules(name string) bool {
	if name == TimeoutName {
		return d.spec.Timeout > 0
	}
	if step, is := strings.CutSuffix(name, compTimeout); is {
		i, known := d.byName[stepOfItem(step)]
		return known && d.steps[i].back != nil && d.steps[i].back.spec.Timeout > 0
	}
	if step, is := strings.CutSuffix(name, stepTimeout); is {
		i, known := d.byName[stepOfItem(step)]
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
	from := m.from.withItems(s)
	for _, st := range m.to.steps {
		if k, had := m.from.byName[st.Name]; had && from.items != nil {
			at := from.items[k]
			s.Steps = append(s.Steps, m.s.Steps[at.first:at.first+at.n]...)
		}
	}
	for i := range s.Steps {
		m.markNewRequest(&s.Steps[i])
	}
	s.Deadlines = slices.DeleteFunc(slices.Clone(s.Deadlines), func(a Armed) bool { return m.to.isCancelled(a.Name, s.Steps) })
	if len(s.Deadlines) == 0 {
		s.Deadlines = nil // as Decide does
	}
	return s
}

// isCancelled reports whether one of the steps in the deadline's Until is done or tolerated.
func (d *Definition) isCancelled(name string, steps []StepState) bool {
	k := d.deadline(name)
	return k >= 0 && slices.ContainsFunc(d.deadlines[k].until, func(i int) bool { return steps[i].Phase == Done || steps[i].Tolerated })
}

// markNewRequest makes the retry of a step a new request to services outside, as ActSet does. It does so if the new definition gives
// the command or the compensation of the step another input.
func (m *move) markNewRequest(ss *StepState) {
	name := stepOfItem(ss.Name)
	k, had := m.from.byName[name]
	if !had {
		return
	}
	was, is := m.from.steps[k].Step, m.to.steps[m.to.byName[name]].Step
	renamed := was.ForEach != nil && is.ForEach != nil && was.ForEach.As != is.ForEach.As
	switch ss.Phase {
	case Intent, GivenUp, Doubt:
		if renamed || !sameInput(was.Command, was.Call, is.Command, is.Call) {
			ss.First = ss.Epoch + 1
		}
	case CompensateIntent, CompensateFailed:
		a, b := was.Compensation, is.Compensation
		if renamed || a != nil && b != nil && !sameInput(a.Command, a.Call, b.Command, b.Call) {
			ss.BackFirst = ss.BackEpoch + 1
		}
	}
}

// sameInput reports whether two requests of the same kind, both commands or both calls, have the same input.
func sameInput(c *Command, call *Call, otherC *Command, otherCall *Call) bool {
	switch {
	case c != nil && otherC != nil:
		return maps.Equal(c.Input, otherC.Input)
	case call != nil && otherCall != nil:
		return maps.Equal(call.Body, otherCall.Body)
	}
	return true
}
