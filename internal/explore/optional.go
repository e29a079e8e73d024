package explore

import (
	"fmt"

	"github.com/troupe-go/troupe/saga"
)

// tolerated reports whether the saga goes on without a step.
func (x *explorer) tolerated(s saga.State, name string) bool {
	i := x.stepIndex(name)
	return i >= 0 && s.Steps[i].Tolerated
}

// brokenOptional returns the invariant about optional steps and quorums that a decision breaks, "" if none.
func (x *explorer) brokenOptional(s, next saga.State) string {
	for i, ss := range next.Steps {
		st := &x.m.steps[i]
		switch {
		case ss.Tolerated && !st.Optional:
			return fmt.Sprintf("the saga goes on without step %s, which is not optional", st.Name)
		case ss.Tolerated && ss.Phase == saga.Doubt && st.undoable():
			return fmt.Sprintf("the saga goes on without step %s, which may have taken effect, and does not undo it", st.Name)
		case ss.Phase == saga.CompensateIntent && next.Status == saga.Running && !ss.Tolerated:
			return fmt.Sprintf("step %s is compensated, and the saga needs it and does not go back", st.Name)
		case ss.Phase == saga.CompensateIntent && next.Status == saga.Completed:
			return fmt.Sprintf("the saga is completed before step %s is compensated", st.Name)
		}
		began := ss.Started > 0 && (len(s.Steps) == 0 || s.Steps[i].Started == 0)
		if !began {
			continue
		}
		if done := x.done(next, st.Needs); done < st.AtLeast {
			return fmt.Sprintf("step %s begins, and %d of the steps that it needs are done: want at least %d", st.Name, done, st.AtLeast)
		}
	}
	return ""
}

// done counts the steps that are done, or were done when the same decision began to compensate them.
func (x *explorer) done(s saga.State, names []string) (n int) {
	for _, name := range names {
		ss := s.Steps[x.stepIndex(name)]
		if ss.Phase == saga.Done || s.Back && !ss.Tolerated && (ss.Phase == saga.CompensateIntent || ss.Phase == saga.CompensateFailed) {
			n++
		}
	}
	return n
}
