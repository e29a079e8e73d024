package saga

import (
	"fmt"

	"github.com/troupe-go/troupe/internal/moments"
)

// A hop answers a command once: it repeats its answer to the same command. If the hop's database was set back, the hop handles the command
// again and may decide otherwise. The latest answer is true, and the saga has decided on the other one.

// contradicts reports whether e is the failure of the command of step i that has succeeded. A person who skips or resolves a step has found
// out the result, so a later answer does not count. Nor does the failure of another command of the step: a worker that does not recognise a
// command that was sent again may refuse it, since it has done the step.
func (x *decision) contradicts(i int, e Event) bool {
	ss := x.s.Steps[i]
	if e.Outcome != "failure" || e.Type == NothingType || ss.Answer == "" || x.d.steps[i].send == nil {
		return false
	}
	if e.Operation == compensateOp {
		return ss.Phase == Undone && e.Epoch == ss.BackSucceeded
	}
	switch ss.Phase {
	case Done, CompensateIntent, CompensateFailed, Undone:
		return !ss.Doubt && e.Epoch == ss.Succeeded
	}
	return false
}

// lostEffect applies a failure that contradicts the success of step i. The step is in doubt then, and a person decides: a retry sends
// the command again, and a compensation does nothing if the hop has refused the command. If the compensation is sent already, or the
// saga has ended, the failure is refused.
func (x *decision) lostEffect(i int, e Event) {
	st, ss := x.d.steps[i], &x.s.Steps[i]
	if x.s.Ended() || ss.Phase != Done {
		x.refuse("step %s is %s: its command succeeded and has failed since (%s), as after a set back of the database of hop %s. Look which of "+
			"its effects the service has, and correct them by hand", ss.Name, ss.Phase, e.Type, st.send.hop)
		return
	}
	reason := fmt.Sprintf("step %s was done and has failed since (%s), as after a set back of the database of hop %s", ss.Name, e.Type, st.send.hop)
	ss.Answer, ss.First = e.Type, ss.Epoch+1
	x.moment(moments.StepFailed, ss.Name, reason)
	switch {
	case x.s.Back && st.back == nil:
		ss.Phase = Refused
		return
	case x.s.Back:
		x.doubt(i)
		return
	case st.Optional && x.s.Held == "": // no step is stuck
		x.s.Held = "step " + ss.Name
	}
	x.doubt(i)
	x.park(reason)
}

// lostCompensation applies a failure that contradicts the success of the compensation of step i.
func (x *decision) lostCompensation(i int, e Event) {
	ss := &x.s.Steps[i]
	if x.s.Ended() {
		x.refuse("the saga has ended: %s. The compensation of its step %s succeeded and has failed since (%s), as after a set back of the "+
			"hop's database: undo the step by hand", x.s.Status, ss.Name, e.Type)
		return
	}
	ss.BackFirst = ss.BackEpoch + 1
	x.compensateFailed(i, fmt.Sprintf("it succeeded and has failed since (%s), as after a set back of the hop's database", e.Type))
}
