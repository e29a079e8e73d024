package verify

import (
	"fmt"
	"slices"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/internal/rule"
	"github.com/troupe-go/troupe/saga"
)

// branches finds cases that no branch takes, and conditions that disagree at a boundary.
func branches(m *model) {
	gaps := m.gaps()
	var all []branch
	for i, n := range m.steps {
		if n.When != "" {
			all = append(all, branch{m.cases.when[i], n.path + ".when", n.needs, i, n.Name})
		}
	}
	for k := range m.s.Ends {
		all = append(all, branch{m.cases.ends[k], fmt.Sprintf("ends[%d].when", k), nil, -1, "the end"})
	}
	for i, a := range all {
		for _, b := range all[i+1:] {
			m.checkContext()
			alternatives := a.step < 0 || b.step < 0 || slices.Equal(a.needs, b.needs)
			if alternatives && !a.cond.opaque && !b.cond.opaque && !(gaps.has(max(a.step, 0)) && a.step >= 0) {
				m.boundary(a, b)
			}
		}
	}
	m.answerGaps()
}

type branch struct {
	cond  *condition
	path  string
	needs []int
	step  int // -1: the condition of an end
	name  string
}

// gaps finds groups of conditional branches of which some case takes none, and returns the steps of these groups.
func (m *model) gaps() (in set) {
	for i, n := range m.steps {
		var group, follow set
		for k, other := range m.steps {
			if slices.Equal(n.needs, other.needs) {
				group |= only(k)
				follow |= other.after
			}
		}
		if lowest(group) != i || group.count() < 2 {
			continue
		}
		if !m.conditional(group) {
			if m.calculatedGap(group, follow) {
				in |= group
			}
			continue
		}
		exclusive := !slices.ContainsFunc(m.runs, func(c *run) bool { return (c.begun & group).count() > 1 })
		for _, c := range m.runs {
			if c.guarded&group != group || c.begun&follow != 0 {
				continue
			}
			last := lowest(group)
			trace := m.traceOf(c, group|m.leading(last), -1, "")
			switch {
			case follow != 0:
				m.report("guard-gap", n.path+".when", append(trace, m.steps[lowest(follow)].Name+": skipped"),
					"none of %s is taken, and all that follows is skipped; let the conditions cover every value", m.names(group))
			case exclusive:
				m.reportAs(rule.Warning, "guard-gap", n.path+".when", trace,
					"none of %s is taken; let the conditions cover every value", m.names(group))
			default:
				continue
			}
			in |= group
			break
		}
	}
	return in
}

// leading returns the steps that come before step i, directly or not.
func (m *model) leading(i int) (all set) {
	for k, n := range m.steps {
		if n.after.has(i) {
			all |= only(k)
		}
	}
	return all
}

// conditional reports whether each step of a group has a condition that is not opaque.
func (m *model) conditional(group set) bool {
	for _, k := range group.steps() {
		if cond := m.cases.when[k]; cond == nil || cond.opaque {
			return false
		}
	}
	return true
}

// boundary compares two conditions below, at and above each number that both compare the same variable with.
func (m *model) boundary(a, b branch) {
	for _, bound := range a.cond.x.Bounds() {
		same := slices.ContainsFunc(b.cond.x.Bounds(), func(other expr.Bound) bool { return equal(other, bound) })
		values := around(m.s.Data[bound.Field], bound.Value)
		if text, is := bound.Value.(string); is && text != "" {
			values = []any{"", text, text + " "}
		}
		if !same || len(values) != 3 {
			continue
		}
		for _, rest := range m.others(a.cond.x, b.cond.x, bound.Field) {
			m.checkContext()
			var ina, inb [3]bool
			failed := false
			for k, value := range values {
				rest[bound.Field] = value
				var erra, errb error
				ina[k], erra = a.cond.x.Holds(map[string]any{"data": rest})
				inb[k], errb = b.cond.x.Holds(map[string]any{"data": rest})
				failed = failed || erra != nil || errb != nil
			}
			apart := ina[0] != inb[0] && ina[2] != inb[2] && ina[0] != ina[2]
			if failed || !apart || ina[1] != inb[1] {
				continue
			}
			what, severity := "both hold", rule.Warning
			if !ina[1] {
				what = "neither holds"
				if m.nothingFollows(a.step) && m.nothingFollows(b.step) && a.step+b.step > -2 {
					severity = rule.Error
				}
			}
			at := fmt.Sprintf("data.%s = %s", bound.Field, show(values[1]))
			m.reportAs(severity, "guard-boundary", b.path, []string{at, a.name + ": " + yes(ina[1]), b.name + ": " + yes(inb[1])},
				"at %s %s, of %q (%s) and %q; decide where the boundary itself belongs", at, what, a.cond.x.Text(), a.path, b.cond.x.Text())
			return
		}
	}
}

