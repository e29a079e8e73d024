package saga

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/internal/moments"
)

// act applies an operator's action. An action that the saga's state does not allow is refused. The reason names the state, or the
// action to take instead.
func (x *decision) act(e Event) {
	switch e.Kind {
	case ActAbandon:
		x.because(orElse(e.Reason, "abandoned"))
		x.s.Status = Abandoned
		x.moment(moments.SagaAbandoned, "", e.Reason)
		return
	case ActCompensate:
		x.actCompensate(e)
		return
	case ActResume:
		x.actResume()
		return
	case ActCancel:
		x.actCancel(e)
		return
	}
	if x.s.Status == Waiting {
		x.refuse("the saga waits for its lock")
		return
	}
	if e.Kind == ActSet {
		x.actSet(e)
		return
	}
	i, ok := x.d.stepIndex(e.Step)
	if !ok {
		x.refuse("there is no step %q", e.Step)
		return
	}
	if n, begun := x.itemCount(i); begun {
		x.refuse("step %s has %d items: name one of them, such as %s", e.Step, n, itemName(e.Step, 0))
		return
	}
	if ss := x.s.Steps[i]; ss.Tolerated && ss.Phase != CompensateFailed && ss.Phase != CompensateIntent {
		x.refuse("step %s is optional, and the saga has gone on without it", ss.Name)
		return
	}
	switch e.Kind {
	case ActRetry:
		x.actRetry(i)
	case ActSkip:
		x.actSkip(i, e)
	case ActResolve:
		x.actResolve(i, e)
	case ActAnswer:
		x.actAnswer(i, e)
	}
}

func (x *decision) actCompensate(e Event) {
	switch {
	case x.s.Status == Waiting:
		x.refuse("nothing was done yet: abandon it")
	case x.s.Back:
		x.refuse("it is being compensated already")
	case x.passed():
		x.refuse("after %s there is no way back", pivotal(x.d, x.s))
	default:
		x.s.Held = ""
		x.goBack(orElse(e.Reason, "a person decided so"))
	}
}

func (x *decision) actResume() {
	if x.s.Status != Parked {
		x.refuse("the saga is %s, not parked", x.s.Status)
		return
	}
	if stuck := Stuck(x.d, x.s); len(stuck) > 0 {
		x.refuse("step %s is %s: retry, skip or resolve it", stuck[0], phaseText(x.phaseOf(stuck[0])))
		return
	}
	if slices.ContainsFunc(x.d.ends, func(e end) bool { return e.End.When == x.s.Held }) {
		x.s.Passed = append(slices.Clip(x.s.Passed), x.s.Held) // otherwise the condition, which still holds, would park the saga again at once
	}
	held := x.s.Held
	x.s.Held = ""
	x.resumeUnlessStuck()
	if held == heldByDeadlines && !x.s.Back {
		x.armFirst()
	}
}

// actRetry sends the command or the compensation of a failed step again, under another idempotency key. A running step can be retried
// too if no time-out is scheduled for it: if its message is lost, nothing else ends the step. Each such retry sends one more command.
func (x *decision) actRetry(i int) {
	st, ss := x.d.steps[i], &x.s.Steps[i]
	switch {
	case ss.Phase == CompensateFailed:
		if !x.compensateAgain(i) {
			return
		}
	case ss.Phase == CompensateIntent && !x.isScheduled(ss.Name+compTimeout):
		if !x.compensateAgain(i) {
			ss.BackEpoch-- // nothing was sent: the answer to the earlier compensation still counts
			return
		}
	case x.s.Back && ss.Phase != Intent:
		x.refuse("the saga goes back: step %s is not begun again", ss.Name)
		return
	case ss.Phase == GivenUp || ss.Phase == Doubt || ss.Phase == Refused ||
		ss.Phase == Intent && st.send != nil && !x.isScheduled(ss.Name+stepTimeout):
		if st.send == nil || ss.Started == 0 {
			x.refuse("step %s has sent nothing that could be sent again: skip it, or compensate", ss.Name)
			return
		}
		was := *ss
		ss.Epoch++
		if ss.Phase == Refused {
			ss.First = ss.Epoch
		}
		if ss.Phase == Refused && !ss.Doubt { // the results of all earlier commands are known
			ss.Sent = x.now
		}
		if !x.send(i, st.send, forwardOp) {
			*ss = was // nothing was sent: the answer to the earlier command still counts
			return
		}
		ss.Phase, ss.Doubt = Intent, ss.Doubt || ss.Phase != Refused
		if st.Timeout > 0 {
			x.arm(st.Name+stepTimeout, st.Timeout, nil)
		}
		x.moment(moments.StepStarted, st.Name, "again")
	case ss.Phase == Intent && st.send != nil, ss.Phase == CompensateIntent:
		x.refuse("step %s is running until its time-out: retry it after that", ss.Name)
		return
	default:
		x.refuse("step %s is %s: only a failed step can be retried", ss.Name, phaseText(ss.Phase))
		return
	}
	x.resumeUnlessStuck()
}

