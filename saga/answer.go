package saga

import (
	"fmt"
	"maps"
	"slices"
)

// answered takes what a hop made of a command or a compensation.
func (x *decision) answered(e Event) {
	i, ok := x.d.byName[e.Step]
	if !ok {
		x.ignore("there is no step %q", e.Step)
		return
	}
	if e.Operation == compensateOp {
		x.undone(i, e)
		return
	}
	st, ss := x.d.steps[i], &x.s.Steps[i]
	if e.Outcome == "exhausted" && !from(e.Hop, st.send, st.success, st.failure) {
		x.ignore("%s has given up an event, and not the command of step %s", e.Hop, ss.Name)
		return
	}
	switch ss.Phase {
	case Intent, GivenUp, Doubt:
	default:
		x.late(i, e)
		return
	}
	if e.Outcome != "success" && e.Epoch != ss.Epoch {
		x.ignore("step %s was asked again since: %s answers an earlier command", ss.Name, e.Type)
		return
	}
	switch e.Outcome {
	case "success":
		a, err := x.match(st.success, e)
		if err != nil {
			x.unusable(i, e, err.Error())
			return
		}
		if a == nil && e.Type != NothingType {
			x.unusable(i, e, fmt.Sprintf("%s: the definition does not know the answer %s", e.Step, e.Type))
			return
		}
		if x.store(i, a, e) {
			x.done(i, e.Type)
		}
	case "failure":
		reason := e.Type
		a, err := x.match(st.failure, e)
		if err != nil {
			x.unusable(i, e, err.Error())
			return
		}
		if a != nil {
			if !x.store(i, a, e) {
				return
			}
			reason = x.reasonOf(a, e)
		}
		x.refused(i, e.Type, reason)
	case "exhausted":
		x.givenUp(i, e)
	default:
		x.ignore("an answer without an outcome")
	}
}

// from returns whether hop is the one that c goes to, or one that answers it. A hop that only listens to an event of the step
// gives that event up, and no command; earlier versions of a participant name the step in their exhausted event all the same.
func from(hop string, c *command, answers ...[]*answer) bool {
	return hop == "" || c != nil && c.hop == hop ||
		slices.ContainsFunc(slices.Concat(answers...), func(a *answer) bool { return a.Hop == hop })
}

// late takes an answer that nobody waits for. One that says that a call which was in doubt took effect ends the doubt: the
// compensation, where it is sent again, runs whatever its hop still knows, with what the call gave.
func (x *decision) late(i int, e Event) {
	ss := &x.s.Steps[i]
	if !ss.Doubt || e.Outcome != "success" || e.Type == NothingType || ss.Phase != CompensateIntent && ss.Phase != CompensateFailed {
		x.ignore("step %s is %s: its answer %s is late or was given before", ss.Name, phaseText(ss.Phase), e.Type)
		return
	}
	ss.Doubt = false
	a, err := x.match(x.d.steps[i].success, e)
	if err == nil && (a == nil || !x.unset(a)) {
		return
	}
	var data map[string]any
	if err == nil {
		data, err = x.outputs(a, e)
	}
	if err != nil {
		x.park(fmt.Sprintf("%s: %s", e.Type, err))
		return
	}
	x.put(data)
}

