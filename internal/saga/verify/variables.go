package verify

import (
	"fmt"
	"slices"

	"github.com/troupe-go/troupe/internal/rule"
	"github.com/troupe-go/troupe/saga"
)

// variables finds reads of variables that may not be set: by steps, compensations, emitted events, ends, deadlines and the lock.
func variables(m *model) {
	for i, n := range m.steps {
		before := m.before(n)
		var back []read
		if c := n.Compensation; c != nil {
			back = m.sendReads(n.path+".compensation", c.Command, c.Call)
		}
		for _, c := range m.runs {
			if !c.begun.has(i) && !c.guarded.has(i) {
				continue
			}
			sure := c.sure[i]
			if n.ForEach != nil {
				sure = sure.or(n.sure)
			}
			for _, r := range before {
				m.need(r, sure, func() []string { return m.trace(c, i, "begins") })
			}
			if !c.begun.has(i) {
				continue
			}
			for _, r := range back {
				m.needBack(n, r, sure, func() []string { return m.trace(c, i, "done") })
			}
		}
	}
	m.emitted()
}

// before returns the reads that happen before the step has set its own variables.
func (m *model) before(n node) []read {
	all := slices.Concat(m.readsAt(n.path+".when"), m.readsAt(n.path+".forEach.list"), m.sendReads(n.path, n.Command, n.Call))
	for k, a := range n.Success {
		all = append(all, m.answerReads(fmt.Sprintf("%s.success[%d]", n.path, k), a)...)
	}
	for k, a := range n.Failure {
		all = append(all, m.answerReads(fmt.Sprintf("%s.failure[%d]", n.path, k), a)...)
	}
	return all
}

func (m *model) answerReads(path string, a saga.Answer) []read {
	all := append(m.readsAt(path+".when"), m.reads(path+".set", a.Set)...)
	if a.By != nil {
		all = append(all, read{path + ".by.variable", m.at[a.By.Variable], false})
	}
	return all
}

// need reports a read of a variable that is not certainly set.
func (m *model) need(r read, sure varset, trace func() []string) {
	m.tooShort(r, trace)
	if r.asked || sure.has(r.v) {
		return
	}
	id := r.path + " " + m.vars[r.v]
	if m.said[id] {
		return
	}
	m.said[id] = true
	who := "nothing sets it"
	switch t := m.setter[r.v]; {
	case t >= 0:
		who = m.steps[t].Name + " sets it"
		switch {
		case !m.steps[t].sure.has(r.v):
			who += ", in some of its answers only"
		case m.steps[t].Optional:
			who += ", which is optional and may fail"
		}
	case t == byStart:
		who = "only some of the start's events set it"
	}
	m.report("unset-variable", r.path, trace(),
		"data.%s may not be set: %s; let that come before, or ask has(data.%s)", m.vars[r.v], who, m.vars[r.v])
}

// needBack is need for a compensation, which may run without the variables that its step sets.
func (m *model) needBack(n node, r read, sure varset, trace func() []string) {
	if r.asked || sure.has(r.v) || !n.maybe.has(r.v) {
		m.need(r, sure, trace)
		return
	}
	severity, why := rule.Warning, "its hop gives up and the saga goes back"
	switch {
	case n.Timeout > 0:
		severity, why = rule.Error, "its time-out passes"
	case n.Exhausted == saga.CompensateThen || n.Optional:
		severity, why = rule.Error, "its hop gives up"
	case !n.sure.has(r.v):
		severity, why = rule.Error, "another of its answers comes"
	}
	name := m.vars[r.v]
	lines := trace()
	lines[len(lines)-1] = n.Name + ": in doubt"
	m.reportAs(severity, "compensation-unset", r.path, lines,
		"data.%s is not set when %s; say has(data.%s) ? data.%s : …, and let the hop find it by the saga's key", name, why, name, name)
}

// emitted checks the reads of the lock, the ends, the deadlines and the events that are emitted when the saga ends.
func (m *model) emitted() {
	nothing := func() []string { return nil }
	for _, r := range m.readsAt("lock") {
		m.need(r, m.given, nothing)
	}
	completed := m.emitReads("completed", m.s.Completed)
	for _, c := range m.runs {
		if c.cut != 0 {
			continue
		}
		sure := m.setBy(c, c.begun)
		for _, r := range completed {
			m.need(r, sure, func() []string { return append(m.traceOf(c, c.begun|c.skipped, -1, ""), "the saga: completed") })
		}
	}
	for _, r := range m.emitReads("compensated", m.s.Compensated) {
		m.need(r, m.given, func() []string { return []string{"the first step: fails", "the saga: compensated"} })
	}
	for k, e := range m.s.Ends {
		path := fmt.Sprintf("ends[%d]", k)
		for _, r := range m.readsAt(path + ".when") {
			if m.setter[r.v] == byNobody {
				m.need(r, m.given, nothing) // its condition never holds
			}
		}
		sure := m.sureAt(k)
		reads := m.emitReads(path+".emit", e.Emit)
		if e.Then == saga.ThenComplete && e.Emit == nil {
			reads = completed
		}
		for _, r := range reads {
			m.need(r, sure, func() []string { return []string{"the end " + e.When + ": holds", "the saga: completed"} })
		}
	}
	m.cancelReads()
	for k, dl := range m.s.Deadlines {
		path := fmt.Sprintf("deadlines[%d]", k)
		reads := slices.Concat(m.reads(path+".payload", dl.Payload), m.emitReads(path+".emit", dl.Emit))
		if dl.Then == saga.ThenComplete {
			reads = append(reads, completed...)
		}
		sure := m.given
		if since, from := m.index[dl.Since]; from {
			sure = m.always(since)
		}
		for _, r := range reads {
			m.need(r, sure, func() []string { return []string{"the deadline " + dl.Name + ": met"} })
		}
	}
}

// always returns the variables that are set whenever step i begins.
func (m *model) always(i int) varset {
	all := varset{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
	for _, c := range m.runs {
		if c.begun.has(i) {
			all = all.and(c.sure[i])
		}
	}
	return all
}

// sureAt returns the variables that are set when an end's condition holds: the variables that it reads, and all that are set
// before these.
func (m *model) sureAt(end int) varset {
	reads := m.cases.ends[end].reads
	sure := m.given.or(reads)
	for v := range m.vars {
		if t := m.setter[v]; reads.has(v) && t >= 0 {
			sure = sure.or(m.always(t))
		}
	}
	return sure
}
