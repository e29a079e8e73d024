package verify

import (
	"fmt"
	"slices"

	"github.com/troupe-go/troupe/internal/rule"
	"github.com/troupe-go/troupe/saga"
)

func tooManyCases(m *model) {
	if m.cases.all <= maxCases {
		return
	}
	of := fmt.Sprint(m.cases.all)
	if m.cases.unbounded {
		of = "more than " + of
	}
	m.report("too-many-cases", "steps", nil,
		"the conditions make %s cases, of which %d were looked at: compare fewer variables", of, maxCases)
}

// everBegun returns the steps that begin in some run.
func (m *model) everBegun() (all set) {
	for _, c := range m.runs {
		all |= c.begun
	}
	return all
}

// reachability finds steps that never begin. Of a chain of such steps it reports the first.
func reachability(m *model) {
	if m.cases.all > maxCases {
		return // the step may begin in a case that was not checked
	}
	begun := m.everBegun()
	for i, n := range m.steps {
		if begun.has(i) || slices.ContainsFunc(n.needs, func(k int) bool { return !begun.has(k) }) {
			continue
		}
		guarded := slices.ContainsFunc(m.runs, func(c *run) bool { return c.guarded.has(i) })
		cut := slices.ContainsFunc(m.runs, func(c *run) bool { return c.cut.has(i) })
		short := slices.ContainsFunc(m.runs, func(c *run) bool { return c.quorumMissed.has(i) })
		switch {
		case short:
			m.report("join-never", n.path+".atLeast", nil,
				"%s never begins: of %s never so many as %d are done; need fewer", n.Name, m.names(setOf(n.needs)), n.AtLeast)
		case guarded:
			m.report("unreachable-step", n.path+".when", nil,
				"%s never begins: %q does not hold in any case; correct it or strike the step out", n.Name, n.When)
		case cut:
			m.report("unreachable-step", n.path, nil,
				"%s never begins: an end always comes before it; correct ends or strike the step out", n.Name)
		default:
			m.report("join-never", n.path+".needs", m.brokenJoin(i),
				"%s never begins: of %s one is skipped whenever another is done; say join merge or first, or need less",
				n.Name, m.names(setOf(n.needs)))
		}
	}
}

func setOf(steps []int) (s set) {
	for _, i := range steps {
		s |= only(i)
	}
	return s
}

func (m *model) brokenJoin(i int) []string {
	for _, c := range m.runs {
		if c.skipped.has(i) && c.begun&setOf(m.steps[i].needs) != 0 {
			return m.trace(c, i, "skipped")
		}
	}
	return nil
}

// joins finds joins that complete in some cases and are skipped in others, and joins that go on while other branches still act.
func joins(m *model) {
	begun := m.everBegun()
	for i, n := range m.steps {
		needs := setOf(n.needs)
		if len(n.needs) < 2 || !begun.has(i) {
			continue
		}
		for _, c := range m.runs {
			if c.skipped.has(i) && c.begun&needs&^c.failed == 0 && c.failed&needs != 0 && m.wanted(c, i) {
				m.reportAs(rule.Warning, "join-incomplete", n.path+".needs", m.trace(c, i, "skipped"),
					"%s is skipped where the optional steps that it needs fail: %s; say atLeast, or need a step that is not optional",
					n.Name, m.names(c.failed&needs))
				break
			}
			if n.Join == saga.All && n.AtLeast == 0 && c.begun&needs != 0 && c.skipped&needs != 0 && m.wanted(c, i) {
				m.report("join-incomplete", n.path+".needs", m.trace(c, i, "skipped"),
					"%s is skipped where %s is skipped and %s is not; use join merge, or give it the condition of the step that it needs",
					n.Name, m.names(c.skipped&needs), m.names(c.begun&needs))
				break
			}
			if acting := m.acting(c, needs); n.Join == saga.First && acting.count() > 1 {
				m.report("first-goes-on", n.path+".join", m.trace(c, i, "begins"),
					"%s begins when the first of %s is done, and the others still act; let them only wait for events, or compensate the others",
					n.Name, m.names(acting))
				break
			}
		}
	}
}

// wanted reports whether the condition of a step that is skipped by its join would hold.
func (m *model) wanted(c *run, i int) bool {
	holds, ok := m.holds(c, m.cases.when[i], i)
	return holds && ok
}

// acting returns the steps of needs that send a command, or whose own branch has sent one.
func (m *model) acting(c *run, needs set) (acting set) {
	common := ^set(0)
	needs &= c.begun &^ c.failed
	for _, k := range needs.steps() {
		common &= c.before[k]
	}
	for _, k := range needs.steps() {
		for _, j := range (c.before[k]&^common | only(k)).steps() {
			if m.steps[j].sends {
				acting |= only(k)
			}
		}
	}
	return acting
}
