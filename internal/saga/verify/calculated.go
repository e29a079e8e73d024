package verify

import (
	"fmt"
	"slices"

	"github.com/troupe-go/troupe/internal/expr"
)

// maxSampled limits the numbers with which a variable is tried, and the combinations of them.
const (
	maxSampled      = 200
	maxCombinations = 1 << 12
)

// calculatedGap finds a case that no step of a group takes, if some of their conditions calculate. It tries numbers at which the results
// of sums, products and quotients change, so that it may miss a case, and shows one that it has tried.
func (m *model) calculatedGap(group, follow set) bool {
	var xs, before []*expr.Expr
	for _, k := range group.steps() {
		if m.cases.when[k] == nil {
			return false
		}
		xs = append(xs, m.cases.when[k].x)
	}
	if follow == 0 || len(m.s.Ends) > 0 || !slices.ContainsFunc(m.runs, func(c *run) bool { return c.guarded&group == group && c.begun&follow == 0 }) {
		return false
	}
	for _, k := range m.leading(lowest(group)).steps() {
		if cond := m.cases.when[k]; cond != nil {
			before = append(before, cond.x)
		}
	}
	all, ok := m.samples(slices.Concat(xs, before))
	if !ok {
		return false
	}
	for _, data := range all {
		m.checkContext()
		objects := map[string]any{"data": data}
		comes := !slices.ContainsFunc(before, func(x *expr.Expr) bool { holds, err := x.Holds(objects); return !holds || err != nil })
		taken := slices.ContainsFunc(xs, func(x *expr.Expr) bool { holds, err := x.Holds(objects); return holds || err != nil })
		if !comes || taken {
			continue
		}
		var trace []string
		for _, name := range sortedKeys(data) {
			trace = append(trace, fmt.Sprintf("data.%s = %s", name, show(data[name])))
		}
		for _, k := range group.steps() {
			trace = append(trace, m.steps[k].Name+": skipped")
		}
		m.report("guard-gap", m.steps[lowest(group)].path+".when", append(trace, m.steps[lowest(follow)].Name+": skipped"),
			"none of %s is taken, and all that follows is skipped; let the conditions cover every value", m.names(group))
		return true
	}
	return false
}

// samples returns values for the variables that expressions read; ok is false if these are not all known at the start.
func (m *model) samples(xs []*expr.Expr) (all []map[string]any, ok bool) {
	numbers := sums(xs)
	all = []map[string]any{{}}
	seen := make(map[string]bool)
	for _, x := range xs {
		if x.ReadsNow() {
			return nil, false
		}
		for _, r := range x.Reads() {
			v, known := m.at[r.Field]
			if !known || r.Object != "data" || r.Tested || m.setter[v] != byStart {
				return nil, false
			}
			if seen[r.Field] {
				continue
			}
			seen[r.Field] = true
			values := []any{false, true}
			switch m.s.Data[r.Field] {
			case expr.Int:
				values = numbers
			case expr.Bool:
			default:
				return nil, false
			}
			var more []map[string]any
			for _, have := range all {
				for _, value := range values {
					with := map[string]any{r.Field: value}
					for name, is := range have {
						with[name] = is
					}
					more = append(more, with)
				}
			}
			if all = more; len(all) > maxCombinations {
				return nil, false
			}
		}
	}
	return all, true
}

// sums returns whole numbers near the literals of expressions, and near their sums, products and quotients.
func sums(xs []*expr.Expr) (all []any) {
	var literals []int64
	seen := make(map[int64]bool)
	for _, x := range xs {
		for _, n := range append(x.Integers(), 0) {
			if !seen[n] {
				seen[n] = true
				literals = append(literals, n)
			}
		}
	}
	near := func(n int64) {
		for _, value := range []any{n - 1, n, n + 1} {
			if !slices.Contains(all, value) && len(all) < maxSampled {
				all = append(all, value)
			}
		}
	}
	for _, a := range literals {
		near(a)
		for _, b := range literals {
			if len(all) == maxSampled {
				return all
			}
			near(a + b)
			near(a - b)
			near(a * b)
			if b != 0 {
				near(a / b)
			}
		}
	}
	return all
}