// isScheduled reports whether the saga has a deadline of this name that is due later than now.
func (x *decision) isScheduled(name string) bool {
	return slices.ContainsFunc(x.s.Deadlines, func(a Armed) bool { return a.Name == name && a.At.After(x.now) })
}

// compensateAgain sends the compensation of step i again, under another idempotency key. If the compensation cannot be built, it parks
// the saga and returns false.
func (x *decision) compensateAgain(i int) bool {
	st, ss := x.d.steps[i], &x.s.Steps[i]
	ss.BackEpoch++
	if !x.send(i, st.back.send, compensateOp) {
		return false
	}
	ss.Phase = CompensateIntent
	if t := st.back.spec.Timeout; t > 0 {
		x.arm(st.Name+compTimeout, t, nil)
	}
	x.moment(moments.CompensationStarted, st.Name, "again")
	return true
}

// actSet sets variables to other values. A parked saga stays parked. ActRetry and ActResume evaluate with the new values.
func (x *decision) actSet(e Event) {
	if !x.result(-1, e) {
		return
	}
	for i := range x.s.Steps { // a retry sends another request, which a service outside must not take for the earlier one
		switch ss := &x.s.Steps[i]; ss.Phase {
		case Intent, GivenUp, Doubt:
			ss.First = ss.Epoch + 1
		case CompensateIntent, CompensateFailed:
			ss.BackFirst = ss.BackEpoch + 1
		}
	}
	x.moment(moments.VariablesSet, "", strings.Join(sortedKeys(e.Fields), ", "))
}

// stated is the value of StepState.Succeeded if an operator has stated that the step took effect.
const stated = -1

// actSkip treats a failed step as done, or its failed compensation as completed.
func (x *decision) actSkip(i int, e Event) {
	ss := &x.s.Steps[i]
	switch {
	case ss.Phase == CompensateFailed:
		x.moment(moments.StepResolved, ss.Name, "skipped")
		x.compensationDone(i, "")
	case x.s.Back:
		x.refuse("the saga goes back: step %s is %s", ss.Name, phaseText(ss.Phase))
	case ss.Phase == GivenUp || ss.Phase == Doubt || ss.Phase == Refused:
		if x.result(i, e) {
			ss.Succeeded = stated
			x.moment(moments.StepResolved, ss.Name, "skipped")
			x.done(i, "")
		}
	default:
		x.refuse("step %s is %s: only a failed step can be skipped", ss.Name, phaseText(ss.Phase))
	}
}

// actResolve records an operator's statement about a command or a compensation with an unknown result: whether it took effect.
func (x *decision) actResolve(i int, e Event) {
	ss := &x.s.Steps[i]
	said := "it did not happen"
	if e.Happened {
		said = "it did happen"
	}
	switch {
	case ss.Phase == CompensateFailed && e.Happened:
		x.moment(moments.StepResolved, ss.Name, said)
		x.compensationDone(i, "")
	case ss.Phase == CompensateFailed: // now it is known that the step took effect and is not compensated
		x.moment(moments.StepResolved, ss.Name, said)
		if ss.Doubt {
			ss.Succeeded = stated
		}
		ss.Doubt, ss.BackSent, ss.BackFirst = false, x.now, ss.BackEpoch+1
		if x.compensateAgain(i) {
			x.resumeUnlessStuck()
		}
	case ss.Phase != Doubt && ss.Phase != GivenUp:
		x.refuse("step %s is %s: only a step in doubt can be resolved", ss.Name, phaseText(ss.Phase))
	case e.Happened:
		if x.result(i, e) {
			ss.Succeeded = stated
			x.moment(moments.StepResolved, ss.Name, said)
			x.done(i, "")
		}
	default:
		x.moment(moments.StepResolved, ss.Name, said)
		ss.Doubt = false
		x.refused(i, "", orElse(e.Reason, said))
	}
}

// result sets the variables that e gives for step i; i is -1 if they belong to no step. If i is an item, each value becomes the item's
// element in the list of that variable. If a variable cannot have its value, result refuses the action and returns false.
func (x *decision) result(i int, e Event) bool {
	data := make(map[string]any, len(e.Fields))
	for _, name := range sortedKeys(e.Fields) {
		v, err := x.d.coerce(name, e.Fields[name])
		if err == nil && name == x.d.spec.Key && v != x.s.Key {
			err = fmt.Errorf("variable %s is the saga's key", name)
		}
		if err != nil {
			x.refuse("%s", err)
			return false
		}
		data[name] = v
	}
	err := x.collect(i, data)
	if err == nil {
		err = x.fitsData(data)
	}
	if err != nil {
		x.refuse("%s", err)
		return false
	}
	x.put(data)
	return true
}

// Lock evaluates the definition's lock expression over the variables that an instance starts with. Two sagas with the same result have
// the same lock: one of them waits until the other has ended. With an empty result, or null, the saga takes no lock. A variable of type
// Any may give another value: then the result is its text.
func (d *Definition) Lock(data map[string]any) (string, error) {
	if d.lock == nil {
		return "", nil
	}
	v, err := d.lock.Eval(map[string]any{"data": data, "saga": map[string]any{}})
	return expr.Text(v), err
}
