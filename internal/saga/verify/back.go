package verify

import (
	"fmt"
	"slices"

	"github.com/troupe-go/troupe/saga"
)

// waysBack finds steps that may wait for ever, and steps that stay done although the saga compensates.
func waysBack(m *model) {
	for i, n := range m.steps {
		waits := n.sends || len(n.Success)+len(n.Failure) > 0 && !m.bounded(i)
		if waits && n.Timeout == 0 && m.s.Timeout == 0 {
			m.report("no-timeout", n.path, nil, "%s may wait for ever: give it a time-out, or the saga", n.Name)
		}
	}
	for _, c := range m.runs {
		for _, i := range c.begun.steps() {
			n := m.steps[i]
			if n.undoable || n.Pivot || m.pivotBefore(c, i) >= 0 {
				continue
			}
			why, trace := m.turns(c, i)
			if why == "" {
				why, trace = m.itemTurns(c, i)
			}
			if why != "" {
				m.report("no-way-back", n.path, trace,
					"%s stays done when %s; give it a compensation, or say in irreversible why it needs none", n.Name, why)
				m.steps[i].undoable = true // report it once only
			}
		}
	}
}

// bounded reports whether a deadline ends the wait of step i.
func (m *model) bounded(i int) bool {
	return slices.ContainsFunc(m.s.Deadlines, func(dl saga.Deadline) bool {
		if dl.Then == saga.GoOn {
			return false
		}
		since, from := m.index[dl.Since]
		return !from || since == i || m.steps[since].after.has(i)
	})
}

func (m *model) pivotBefore(c *run, i int) int {
	for _, k := range c.before[i].steps() {
		if m.steps[k].Pivot {
			return k
		}
	}
	return -1
}

// turns returns the reason why the saga may compensate when step i may be done, with a trace; "" if there is none.
func (m *model) turns(c *run, i int) (why string, trace []string) {
	for _, f := range (c.begun | c.quorumMissed&^c.failed).steps() {
		if f == i || !m.steps[f].turns || c.before[i].has(f) || m.pivotBefore(c, f) >= 0 {
			continue
		}
		return m.steps[f].Name + " fails", m.failing(c, i, f, "fails")
	}
	if m.cancellable(c, i) {
		return "a cancel comes", append(m.trace(c, i, "done"), "the saga: cancelled")
	}
	if m.s.Timeout > 0 {
		return "the saga's time is up", m.trace(c, i, "done")
	}
	for _, dl := range m.s.Deadlines {
		if dl.Then == saga.ThenCompensate && m.mayBeDue(c, dl, i) {
			return "the deadline " + dl.Name + " is met", m.trace(c, i, "done")
		}
	}
	for k, e := range m.s.Ends {
		for _, t := range m.last(c, k).steps() {
			if e.Then == saga.ThenCompensate && !c.before[i].has(t) {
				return fmt.Sprintf("%s holds", e.When), m.failing(c, i, t, "done")
			}
		}
	}
	return "", nil
}

// failing returns the trace to a case in which one step is done and another one has an outcome.
func (m *model) failing(c *run, done, failed int, outcome string) []string {
	lines := m.trace(c, done, "done")
	if failed == done {
		return lines
	}
	for _, line := range m.trace(c, failed, outcome) {
		if !slices.Contains(lines, line) && line != m.steps[done].Name+": under way" {
			lines = append(lines, line)
		}
	}
	return lines
}

// mayBeDue reports whether a deadline may be due when step i is running or done.
func (m *model) mayBeDue(c *run, dl saga.Deadline, i int) bool {
	since, from := m.index[dl.Since]
	if from && !c.begun.has(since) {
		return false
	}
	return !slices.ContainsFunc(dl.Until, func(name string) bool {
		u := m.index[name] // it cancels the deadline only if it is done after the deadline was scheduled
		return c.before[i].has(u) && (!from || u == since || c.before[u].has(since))
	})
}

// last returns the steps whose answers may make an end's condition hold.
func (m *model) last(c *run, end int) set {
	var setters set
	x := m.d.Expr(fmt.Sprintf("ends[%d].when", end))
	for _, r := range x.Reads() {
		v, known := m.at[r.Field]
		if !known || r.Object != "data" {
			continue
		}
		if t := m.setter[v]; t >= 0 && c.begun.has(t) {
			setters |= only(t)
		}
	}
	cond := m.cases.ends[end]
	for _, t := range setters.steps() {
		for _, u := range setters.steps() {
			if c.before[u].has(t) && cond.reads.and(m.steps[u].sure.or(m.steps[u].maybe)) != (varset{}) {
				setters &^= only(t) // the end waits for u, which comes later
			}
		}
	}
	return setters
}

func pivots(m *model) {
	for _, c := range m.runs {
		for _, p := range c.begun.steps() {
			if m.steps[p].Pivot {
				m.pivot(c, p)
			}
		}
	}
}

func (m *model) pivot(c *run, p int) {
	pivot := m.steps[p].Name
	for _, f := range (c.behind(p) | c.parallel(p) | c.quorumMissed&^c.failed).steps() {
		n, behind := m.steps[f], c.before[f].has(p)
		switch {
		case n.Pivot && (behind || f > p):
			m.report("pivot-twice", n.path+".pivot", m.failing(c, p, f, "fails"),
				"%s and %s are both pivots of one run; keep one, and make the steps after it retriable", pivot, n.Name)
		case n.Pivot:
		case behind && n.sends && n.Compensation != nil && !n.Retriable && !n.Optional:
			m.report("compensable-after-pivot", n.path+".compensation", m.trace(c, f, "done"),
				"%s comes after the pivot %s: its compensation never runs; place it before the pivot, or make it retriable", n.Name, pivot)
		case behind && n.fallible:
			m.report("fallible-after-pivot", n.path, m.trace(c, f, "fails"),
				"%s comes after the pivot %s and may fail; make it retriable, or place it before the pivot", n.Name, pivot)
		case behind && n.sends && n.Exhausted == saga.CompensateThen && !n.Optional:
			m.report("back-after-pivot", n.path+".exhausted", m.failing(c, p, f, "given up"),
				"%s comes after the pivot %s: if its hop gives up, the saga is parked all the same; leave exhausted out", n.Name, pivot)
		case !behind && n.turns:
			m.report("pivot-parallel", n.path, m.failing(c, p, f, "fails"),
				"%s may fail while the pivot %s is done; let the pivot need it, or make it retriable behind the pivot", n.Name, pivot)
		}
	}
	for k, e := range m.s.Ends {
		if later := m.last(c, k) & (c.behind(p) | c.parallel(p) | only(p)); e.Then == saga.ThenCompensate && later != 0 {
			m.report("back-after-pivot", fmt.Sprintf("ends[%d].then", k), m.trace(c, p, "done"),
				"it may hold after the pivot %s is done, and then parks the saga; let it be decided before the pivot", pivot)
		}
	}
	for k, dl := range m.s.Deadlines {
		since, from := m.index[dl.Since]
		itself := slices.Contains(dl.Until, m.steps[p].Name) && (!from || p == since || c.before[p].has(since))
		if dl.Then == saga.ThenCompensate && !itself && m.mayBeDue(c, dl, p) {
			m.report("back-after-pivot", fmt.Sprintf("deadlines[%d].then", k), m.trace(c, p, "done"),
				"%s may be met after the pivot %s is done, and then parks the saga; say until %s", dl.Name, pivot, pivot)
		}
	}
}
