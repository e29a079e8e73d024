package saga

import (
	"fmt"

	"github.com/troupe-go/troupe/internal/moments"
)

// successOfLostDecision reports whether e is a success of step i although the step cannot have succeeded, by its state. There are two cases:
//
//   - The saga has not sent the command: it has skipped the step, has refused it since its quorum is missed, or has not sent it again after a
//     refusal. So the saga's database was set back, and has lost the decision that sent the command.
//   - The hop has refused the command before. So the hop's database was set back, and the hop has decided again.
func (x *decision) successOfLostDecision(i int, e Event) bool {
	if !succeeded(e) || x.d.steps[i].send == nil {
		return false
	}
	ss := x.s.Steps[i]
	return ss.Phase == Skipped || ss.Phase == Refused && (ss.Started == 0 || e.Epoch > ss.Epoch || ss.Answer != "")
}

// successDespiteResolution reports whether e is the success of a command of step i although an operator has stated that it did not take
// effect. The operator's statement came too early: the command was still under way, its dead letter was redriven, or its hop's database
// was set back and the hop has handled the command again.
func (x *decision) successDespiteResolution(i int, e Event) bool {
	ss := x.s.Steps[i]
	return succeeded(e) && x.d.steps[i].send != nil && ss.Phase == Refused && ss.Started > 0 && ss.Answer == "" && e.Epoch <= ss.Epoch
}

// refuseSuccess refuses the success of a step about which an operator has stated that it did not take effect, so that the success
// becomes a dead letter. The saga does not compensate the step, since the operator may have undone it by hand.
func (x *decision) refuseSuccess(i int, e Event) {
	x.refuse("step %s took effect (%s), although an operator has stated that it did not: undo the effect by hand if it must not stay, then "+
		"discard this dead letter", x.s.Steps[i].Name, e.Type)
}

// tookEffectElsewhere reports whether e is the success of a command that the saga sent while it ran on another definition. The saga's
// database was set back, and has lost the move to that definition. The present definition does not have the step, or the step asks
// another hop and is settled.
func (x *decision) tookEffectElsewhere(e Event) bool {
	i, known := x.d.stepIndex(e.Step)
	switch {
	case !succeeded(e):
		return false
	case !known:
		return !x.mayHaveItem(e.Step)
	}
	switch x.s.Steps[i].Phase {
	case StepWaiting, Intent, GivenUp, Doubt: // unless the saga has ended, refuseOtherHop refuses the answer
		if !x.s.Ended() {
			return false
		}
	}
	c := x.d.steps[i].send
	return c != nil && e.Hop != "" && e.Hop != c.hop
}

// refuseElsewhere refuses the success of a command for which tookEffectElsewhere holds.
func (x *decision) refuseElsewhere(e Event) {
	if p, known := x.d.byName[stepOfItem(e.Step)]; known && x.d.steps[p].each != nil {
		_, n := x.items(p)
		x.refuseItem(e, fmt.Sprintf("step %s is %s and has %d items", x.d.steps[p].Name, phaseText(x.s.Steps[p].Phase), n))
		return
	}
	x.refuse("step %s took effect at hop %s, and the definition that the saga runs on has no such step of that hop: the saga was moved to "+
		"another one before its database was set back. Move it there again and redrive the answer, or check whether the effect must be "+
		"undone by hand", e.Step, e.Hop)
}

// succeeded reports whether e is the success of a forward command. An answer of type NothingType is no success, since its command did
// nothing; nor is the answer to a compensation.
func succeeded(e Event) bool {
	return e.Kind == Answered && e.Operation != compensateOp && e.Outcome == "success" && e.Type != NothingType
}

// tookEffect makes a step done that was skipped or refused, since it took effect. A saga that goes back compensates the step. Otherwise
// the saga is parked, and an operator decides whether the effect may stay.
func (x *decision) tookEffect(i int, e Event) {
	st, ss := x.d.steps[i], &x.s.Steps[i]
	reason := fmt.Sprintf("step %s was %s and took effect: its command was sent before the saga's database was set back", ss.Name, ss.Phase)
	if ss.Phase == Refused && ss.Answer != "" && e.Epoch <= ss.Epoch {
		reason = fmt.Sprintf("step %s was refused and took effect since, as if the database of hop %s was set back", ss.Name, st.send.hop)
	}
	ss.Phase, ss.Tolerated, ss.Answer, ss.Succeeded = Done, false, e.Type, e.Epoch
	x.disarmUntil(i)
	x.moment(moments.StepCompleted, ss.Name, e.Type)
	a, err := x.match(i, st.success, e)
	if err == nil && a != nil && x.unset(i, a) {
		var data map[string]any
		data, err = x.outputs(i, a, e)
		x.put(data)
	}
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

// ended handles an event of a saga that has ended. It refuses an answer that shows that the saga has decided on facts which a database
// has lost, so that the answer becomes a dead letter. It ignores all other events.
func (x *decision) ended(e Event) {
	x.ignore("the saga has ended: %s", x.s.Status)
	i, known := x.d.stepIndex(e.Step)
	if e.Kind != Answered || !known {
		return
	}
	ss := x.s.Steps[i]
	switch {
	case x.successOfLostDecision(i, e):
		x.refuse("the saga has ended: %s. Its step %s took effect and is %s, as if a database was set back: undo the effect by hand if "+
			"it must not stay", x.s.Status, ss.Name, ss.Phase)
	case x.successDespiteResolution(i, e):
		x.refuseSuccess(i, e)
	case x.contradicts(i, e) && e.Operation == compensateOp:
		x.contradictCompensation(i, e)
	case x.contradicts(i, e):
		x.contradictStep(i, e)
	case e.Operation == compensateOp && e.Outcome == "success" && e.Type != NothingType && ss.Phase == Done:
		x.refuse("the saga has ended: %s. Its step %s is done, and was undone before the saga's database was set back: look whether the "+
			"effect is missing", x.s.Status, ss.Name)
	default:
		return
	}
	x.fx.Ignored = ""
}
