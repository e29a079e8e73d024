package explore

import (
	"fmt"
	"slices"

	"github.com/troupe-go/troupe/saga"
)

// brokenForward returns the invariant that a decision breaks by which a saga that went back goes forward again, "" if none. Steps
// that the saga has given up because it went back would be missing.
func (x *explorer) brokenForward(s, next saga.State) string {
	if !s.Back || next.Back {
		return ""
	}
	for i, ss := range next.Steps {
		st := &x.m.steps[i]
		if x.absent(next, i) || s.Steps[i].Phase != saga.Skipped || ss.Phase != saga.Skipped || ss.Started == 0 && (st.When != "" || slices.ContainsFunc(st.Needs, func(name string) bool {
			need := next.Steps[x.stepIndex(name)]
			return need.Phase == saga.Skipped || need.Tolerated
		})) {
			continue
		}
		return fmt.Sprintf("the saga goes forward again without step %s, which it skipped when it went back", st.Name)
	}
	return ""
}
