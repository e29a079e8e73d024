package verify

import (
	"fmt"
	"slices"
)

// cancels finds cancels that are never accepted, or not until the step that the definition names, and refusals that look like the
// event of a saga that was compensated.
func cancels(m *model) {
	c := m.s.Cancel
	if c == nil {
		return
	}
	before, named := m.index[c.Before]
	for _, n := range m.steps {
		if n.Pivot && named && n.after.has(before) {
			m.report("cancel-after-pivot", "cancel.before", []string{n.Name + ": begins", c.Before + ": waiting"},
				"%s comes after the pivot %s, and a cancel is refused once that has begun; name %s, or a step before it", c.Before, n.Name, n.Name)
		}
	}
	m.cancelNever()
	for i, a := range c.Refused {
		if announces(m.s.Compensated, a) {
			m.report("ends-alike", fmt.Sprintf("cancel.refused[%d]", i), nil,
				"%s says that a cancel is refused and that the saga is compensated: give one of them another event, or failure", a.Event)
		}
	}
}

// cancelNever reports a cancel that comes too late in every run, since a step that waits for nothing ends the time in which it is accepted.
func (m *model) cancelNever() {
	if m.s.Lock != "" {
		return // a saga that waits for its lock can be cancelled
	}
	closer := -1
	for _, c := range m.runs {
		closer = -1
		for i := range m.steps {
			if m.refusesCancel(c, i) && !m.waitsBefore(i) {
				closer = i
			}
		}
		if closer < 0 {
			return
		}
	}
	if closer >= 0 {
		name := m.steps[closer].Name
		m.report("cancel-never", "cancel", []string{name + ": begins at the start"},
			"%s begins as soon as the saga starts, so every cancel comes too late; name a later step, or remove the cancel", name)
	}
}

// refusesCancel reports whether, in a run, a cancel is refused once step i has begun or was skipped.
func (m *model) refusesCancel(c *run, i int) bool {
	b, named := m.index[m.s.Cancel.Before]
	return c.begun.has(i) && m.steps[i].Pivot || named && i == b && (c.begun|c.skipped).has(i)
}

// waitsBefore reports whether a step that comes before step i waits for an answer or an event.
func (m *model) waitsBefore(i int) bool {
	return slices.ContainsFunc(m.steps, func(n node) bool { return n.after.has(i) && (n.sends || len(n.Success)+len(n.Failure) > 0) })
}

// cancellable reports whether a cancel may be accepted when step i is done in a run. The steps that come after a pivot are left out by
// the caller.
func (m *model) cancellable(c *run, i int) bool {
	if m.s.Cancel == nil {
		return false
	}
	b, named := m.index[m.s.Cancel.Before]
	return !named || i != b && !c.before[i].has(b) && !(c.skipped.has(b) && m.steps[b].after.has(i))
}

// cancelReads checks the variables that the conditions of a cancel read, which may come at any time, and the variables that the events
// which refuse it read.
func (m *model) cancelReads() {
	cancel := m.s.Cancel
	if cancel == nil {
		return
	}
	for i := range cancel.Events {
		for _, r := range m.readsAt(fmt.Sprintf("cancel.events[%d].when", i)) {
			m.need(r, m.given, func() []string { return []string{"the saga: starts", "a cancel: comes"} })
		}
	}
	for _, r := range m.emitReads("cancel.refused", cancel.Refused) {
		for _, c := range m.runs {
			for i := range m.steps {
				if m.refusesCancel(c, i) {
					m.need(r, c.sure[i], func() []string { return append(m.trace(c, i, "begins"), "a cancel: refused") })
				}
			}
		}
	}
}
