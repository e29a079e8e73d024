package saga

import (
	"fmt"

	"github.com/troupe-go/troupe/internal/moments"
)

// A hop decides on a command once, and repeats its answer if the same command comes again. But if the hop's database was set back, the hop
// handles the command again, and its second answer may contradict the first one. The second answer is the true one, and the saga has
// decided on the first.

// contradicts reports whether e is a failure of a command of step i, or of its compensation, that has succeeded before.
//
// A failure of another command of the step contradicts nothing: a hop that does not recognise a command which was sent again may refuse
// it, because the step is done already. Nor does a failure of a step that an operator has skipped or resolved: the operator found out
// the result.
//
// A command that is answered with NothingType came after its compensation. If it had succeeded before, its effect was lost with the database, and
// the compensation had nothing to undo: it may overtake a command that waits on a retry topic.
func (x *decision) contradicts(i int, e Event) bool {
	ss := x.s.Steps[i]
	if e.Outcome != "failure" || ss.Answer == "" || x.d.steps[i].send == nil {
		return false
	}
	if e.Operation == compensateOp {
		return ss.Phase == Undone && e.Epoch == ss.BackSucceeded
	}
	switch ss.Phase {
	case Done:
		return !ss.Doubt && e.Epoch == ss.Succeeded && e.Type != NothingType
	case CompensateIntent, CompensateFailed, Undone:
		return !ss.Doubt && e.Epoch == ss.Succeeded
	}
	return false
}

// contradictStep applies a failure that contradicts the success of step i:
//
//   - If the saga has ended, or the compensation was sent already, the failure is refused and becomes a dead letter.
//   - If the saga goes back, the step is in doubt and is compensated: at a hop that has refused the command, the compensation has no effect.
//     A step without a compensation becomes refused.
//   - If the saga goes forward, the step is in doubt, and the saga is parked until an operator has acted on the step.
func (x *decision) contradictStep(i int, e Event) {
	st, ss := x.d.steps[i], &x.s.Steps[i]
	if x.s.Ended() || ss.Phase != Done {
		x.refuse("step %s is %s: its command succeeded and has failed since (%s), as if the database of hop %s was set back. Find out which of "+
			"its effects the service has, and correct them by hand", ss.Name, ss.Phase, e.Type, st.send.hop)
		return
	}
	reason := fmt.Sprintf("step %s was done and has failed since (%s), as if the database of hop %s was set back", ss.Name, e.Type, st.send.hop)
	ss.Answer, ss.First = e.Type, ss.Epoch+1
	x.moment(moments.StepFailed, ss.Name, reason)
	switch {
	case x.s.Back && st.back == nil:
		ss.Phase = Refused
		return
	case x.s.Back:
		x.doubt(i)
		return
	case st.Optional && x.s.Held == "": // Stuck does not list an optional step in doubt: Held keeps the saga parked
		x.s.Held = "step " + ss.Name
	}
	x.doubt(i)
	x.park(reason)
}

// contradictCompensation applies a failure that contradicts the success of the compensation of step i. The saga is parked or, if it has
// ended, the failure becomes a dead letter.
func (x *decision) contradictCompensation(i int, e Event) {
	ss := &x.s.Steps[i]
	if x.s.Ended() {
		x.refuse("the saga has ended: %s. The compensation of its step %s succeeded and has failed since (%s), as if the hop's "+
			"database was set back: undo the step by hand", x.s.Status, ss.Name, e.Type)
		return
	}
	ss.BackFirst = ss.BackEpoch + 1
	x.compensateFailed(i, fmt.Sprintf("it succeeded and has failed since (%s), as if the hop's database was set back", e.Type))
}