// nothingFollows reports whether, when the condition of the step does not hold, all steps after it are skipped, and there is at
// least one. For an end, -1, it returns true.
func (m *model) nothingFollows(step int) bool {
	if step < 0 {
		return true
	}
	return m.steps[step].after != 0 && !slices.ContainsFunc(m.runs, func(c *run) bool {
		return c.guarded.has(step) && c.begun&m.steps[step].after != 0
	})
}

func yes(holds bool) string {
	if holds {
		return "taken"
	}
	return "not taken"
}

func equal(a, b expr.Bound) bool {
	return a.Object == b.Object && a.Field == b.Field && number(a.Value) == number(b.Value)
}

func number(v any) any {
	if i, ok := v.(int64); ok {
		return float64(i)
	}
	return v
}

// maxOthers limits the combinations of the other variables with which a boundary is checked.
const maxOthers = 64

// others returns combinations of values of the variables that a and b read, except the variable but.
func (m *model) others(a, b *expr.Expr, but string) []map[string]any {
	all := []map[string]any{{}}
	seen := map[string]bool{but: true}
	for _, r := range slices.Concat(a.Reads(), b.Reads()) {
		if seen[r.Field] {
			continue
		}
		seen[r.Field] = true
		values := []any{sample(m.s.Data[r.Field], false), sample(m.s.Data[r.Field], true)}
		for _, bound := range slices.Concat(a.Bounds(), b.Bounds()) {
			if bound.Field == r.Field {
				values = append(values, around(m.s.Data[r.Field], bound.Value)...)
			}
		}
		var more []map[string]any
		for _, have := range all {
			for k, v := range values {
				if slices.Contains(values[:k], v) || len(more) == maxOthers {
					continue
				}
				with := map[string]any{r.Field: v}
				for name, is := range have {
					with[name] = is
				}
				more = append(more, with)
			}
		}
		all = more
	}
	return all
}

// answerGaps finds answers to a command that no declared one takes: all declared ones have conditions over one field, and at some
// value of it none holds.
func (m *model) answerGaps() {
	for _, n := range m.steps {
		if !n.sends {
			continue
		}
		for k, a := range n.Success {
			first := slices.IndexFunc(n.Success, func(b saga.Answer) bool { return b.Event == a.Event })
			if first == k {
				m.answerGap(n, a.Event)
			}
		}
	}
}

func (m *model) answerGap(n node, event string) {
	var xs []*expr.Expr
	object, field, path := "", "", ""
	var values []any
	for k, a := range n.Success {
		if a.Event != event {
			continue
		}
		x := m.d.Expr(fmt.Sprintf("%s.success[%d].when", n.path, k))
		if x == nil || len(x.Reads()) != 1 || x.Reads()[0].Tested || x.ReadsNow() || calls.MatchString(x.Text()) {
			return
		}
		r := x.Reads()[0]
		if path == "" {
			object, field, path = r.Object, r.Field, fmt.Sprintf("%s.success[%d].when", n.path, k)
		}
		switch negated := "!" + object + "." + field; {
		case r.Object != object || r.Field != field:
			return
		case x.Text() == negated || x.Text() == negated[1:]:
			values = append(values, true, false)
		case len(x.Bounds()) == 0:
			return
		}
		for _, b := range x.Bounds() {
			values = append(values, around("", b.Value)...)
		}
		xs = append(xs, x)
	}
	for _, v := range values {
		taken := slices.ContainsFunc(xs, func(x *expr.Expr) bool {
			holds, err := x.Holds(map[string]any{object: map[string]any{field: v}})
			return holds || err != nil
		})
		if !taken {
			m.report("guard-gap", path, []string{fmt.Sprintf("%s.%s = %v", object, field, v), n.Name + ": parked"},
				"no answer takes %s when %s.%s is %v, and the saga is parked; let the conditions cover every value", event, object, field, v)
			return
		}
	}
}
