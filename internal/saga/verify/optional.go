package verify

import (
	"slices"

	"github.com/troupe-go/troupe/saga"
)

// The outcomes of an optional step, the values of its dim.
const (
	succeeds = "success"
	fails    = "failure"
)

// outcomes adds a dim for each optional step whose outcome decides whether a step that needs it begins. The outcome of any other
// optional step decides only whether its variables are set, which is then not known.
func (c *cases) outcomes(m *model) {
	for i, n := range m.steps {
		decides := slices.ContainsFunc(m.steps, func(k node) bool {
			return slices.Contains(k.needs, i) && (k.Join != saga.All || k.AtLeast > 0)
		})
		at := -1
		if n.Optional && n.ForEach == nil && decides && (n.sends || len(n.Success)+len(n.Failure) > 0) {
			at = c.dim(dim{v: -1, text: "the outcome of " + n.Name, values: []any{succeeds, fails}})
		}
		c.outcome = append(c.outcome, at)
	}
}

// fails reports whether the optional step i fails in a run.
func (c *cases) fails(r *run, i int) bool {
	k := c.outcome[i]
	return k >= 0 && c.dims[k].values[r.values[k]] == any(fails)
}

// failedUnset reports whether a variable cannot be set when step t, which is optional and sets it, has failed: neither its failure
// nor a success that comes late and is kept can set it.
func (m *model) failedUnset(t, v int) bool {
	n := m.steps[t]
	kept := n.sends && n.Compensation == nil
	return !kept && n.ForEach == nil && !slices.ContainsFunc(n.Failure, func(a saga.Answer) bool { _, sets := a.Set[m.vars[v]]; return sets })
}
