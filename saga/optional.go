package saga

import (
	"slices"

	"github.com/troupe-go/troupe/internal/moments"
)

// quorum checks the field atLeast of a step.
func (c *compiler) quorum(path string, st Step) {
	switch {
	case st.AtLeast < 0 || st.AtLeast > len(st.Needs):
		c.wrong(path+".atLeast", "%d: want 1 to %d, the number of the steps in needs", st.AtLeast, len(st.Needs))
	case st.AtLeast > 0 && st.Join != All:
		c.wrong(path+".atLeast", "%q has a join: want one of the two", st.Name)
	}
}

// optional checks the field optional of a step that has it. waits reports whether the step waits for an answer or an event.
func (c *compiler) optional(path string, st *step, waits bool) {
	switch {
	case !waits && st.AtLeast == 0:
		c.wrong(path+".optional", "%q waits for nothing, and cannot fail", st.Name)
	case st.Pivot:
		c.wrong(path+".optional", "%q is the pivot, which the saga cannot go on without", st.Name)
	case st.Exhausted != Park:
		c.wrong(path+".exhausted", "%q is optional, so the saga continues when its hop gives up: remove exhausted", st.Name)
	}
}

// tolerateFailed lets the saga go on without each optional step that has failed. If the step is in doubt and has a compensation, the
// compensation is sent. If it cannot be sent, tolerateFailed parks the saga and returns false. If it has no room only in this decision, the
// step is tolerated later.
func (x *decision) tolerateFailed() bool {
	for i, st := range x.d.steps {
		ss := &x.s.Steps[i]
		if !st.Optional || ss.Tolerated || ss.Phase != Refused && ss.Phase != Doubt {
			continue
		}
		sent := ss.Phase != Doubt || st.back == nil || x.undo(i)
		if !sent && x.full {
			return false
		}
		ss.Tolerated = true
		x.disarmUntil(i)
		x.moment(moments.StepTolerated, ss.Name, "the saga goes on without it")
		if !sent {
			return false
		}
	}
	return true
}

// disarmUntil cancels the deadlines that count until step i is done.
func (x *decision) disarmUntil(i int) {
	for _, dl := range x.d.deadlines {
		if slices.Contains(dl.until, i) {
			x.disarm(dl.Name)
		}
	}
}

// compensating reports whether the answer to a compensation is awaited.
func (x *decision) compensating() bool {
	return slices.ContainsFunc(x.s.Steps, func(ss StepState) bool { return ss.Phase == CompensateIntent })
}

// mustDelayCompletion reports whether an overdue deadline would complete the saga while the answer to a compensation is awaited.
func (x *decision) mustDelayCompletion(a Armed) bool {
	return x.d.deadlines[x.d.deadline(a.Name)].Then == ThenComplete && x.compensating()
}
