package saga

import (
	"slices"

	"github.com/troupe-go/troupe/internal/expr"
)

// observed applies an awaited event to each step that waits for it, also to a step that could not use an earlier event (GivenUp). If no
// step waits for the event, but a step that has not begun will, observed keeps the event for that step.
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
		if phase := x.s.Steps[i].Phase; st.send == nil && (phase == Intent || phase == GivenUp) && x.observe(i, e) {
			took = true
		}
	}
	switch {
	case took: // the saga may have kept the same event by another variable: no later step may use that copy
		if x.usedBy(e) != "" {
			x.s.Early = x.earlyWithout(e)
		}
	case !x.awaitsLater(e):
		x.ignore("nothing waits for %s of %s", e.Type, e.Hop)
	case e.Message != "" && slices.ContainsFunc(x.s.Early, e.repeats):
		x.ignore("%s of %s is kept already", e.Type, e.Hop)
	case len(x.s.Early) == maxEarly || len(x.s.Early) > 0 && x.earlyBytes()+size(e.Fields) > maxEarlyBytes:
		x.refuse("%s of %s came before a step awaits it, like %d others with %d bytes: at most %d events with %d bytes are kept",
			e.Type, e.Hop, len(x.s.Early), x.earlyBytes(), maxEarly, maxEarlyBytes)
	default:
		at := len(x.s.Early)
		if first := slices.IndexFunc(x.s.Early, func(kept Event) bool { return !kept.Ahead }); e.Ahead && first >= 0 {
			at = first
		}
		x.s.Early = slices.Insert(slices.Clone(x.s.Early), at, e)
	}
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

// maxEarly limits the number of events that a saga keeps for later steps, and maxEarlyBytes limits their size, since each decision
// reads them. Further events are refused and become dead letters. The first event is kept, whatever its size is.
const (
	maxEarly      = 64
	maxEarlyBytes = 4 << 20
)

// leftForOthers returns the kept events that only this saga got, and that found it by a variable: the next saga of their value may await them.
func (x *decision) leftForOthers() (left []Event) {
	for _, e := range x.s.Early {
		if e.Single && x.foundByValue(e) {
			left = append(left, e)
		}
	}
	return left
}

// foundByValue reports whether a step awaits e by the value that a variable has now.
func (x *decision) foundByValue(e Event) bool {
	return slices.ContainsFunc(x.d.steps, func(st *step) bool {
		return st.send == nil && slices.ContainsFunc(slices.Concat(st.success, st.failure), func(a *answer) bool {
			return a.By != nil && a.Hop == e.Hop && a.Event == e.Type && x.finds(a, e)
		})
	})
}

// earlyBytes returns the approximate size of the kept events as JSON.
func (x *decision) earlyBytes() (n int) {
	for _, e := range x.s.Early {
		n += size(e.Fields)
	}
	return n
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

// repeats reports whether e and b are the same message. It compares the hop and the type too, since two hops may use equal ids.
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

// earlyWithout returns the kept events without e.
func (x *decision) earlyWithout(e Event) []Event {
	return slices.DeleteFunc(slices.Clone(x.s.Early), func(kept Event) bool { return e.Message != "" && e.repeats(kept) })
}
