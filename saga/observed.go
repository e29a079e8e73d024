package saga

import (
	"slices"

	"github.com/troupe-go/troupe/internal/expr"
)

// observed applies an awaited event to each step that waits for it, also to a step that could not use an earlier event (GivenUp). If no
// step waits for the event, but a step that has not begun will, the event is early.
func (x *decision) observed(e Event) {
	if e.Answers == x.s.ID() {
		x.ignore("%s of %s answers a command of this saga", e.Type, e.Hop)
		return
	}
	if step := x.usedBy(e); step != "" {
		x.ignore("step %s has used %s of %s", step, e.Type, e.Hop)
		return
	}
	if x.cancelledBy(e) {
		return
	}
	took := false
	for i, st := range x.d.steps {
		if st.send == nil && x.s.Steps[i].Phase.takesEvent() && x.observe(i, e) {
			took = true
		}
	}
	if took {
		return
	}
	x.ignore("nothing waits for %s of %s", e.Type, e.Hop)
	if x.awaitsLater(e) {
		x.ignore("%s of %s comes before a step awaits it", e.Type, e.Hop)
		x.fx.Early = true
	}
}

// takesEvent reports whether a step in phase p that waits for an event takes one now.
func (p Phase) takesEvent() bool { return p == Intent || p == GivenUp }

// AwaitedNow returns, by the name of the step, the events that the steps of a saga in state s take now. The events that cancel the saga have an
// empty name. Another event is ignored, or it is early: see Effects.Early.
func (d *Definition) AwaitedNow(s State) map[string][]Answer {
	now := make(map[string][]Answer)
	if s.Ended() {
		return now
	}
	for i, st := range d.steps { // without items, which await no events
		if st.send == nil && s.Steps[i].Phase.takesEvent() {
			for _, a := range slices.Concat(st.success, st.failure) {
				now[st.Name] = append(now[st.Name], a.Answer)
			}
		}
	}
	if d.cancel != nil {
		for _, a := range d.cancel.events {
			now[""] = append(now[""], a.Answer)
		}
	}
	return now
}

// usedBy returns the name of the step that has used e, or an empty text if none has.
func (x *decision) usedBy(e Event) string {
	if e.Message == "" {
		return ""
	}
	for i, ss := range x.s.Steps {
		if ss.Message == e.Message && ss.Answer == e.Type && x.d.steps[i].awaits(e) {
			return ss.Name
		}
	}
	return ""
}

// awaits reports whether the step waits for events of e's hop and type.
func (st *step) awaits(e Event) bool {
	return st.send == nil && slices.ContainsFunc(slices.Concat(st.success, st.failure), func(a *answer) bool {
		return a.Hop == e.Hop && a.Event == e.Type
	})
}

// observe applies e to step i, which waits for an event. It returns false if the step does not wait for e.
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
			x.s.Steps[i].Message = e.Message
			x.done(i, e.Type)
		}
	case refused != nil:
		if x.store(i, refused, e) {
			x.s.Steps[i].Message = e.Message
			x.refused(i, e.Type, x.reasonOf(i, refused, e))
		}
	default:
		return false
	}
	return true
}

// finds reports whether e is for this saga. The saga is found by its key or, if a has an Association, by the value of a variable. An
// event without a key, as in logs of earlier versions, is for this saga.
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
