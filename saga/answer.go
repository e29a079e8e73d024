package saga

import (
	"fmt"
	"maps"
	"slices"

	"github.com/troupe-go/troupe/internal/expr"
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

// late applies an answer to a step that is not waiting for one. If the answer reports that a call in doubt took effect, the step
// is no longer in doubt: a compensation that is sent again then runs even if its hop no longer knows the call, and uses the
// variables that this answer sets. Every other late answer is ignored.
func (x *decision) late(i int, e Event) {
	ss := &x.s.Steps[i]
	if !ss.Doubt || e.Outcome != "success" || e.Type == NothingType || ss.Phase != CompensateIntent && ss.Phase != CompensateFailed {
		x.ignore("step %s is %s: its answer %s is late or was given before", ss.Name, phaseText(ss.Phase), e.Type)
		return
	}
	ss.Doubt, ss.Succeeded = false, e.Epoch
	if ss.Tolerated { // later steps may have read that it did not succeed
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

func (x *decision) done(i int, event string) {
	ss, st := &x.s.Steps[i], x.d.steps[i]
	// A pivot in doubt that has a compensation delays nothing: later steps may be skipped already.
	goesBack := st.back != nil && ss.Phase == Doubt
	ss.Phase, ss.Doubt, ss.Tolerated, ss.Answer = Done, false, false, event
	x.disarm(ss.Name + stepTimeout)
	x.disarmUntil(i)
	x.moment(moments.StepCompleted, ss.Name, event)
	if st.Pivot && x.s.Back && !goesBack && !x.undoing() { // a compensating saga waits for a pivot, unless the pivot can be compensated too
		x.s.Back = false
		if x.s.Status == Compensating {
			x.s.Status = Running
		}
		if t := x.d.spec.Timeout; t > 0 { // it was met, or goBack cancelled it
			x.arm(TimeoutName, t, nil)
		}
		if stuck := Stuck(x.d, x.s); len(stuck) > 0 {
			x.park(fmt.Sprintf("%s is done, and there is no way back, but %s is not", ss.Name, stuck[0]))
			return
		}
	}
	x.takeUp()
}

// undoing reports whether the compensation of a step that the saga needs has been sent.
func (x *decision) undoing() bool {
	return slices.ContainsFunc(x.s.Steps, func(ss StepState) bool {
		return !ss.Tolerated && (ss.Phase == CompensateIntent || ss.Phase == Undone || ss.Phase == CompensateFailed)
	})
}

// refused applies a refusal. It settles the command that it answers. An earlier command of the step whose result is unknown may
// still take effect, so the step stays in doubt then.
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
	x.takeUp()
	if !x.d.steps[i].Optional {
		x.goBack(reason)
	}
}

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
		x.doubt(i) // it has had no effect so far, and may have one when its dead letter is redriven
	case x.d.steps[i].Exhausted == CompensateThen && !x.passed():
		x.doubt(i)
		x.goBack(fmt.Sprintf("%s: %s", ss.Name, reason))
	default:
		ss.Phase = GivenUp
		x.park(fmt.Sprintf("%s: %s", ss.Name, reason))
	}
}

// doubt records that it is unknown whether a command took effect or will take effect.
func (x *decision) doubt(i int) { x.s.Steps[i].Phase, x.s.Steps[i].Doubt = Doubt, true }

