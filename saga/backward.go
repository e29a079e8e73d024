package saga

import (
	"fmt"
	"slices"

	"github.com/troupe-go/troupe/internal/moments"
)

// compensationAnswered applies the answer to the compensation of step i.
func (x *decision) compensationAnswered(i int, e Event) {
	ss := &x.s.Steps[i]
	switch ss.Phase {
	case CompensateIntent, CompensateFailed:
	case Undone:
		if x.contradicts(i, e) {
			x.contradictCompensation(i, e)
			return
		}
		x.ignore("step %s is %s: the answer %s to its compensation was given before", ss.Name, phaseText(ss.Phase), e.Type)
		return
	default:
		x.ignore("step %s is %s: the answer %s to its compensation is early", ss.Name, phaseText(ss.Phase), e.Type)
		x.fx.Early = true
		return
	}
	if e.Outcome == "success" {
		ss.BackSucceeded = e.Epoch
		x.compensationDone(i, e.Type)
		return
	}
	if ss.Phase == CompensateFailed || e.Epoch != ss.BackEpoch {
		x.ignore("the compensation of step %s has failed already", ss.Name)
		return
	}
	if e.Outcome == "failure" {
		ss.BackFirst = ss.BackEpoch + 1
	}
	x.compensateFailed(i, orElse(e.Reason, e.Type))
}

// compensationDone records that the compensation of step i has succeeded, or that an operator has stated so.
func (x *decision) compensationDone(i int, event string) {
	ss := &x.s.Steps[i]
	ss.Phase, ss.Answer = Undone, event
	x.disarm(ss.Name + compTimeout)
	x.moment(moments.CompensationCompleted, ss.Name, event)
	x.resumeUnlessStuck()
}

// compensateFailed records that the compensation of step i has failed, and parks the saga.
func (x *decision) compensateFailed(i int, reason string) {
	ss := &x.s.Steps[i]
	ss.Phase = CompensateFailed
	x.disarm(ss.Name + compTimeout)
	x.moment(moments.CompensationFailed, ss.Name, reason)
	x.park(fmt.Sprintf("%s: its compensation failed: %s", ss.Name, reason))
}

// passed reports whether a pivot is done, so that the saga cannot be compensated.
func (x *decision) passed() bool { return pivotal(x.d, x.s) != "" }

// pivotal returns the name of a pivot that is done, or an empty text if none is.
func pivotal(d *Definition, s State) string {
	for i, st := range d.steps {
		if st.Pivot && s.Steps[i].Phase == Done {
			return st.Name
		}
	}
	return ""
}

// goBack starts the compensation of the saga. If a pivot is done, it parks the saga instead.
func (x *decision) goBack(reason string) {
	if x.s.Back || x.s.Ended() {
		return
	}
	if p := pivotal(x.d, x.s); p != "" {
		x.park(fmt.Sprintf("%s; after %s there is no way back", reason, p))
		return
	}
	x.s.Back = true
	x.because(reason)
	if x.s.Status != Parked {
		x.s.Status = Compensating
	}
	x.moment(moments.SagaCompensating, "", reason)
	x.disarm(TimeoutName)
	for i := range x.s.Steps {
		switch {
		case x.s.Steps[i].Phase != GivenUp:
		case x.d.steps[i].send == nil: // nothing can be undone; if the saga goes forward after all, an operator decides on the event
			x.s.Steps[i].Phase = Refused
		default: // the command has had no effect so far, and may have one when its dead letter is redriven
			x.doubt(i)
		}
	}
	x.resumeUnlessStuck()
}

// backward sends the compensation of each step after which no step has anything left to compensate. When no step at all has anything left
// to compensate, the saga is compensated.
func (x *decision) backward() {
	for i, st := range x.d.steps {
		switch phase := x.s.Steps[i].Phase; {
		case st.Pivot && phase == Intent:
			return // the pivot may still succeed, and then nothing is compensated
		case st.Pivot && phase == Doubt && st.back == nil:
			x.park(fmt.Sprintf("%s: it may have taken effect, and then there is no way back", st.Name))
			return
		}
	}
	x.giveUpWaiting()
	open := false
	for i := range x.d.backwards {
		st, ss := x.d.steps[i], &x.s.Steps[i]
		if x.settled(i) {
			continue
		}
		open = true
		if ss.Phase == Intent || ss.Phase == CompensateIntent || st.each != nil {
			continue
		}
		if slices.ContainsFunc(st.after, func(j int) bool { return !x.settled(j) }) {
			continue
		}
		if st.back == nil {
			x.park(fmt.Sprintf("%s: it may have taken effect, and nothing undoes it", st.Name))
			return
		}
		if !x.undo(i) {
			return
		}
	}
	if open {
		return
	}
	if !x.emit(x.d.compensated, x.objects(nil)) {
		return
	}
	x.s.Status = Compensated
	x.moment(moments.SagaCompensated, "", "")
}

// undo sends the compensation of step i. If the compensation cannot be built, it parks the saga and returns false. If there is no room for it
// after the commands that this decision sends, the step stays as it is: the answer to one of those commands resumes the saga.
func (x *decision) undo(i int) bool {
	st, ss := x.d.steps[i], &x.s.Steps[i]
	was := ss.BackSent
	ss.BackSent = x.now
	if !x.send(i, st.back.send, compensateOp) {
		if x.full {
			ss.BackSent = was
			return false
		}
		ss.Phase = CompensateFailed
		x.moment(moments.CompensationFailed, st.Name, "it cannot be sent")
		return false
	}
	ss.Phase = CompensateIntent
	if t := st.back.spec.Timeout; t > 0 {
		x.arm(st.Name+compTimeout, t, nil)
	}
	x.moment(moments.CompensationStarted, st.Name, "")
	return true
}

// giveUpWaiting drops everything that a saga which goes back does not need: steps that have not begun, awaited events, and deadlines.
func (x *decision) giveUpWaiting() {
	for i := range x.s.Steps {
		ss := &x.s.Steps[i]
		if ss.Phase == StepWaiting || ss.Phase == Intent && x.d.steps[i].send == nil {
			ss.Phase = Skipped
			x.disarm(ss.Name + stepTimeout)
		}
	}
	for _, dl := range x.d.deadlines {
		x.disarm(dl.Name)
	}
}

// settled reports whether step i has nothing left to compensate.
func (x *decision) settled(i int) bool {
	if _, begun := x.itemCount(i); begun {
		return x.itemsSettled(i)
	}
	switch x.s.Steps[i].Phase {
	case StepWaiting, Skipped, Refused, Undone:
		return true
	case Done:
		return x.d.steps[i].back == nil
	case Doubt:
		return x.d.steps[i].back == nil && x.d.steps[i].Optional
	}
	return false
}

// undoneSteps returns the names of the compensated steps, in the reverse of the definition's order.
func (x *decision) undoneSteps() []any {
	names := []any{}
	for i := range x.d.backwards {
		if x.s.Steps[i].Phase == Undone || i < x.d.stepCount() && x.itemsUndone(i) {
			names = append(names, x.s.Steps[i].Name)
		}
	}
	return names
}
