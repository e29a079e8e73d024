package saga

import (
	"fmt"

	"github.com/troupe-go/troupe/internal/moments"
)

// successOfLostDecision reports whether e is the success of a command of step i that this saga has not sent: it skips the step, has refused it
// since its quorum is missed, or has not yet sent it again after a refusal. It has sent the command nevertheless: its database was
// set back, and the decision that sent the command is lost.
func (x *decision) successOfLostDecision(e Event) (i int, is bool) {
	i, known := x.d.byName[e.Step]
	if !known || !succeeded(e) || x.d.steps[i].send == nil {
		return i, false
	}
	ss := x.s.Steps[i]
	return i, ss.Phase == Skipped || ss.Phase == Refused && (ss.Started == 0 || e.Epoch > ss.Epoch)
}

// tookEffectElsewhere reports whether e is the success of a command that the saga sent while it ran on another definition, which has
// the step. The move to that definition is lost.
func (x *decision) tookEffectElsewhere(e Event) bool {
	_, known := x.d.byName[e.Step]
	return !known && succeeded(e)
}

// succeeded reports whether e answers a command that took effect.
func succeeded(e Event) bool {
	return e.Kind == Answered && e.Operation != compensateOp && e.Outcome == "success" && e.Type != NothingType
}

// tookEffect makes a step that was skipped or refused done, since it took effect. A saga that goes back compensates the step. In any
// other case the saga is parked, and a person decides whether the effect may stay.
func (x *decision) tookEffect(i int, e Event) {
	st, ss := x.d.steps[i], &x.s.Steps[i]
	was := ss.Phase
	ss.Phase, ss.Tolerated, ss.Answer = Done, false, e.Type
	x.moment(moments.StepCompleted, ss.Name, e.Type)
	a, err := x.match(st.success, e)
	if err == nil && a != nil && x.unset(a) {
		var data map[string]any
		data, err = x.outputs(a, e)
		x.put(data)
	}
	reason := fmt.Sprintf("step %s was %s and took effect: it was asked for before the saga's database was set back", ss.Name, was)
	switch {
	case err != nil:
		reason += ": " + err.Error()
	case x.s.Back && (st.back != nil || !st.Pivot):
		return
	}
	if x.s.Held == "" {
		x.s.Held = "step " + ss.Name
	}
	x.park(reason)
}