// observed applies an awaited event to each step that waits for it, also if the step could not use an earlier event, or keeps it for a step
// that has not begun.
func (x *decision) observed(e Event) {
	if e.Answers == x.s.ID() {
		x.ignore("%s of %s answers a command of this saga", e.Type, e.Hop)
		return
	}
	if x.cancelledBy(e) {
		return
	}
	took := false
	for i, st := range x.d.steps {
		if phase := x.s.Steps[i].Phase; st.send == nil && (phase == Intent || phase == GivenUp) && x.observe(i, e) {
			took = true
		}
	}
	switch {
	case took:
	case !x.awaitsLater(e):
		x.ignore("nothing waits for %s of %s", e.Type, e.Hop)
	case e.Message != "" && slices.ContainsFunc(x.s.Early, e.repeats):
		x.ignore("%s of %s is kept already", e.Type, e.Hop)
	case len(x.s.Early) == maxEarly || len(x.s.Early) > 0 && x.earlyBytes()+size(e.Fields) > maxEarlyBytes:
		x.refuse("%s of %s came before a step awaits it, like %d others with %d bytes: at most %d events with %d bytes are kept",
			e.Type, e.Hop, len(x.s.Early), x.earlyBytes(), maxEarly, maxEarlyBytes)
	default:
		x.s.Early = append(slices.Clip(x.s.Early), e)
	}
}

// maxEarly limits the number of events that a saga keeps until a step awaits them, and maxEarlyBytes their size, since each decision reads
// them. Further events are refused and become dead letters. The first event is kept whatever its size is.
const (
	maxEarly      = 64
	maxEarlyBytes = 4 << 20
)

// earlyBytes returns about the bytes of the kept events.
func (x *decision) earlyBytes() (n int) {
	for _, e := range x.s.Early {
		n += size(e.Fields)
	}
	return n
}

// observe applies e to step i, which waits for an event. It returns false if e is none of the step's events.
func (x *decision) observe(i int, e Event) bool {
	st := x.d.steps[i]
	done, err := x.match(i, st.success, e)
	var refused *answer
	if done == nil && err == nil {
		refused, err = x.match(i, st.failure, e)
	}
	switch {
	case err != nil:
		x.unusable(i, e, err.Error())
	case done != nil:
		if x.store(i, done, e) {
			x.done(i, e.Type)
		}
	case refused != nil:
		if x.store(i, refused, e) {
			x.refused(i, e.Type, x.reasonOf(i, refused, e))
		}
	default:
		return false
	}
	return true
}

// finds reports whether e is for this saga: by the saga's key or, if a has an Association, by the value of a variable.
func (x *decision) finds(a *answer, e Event) bool {
	switch {
	case e.Key == nil:
		return true
	case a.By == nil:
		return *e.Key == x.s.Key
	}
	value := expr.Text(e.Fields[a.By.Field])
	return value != "" && value == expr.Text(x.s.Data[a.By.Variable])
}

// repeats reports whether e is the message that b is. The ids of two hops may be equal.
func (e Event) repeats(b Event) bool {
	return b.Message == e.Message && b.Hop == e.Hop && b.Type == e.Type
}

// awaitsLater reports whether a step that has not begun waits for e.
func (x *decision) awaitsLater(e Event) bool {
	for i, st := range x.d.steps {
		if st.send != nil || x.s.Steps[i].Phase != StepWaiting {
			continue
		}
		for _, a := range slices.Concat(st.success, st.failure) {
			if a.Hop == e.Hop && a.Event == e.Type && x.finds(a, e) {
				return true
			}
		}
	}
	return false
}

// match returns the answer of as that accepts e, or nil. i is the step or item of the answers; -1: none. It returns an error if a
// condition cannot be evaluated, since it is then unknown which answer accepts e.
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

// unusable parks the saga because of an answer that the definition cannot use. The step becomes exhausted: an operator retries
// it, skips it with the result, or resolves it.
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

// store sets the variables of a, an answer of step i. If one cannot be set, it parks the saga and returns false.
func (x *decision) store(i int, a *answer, e Event) bool {
	data, err := x.outputs(i, a, e)
	if err != nil {
		x.unusable(i, e, fmt.Sprintf("%s: %s", a.Event, err))
		return false
	}
	x.put(data)
	return true
}

// outputs evaluates the variables that an answer to step i sets. A nil answer sets none. For an item it returns the variables'
// lists with the item's values in them.
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

// maxData limits the bytes of a saga's variables as JSON: each decision reads all of them. Answers that set less than smallData are not
// measured.
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
		return fmt.Errorf("the variables would have more than %d MiB: let the hop answer with less", maxData>>20)
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
