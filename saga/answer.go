package saga

import (
	"fmt"
	"maps"
	"slices"

	"github.com/troupe-go/troupe/internal/moments"
)

// answered applies the answer of a hop to a command or a compensation.
func (x *decision) answered(e Event) {
	i, ok := x.d.stepIndex(e.Step)
	if !ok && !x.addLostItem(e, &i) {
		return
	}
	if x.d.steps[i].each != nil {
		x.ignore("step %s has items, and the answer %s names none of them", e.Step, e.Type)
		return
	}
	if e.Operation == compensateOp {
		x.compensationAnswered(i, e)
		return
	}
	st, ss := x.d.steps[i], &x.s.Steps[i]
	switch ss.Phase {
	case Intent, GivenUp, Doubt:
	case StepWaiting:
		x.ignore("step %s has not begun: its answer %s is early", ss.Name, e.Type)
		x.fx.Early = true
		return
	default:
		switch {
		case x.successOfLostDecision(i, e):
			x.tookEffect(i, e)
		case x.successDespiteResolution(i, e):
			x.refuseSuccess(i, e)
		case x.contradicts(i, e):
			x.contradictStep(i, e)
		default:
			x.late(i, e)
		}
		return
	}
	if e.Outcome != "success" && e.Epoch != ss.Epoch {
		x.ignore("step %s has a newer command: %s answers an earlier one", ss.Name, e.Type)
		return
	}
	if e.Outcome == "failure" && ss.Phase == Doubt && ss.First > ss.Epoch && ss.Answer == e.Type {
		x.ignore("step %s is in doubt: its answer %s was given before", ss.Name, e.Type)
		return
	}
	switch e.Outcome {
	case "success":
		a, err := x.match(i, st.success, e)
		if err != nil {
			x.unusable(i, e, err.Error())
			return
		}
		if a == nil && (e.Type != NothingType || st.send == nil) {
			x.unusable(i, e, fmt.Sprintf("%s: the definition does not know the answer %s", e.Step, e.Type))
			return
		}
		if x.store(i, a, e) {
			ss.Succeeded = e.Epoch
			x.done(i, e.Type)
		}
	case "failure":
		reason := e.Type
		a, err := x.match(i, st.failure, e)
		if err != nil {
			x.unusable(i, e, err.Error())
			return
		}
		if a != nil {
			if !x.store(i, a, e) {
				return
			}
			reason = x.reasonOf(i, a, e)
		}
		x.refused(i, e.Type, reason)
	case "exhausted":
		x.givenUp(i, e)
	default:
		x.ignore("an answer without an outcome")
	}
}

// late handles an answer to a step that does not wait for one. It ignores the answer, with one exception: a success of a step in doubt
// whose compensation was sent or has failed. This success ends the doubt. If the compensation is sent again later, its hop then runs it
// even if the hop no longer knows the command, and the compensation uses the variables that this answer sets.
func (x *decision) late(i int, e Event) {
	ss := &x.s.Steps[i]
	if !ss.Doubt || e.Outcome != "success" || e.Type == NothingType || ss.Phase != CompensateIntent && ss.Phase != CompensateFailed {
		x.ignore("step %s is %s: its answer %s is late or was given before", ss.Name, phaseText(ss.Phase), e.Type)
		return
	}
	ss.Doubt, ss.Succeeded = false, e.Epoch
	if ss.Tolerated { // the saga has gone on without the step: later steps may have read that its variables are not set
		return
	}
	a, err := x.match(i, x.d.steps[i].success, e)
	if err == nil && (a == nil || !x.unset(i, a)) {
		return
	}
	var data map[string]any
	if err == nil {
		data, err = x.outputs(i, a, e)
	}
	if err != nil {
		x.park(fmt.Sprintf("%s: %s", e.Type, err))
		return
	}
	x.put(data)
}

// unset reports whether no variable that a sets has a value.
func (x *decision) unset(i int, a *answer) bool {
	for _, f := range a.set {
		if x.hasValue(i, f.name) {
			return false
		}
	}
	return true
}

func phaseText(p Phase) string {
	if p == StepWaiting {
		return "waiting"
	}
	return string(p)
}

// done makes step i done. event is the type of the answer, or empty if an operator has skipped or resolved the step.
func (x *decision) done(i int, event string) {
	ss, st := &x.s.Steps[i], x.d.steps[i]
	// A pivot that was in doubt, and that has a compensation, does not turn the saga forward. backward has not waited for such a pivot,
	// and may have skipped later steps already.
	goesBack := st.back != nil && ss.Phase == Doubt
	ss.Phase, ss.Doubt, ss.Tolerated, ss.Answer = Done, false, false, event
	x.disarm(ss.Name + stepTimeout)
	x.disarmUntil(i)
	x.moment(moments.StepCompleted, ss.Name, event)
	if st.Pivot && x.s.Back && !goesBack && !x.undoing() { // backward has waited for this pivot: the saga goes forward again
		x.s.Back = false
		if x.s.Status == Compensating {
			x.s.Status = Running
		}
		if t := x.d.spec.Timeout; t > 0 { // the time-out of the saga has fired, or goBack has cancelled it
			x.arm(TimeoutName, t, nil)
		}
		if stuck := Stuck(x.d, x.s); len(stuck) > 0 {
			x.park(fmt.Sprintf("%s is done, and there is no way back, but %s is not", ss.Name, stuck[0]))
			return
		}
	}
	x.resumeUnlessStuck()
}

// undoing reports whether the compensation of a step was sent. It leaves out tolerated steps, without which the saga goes on.
func (x *decision) undoing() bool {
	return slices.ContainsFunc(x.s.Steps, func(ss StepState) bool {
		return !ss.Tolerated && (ss.Phase == CompensateIntent || ss.Phase == Undone || ss.Phase == CompensateFailed)
	})
}

