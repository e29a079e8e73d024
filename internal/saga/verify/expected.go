package verify

import (
	"fmt"
	"slices"

	"github.com/troupe-go/troupe/internal/rule"
	"github.com/troupe-go/troupe/saga"
)

// expected finds events that two parts of the definition expect, and of which one gets none.
func expected(m *model) {
	for i, n := range m.steps {
		for k, a := range slices.Concat(n.Success, n.Failure) {
			path := fmt.Sprintf("%s.success[%d]", n.path, k)
			if k >= len(n.Success) {
				path = fmt.Sprintf("%s.failure[%d]", n.path, k-len(n.Success))
			}
			if n.sends {
				m.startsItself(n, path, a)
				continue
			}
			for j, other := range m.steps {
				if j != i {
					m.expectedTwice(i, j, path, a, other)
				}
			}
		}
	}
}

func (m *model) startsItself(n node, path string, a saga.Answer) {
	for _, s := range m.s.Start {
		if s.Event == a.Event && s.Hop == hopFrom(n, a) {
			m.reportAs(rule.Warning, "start-awaited", path, nil,
				"%s answers %s and starts a saga of this type, unless there is one of its key: each saga may start another; start by another event",
				a.Event, n.Name)
		}
	}
}

func hopFrom(n node, a saga.Answer) string {
	if a.Hop == "" {
		return n.hop
	}
	return a.Hop
}

// expectedTwice reports answer a of step i, which awaits it, if the other step j expects the same event.
func (m *model) expectedTwice(i, j int, path string, a saga.Answer, other node) {
	for _, b := range slices.Concat(other.Success, other.Failure) {
		if b.Event != a.Event || hopFrom(other, b) != a.Hop {
			continue
		}
		n := m.steps[i]
		switch {
		case other.sends:
			m.report("event-expected-twice", path, nil,
				"%s of %s answers %s: an answer to a command is only that step's, and %s waits for another one; await another event",
				a.Event, a.Hop, other.Name, n.Name)
		case j > i || a.When != b.When || !sameAssociation(a.By, b.By):
		case n.after.has(j) || other.after.has(i):
			m.report("event-expected-twice", path, nil,
				"%s and %s both await %s of %s: the first takes it, and the second waits for another one; tell them apart by when or by",
				other.Name, n.Name, a.Event, a.Hop)
		case m.alternatives(i, j):
		default:
			m.report("event-expected-twice", path, nil,
				"%s and %s both await %s of %s: one event completes both; tell them apart by when or by", other.Name, n.Name, a.Event, a.Hop)
		}
		return
	}
}

func sameAssociation(a, b *saga.Association) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// alternatives reports whether the two steps begin in no run together.
func (m *model) alternatives(i, j int) bool {
	return !slices.ContainsFunc(m.runs, func(c *run) bool { return c.begun.has(i) && c.begun.has(j) })
}

// pivotSkipped finds cases in which a condition skips every pivot, so that the saga is completed with only a part of its work.
func pivotSkipped(m *model) {
	var pivots set
	for i, n := range m.steps {
		if n.Pivot {
			pivots |= only(i)
		}
	}
	if pivots == 0 {
		return
	}
	for _, c := range m.runs {
		if c.begun&pivots != 0 || c.cut != 0 || c.skipped&pivots == 0 {
			continue
		}
		effect := slices.IndexFunc(m.steps, func(n node) bool { return n.sends && n.Compensation != nil && c.begun.has(m.index[n.Name]) })
		for _, g := range c.guarded.steps() {
			if m.cases.when[g].opaque || (only(g)|m.steps[g].after)&pivots == 0 {
				continue
			}
			done := "nothing"
			if effect >= 0 {
				done = m.steps[effect].Name
			} else if slices.ContainsFunc(c.begun.steps(), func(k int) bool { return m.steps[k].sends }) {
				continue // it may have looked something up
			}
			p := lowest((only(g) | m.steps[g].after) & pivots)
			m.report("pivot-skipped", m.steps[g].path+".when", m.trace(c, p, "skipped"),
				"where %q does not hold, the pivot %s is skipped, and the saga is completed with %s done; end the saga there, or let the pivot not need %s",
				m.steps[g].When, m.steps[p].Name, done, m.steps[g].Name)
			break
		}
	}
}