func (x *decision) unset(a *answer) bool {
	for _, f := range a.set {
		if _, set := x.s.Data[f.name]; set {
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
	ss := &x.s.Steps[i]
	ss.Phase, ss.Doubt, ss.Answer = Done, false, event
	x.disarm(ss.Name + stepTimeout)
	for _, dl := range x.d.deadlines {
		if slices.Contains(dl.until, i) {
			x.disarm(dl.Name)
		}
	}
	x.moment(StepCompleted, ss.Name, event)
	if x.d.steps[i].Pivot && x.s.Back && !x.undoing() { // backward waits for a pivot, unless it can be undone too
		x.s.Back = false
		if x.s.Status == Compensating {
			x.s.Status = Running
		}
		if stuck := Stuck(x.d, x.s); len(stuck) > 0 {
			x.park(fmt.Sprintf("%s is done, and there is no way back, but %s is not", ss.Name, stuck[0]))
			return
		}
	}
	x.takeUp()
}

// undoing says whether a compensation was sent.
func (x *decision) undoing() bool {
	return slices.ContainsFunc(x.s.Steps, func(ss StepState) bool {
		return ss.Phase == CompensateIntent || ss.Phase == Undone || ss.Phase == CompensateFailed
	})
}

// refused takes a refusal. It settles the command that it answers, and not one before it that may still take effect.
func (x *decision) refused(i int, event, reason string) {
	ss := &x.s.Steps[i]
	ss.Answer = event
	if ss.Epoch > 0 && ss.Doubt {
		ss.Phase = Doubt
	} else {
		ss.Phase, ss.Doubt = Refused, false
	}
	x.disarm(ss.Name + stepTimeout)
	x.moment(StepFailed, ss.Name, reason)
	x.takeUp()
	x.goBack(reason)
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
	x.moment(StepExhausted, ss.Name, reason)
	switch {
	case x.s.Back: // it has had no effect, and may have when it is redriven
		x.doubt(i)
	case x.d.steps[i].Exhausted == CompensateThen && !x.passed():
		x.doubt(i)
		x.goBack(fmt.Sprintf("%s: %s", ss.Name, reason))
	default:
		ss.Phase = GivenUp
		x.park(fmt.Sprintf("%s: %s", ss.Name, reason))
	}
}

// doubt notes that nobody knows whether a command took effect or will.
func (x *decision) doubt(i int) { x.s.Steps[i].Phase, x.s.Steps[i].Doubt = Doubt, true }

// observed takes an event that somebody waits for.
func (x *decision) observed(e Event) {
	took := false
	for i, st := range x.d.steps {
		if st.send == nil && x.s.Steps[i].Phase == Intent && x.observe(i, e) {
			took = true
		}
	}
	switch {
	case took:
	case !x.d.awaitsLater(x.s, e):
		x.ignore("nothing waits for %s of %s", e.Type, e.Hop)
	case e.Message != "" && slices.ContainsFunc(x.s.Early, func(b Event) bool { return b.Message == e.Message }):
		x.ignore("%s of %s is kept already", e.Type, e.Hop)
	case len(x.s.Early) == maxEarly:
		x.refuse("%s of %s comes before it is awaited, like %d others", e.Type, e.Hop, maxEarly)
	default:
		x.s.Early = append(slices.Clip(x.s.Early), e)
	}
}

// maxEarly is how many events are kept until they are awaited. The next ones are refused, and become dead letters.
const maxEarly = 64

// observe takes e for a step that waits, if it is for that one.
func (x *decision) observe(i int, e Event) bool {
	st := x.d.steps[i]
	done, err := x.match(st.success, e)
	var refused *answer
	if done == nil && err == nil {
		refused, err = x.match(st.failure, e)
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
			x.refused(i, e.Type, x.reasonOf(refused, e))
		}
	default:
		return false
	}
	return true
}

// awaitsLater says whether a step that has not begun waits for e.
func (d *Definition) awaitsLater(s State, e Event) bool {
	for i, st := range d.steps {
		if st.send != nil || s.Steps[i].Phase != StepWaiting {
			continue
		}
		for _, a := range slices.Concat(st.success, st.failure) {
			if a.Hop == e.Hop && a.Event == e.Type {
				return true
			}
		}
	}
	return false
}

// match returns the answer that e is, or nil. Where a condition cannot be evaluated, nobody knows which one it is.
func (x *decision) match(as []*answer, e Event) (*answer, error) {
	for _, a := range as {
		if a.Event != e.Type || (e.Hop != "" && a.Hop != e.Hop) {
			continue
		}
		if a.when != nil {
			holds, err := a.when.Holds(x.objects(map[string]any{"event": e.Fields}))
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

// unusable parks the saga on an answer that came and that the definition cannot use. The step is exhausted: a person has
// it asked again, gives its result, or resolves it.
func (x *decision) unusable(i int, e Event, reason string) {
	ss := &x.s.Steps[i]
	ss.Phase, ss.Answer = GivenUp, e.Type
	x.disarm(ss.Name + stepTimeout)
	x.moment(StepExhausted, ss.Name, reason)
	x.park(reason)
}

// store sets the variables of a, an answer of step i. It returns false when one cannot be set; then the saga is parked.
func (x *decision) store(i int, a *answer, e Event) bool {
	data, err := x.outputs(a, e)
	if err != nil {
		x.unusable(i, e, fmt.Sprintf("%s: %s", a.Event, err))
		return false
	}
	x.put(data)
	return true
}

// outputs evaluates the variables that an answer sets; a nil answer sets none.
func (x *decision) outputs(a *answer, e Event) (map[string]any, error) {
	if a == nil || len(a.set) == 0 {
		return nil, nil
	}
	return x.d.variables(a.set, x.objects(map[string]any{"event": e.Fields}))
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

func (x *decision) reasonOf(a *answer, e Event) string {
	if a.reason == nil {
		return e.Type
	}
	v, err := a.reason.Eval(x.objects(map[string]any{"event": e.Fields}))
	if text, ok := v.(string); err == nil && ok && text != "" {
		return cut(text)
	}
	return e.Type
}