// refused applies a refusal of step i. The refusal settles the command that it answers. If an earlier command of the step has an
// unknown result, the step stays in doubt, since that command may still take effect; otherwise the step is refused. If the step is not
// optional, the saga goes back.
func (x *decision) refused(i int, event, reason string) {
	ss := &x.s.Steps[i]
	ss.Answer = event
	if ss.Epoch > 0 && ss.Doubt {
		ss.Phase, ss.First = Doubt, ss.Epoch+1
	} else {
		ss.Phase, ss.Doubt = Refused, false
	}
	x.disarm(ss.Name + stepTimeout)
	x.moment(moments.StepFailed, ss.Name, reason)
	x.resumeUnlessStuck()
	if !x.d.steps[i].Optional {
		x.goBack(reason)
	}
}

// givenUp applies an exhausted event: the hop has given up the command of step i.
func (x *decision) givenUp(i int, e Event) {
	ss := &x.s.Steps[i]
	if ss.Phase == GivenUp || ss.Phase == Doubt && ss.Answer == e.Type {
		x.ignore("step %s is exhausted already", ss.Name)
		return
	}
	ss.Answer = e.Type
	x.disarm(ss.Name + stepTimeout)
	reason := orElse(e.Reason, "its hop gave up")
	x.moment(moments.StepExhausted, ss.Name, reason)
	switch {
	case x.s.Back, x.d.steps[i].Optional && x.d.steps[i].send != nil:
		x.doubt(i)            // the command has had no effect so far, and may have one when its dead letter is redriven
		x.resumeUnlessStuck() // the commands that the limit of bytes has delayed follow
	case x.d.steps[i].Exhausted == CompensateThen && !x.passed():
		x.doubt(i)
		x.goBack(fmt.Sprintf("%s: %s", ss.Name, reason))
	default:
		ss.Phase = GivenUp
		x.park(fmt.Sprintf("%s: %s", ss.Name, reason))
	}
}

// doubt puts step i in doubt: its command may have taken effect, or may still do so.
func (x *decision) doubt(i int) { x.s.Steps[i].Phase, x.s.Steps[i].Doubt = Doubt, true }

// match returns the answer in as that accepts e, or nil. i is the step or the item of the answers, or -1 if there is none. If a
// condition cannot be evaluated, match returns an error, since it is not known which answer accepts e.
func (x *decision) match(i int, as []*answer, e Event) (*answer, error) {
	for _, a := range as {
		if a.Event != e.Type || (e.Hop != "" && a.Hop != e.Hop) || !x.finds(a, e) {
			continue
		}
		if a.when != nil {
			holds, err := a.when.Holds(x.objectsOf(i, map[string]any{"event": e.Fields}))
			if err != nil {
				return nil, fmt.Errorf("%s: when: %w", a.Event, err)
			}
			if !holds {
				continue
			}
		}
		return a, nil
	}
	return nil, nil
}

// unusable parks the saga because of an answer that the definition cannot use. The step becomes exhausted. An operator retries it,
// skips it with its result, or resolves it.
func (x *decision) unusable(i int, e Event, reason string) {
	ss := &x.s.Steps[i]
	ss.Phase, ss.Tolerated, ss.Answer = GivenUp, false, e.Type
	if e.Outcome == "failure" {
		ss.First = ss.Epoch + 1
	}
	x.disarm(ss.Name + stepTimeout)
	x.moment(moments.StepExhausted, ss.Name, reason)
	x.park(reason)
}

// store sets the variables that a sets for step i. a is the declared answer that accepts e. If a variable cannot be evaluated, store sets
// none: it makes the step exhausted, parks the saga and returns false.
func (x *decision) store(i int, a *answer, e Event) bool {
	data, err := x.outputs(i, a, e)
	if err != nil {
		x.unusable(i, e, fmt.Sprintf("%s: %s", a.Event, err))
		return false
	}
	x.put(data)
	return true
}

// outputs evaluates the variables that an answer to step i sets. A nil answer sets none. If i is an item, outputs returns the whole
// list of each variable, with the item's value in it.
func (x *decision) outputs(i int, a *answer, e Event) (map[string]any, error) {
	if a == nil || len(a.set) == 0 {
		return nil, nil
	}
	data, err := x.d.variables(a.set, x.objectsOf(i, map[string]any{"event": e.Fields}))
	if err != nil {
		return nil, err
	}
	if err := x.collect(i, data); err != nil {
		return nil, err
	}
	return data, x.fitsData(data)
}

// maxData limits the size of a saga's variables as JSON, in bytes, since each decision reads all of them. An answer that sets less than
// smallData is not checked.
const (
	maxData   = 8 << 20
	smallData = 16 << 10
)

// fitsData returns an error if the variables are too large when data is added to them.
func (x *decision) fitsData(data map[string]any) error {
	n := size(data)
	if n < smallData {
		return nil
	}
	for name, v := range x.s.Data {
		if _, replaced := data[name]; !replaced {
			n += size(v)
		}
	}
	if n > maxData {
		return fmt.Errorf("the variables would have more than %d MiB: want smaller values", maxData>>20)
	}
	return nil
}

func (x *decision) put(data map[string]any) {
	if len(data) == 0 {
		return
	}
	if !x.copied {
		x.s.Data, x.copied = maps.Clone(x.s.Data), true
	}
	maps.Copy(x.s.Data, data)
}

func (x *decision) reasonOf(i int, a *answer, e Event) string {
	if a.reason == nil {
		return e.Type
	}
	v, err := a.reason.Eval(x.objectsOf(i, map[string]any{"event": e.Fields}))
	if text, ok := v.(string); err == nil && ok && text != "" {
		return cut(text)
	}
	return e.Type
}
