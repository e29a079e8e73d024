package saga

import "slices"

// fromOtherHop reports whether e is an answer of another hop than the one that got the step's command or its compensation. For a step
// that awaits events it reports whether the hop sends none of these events. It is false for an event without a hop.
func (x *decision) fromOtherHop(e Event) bool {
	i, known := x.d.byName[stepOfItem(e.Step)]
	if !known || e.Hop == "" {
		return false
	}
	st := x.d.steps[i]
	switch {
	case e.Operation != compensateOp && st.send == nil:
		return !slices.ContainsFunc(slices.Concat(st.success, st.failure), func(a *answer) bool { return a.Hop == e.Hop })
	case e.Operation != compensateOp:
		return e.Hop != st.send.hop
	}
	return st.back != nil && e.Hop != st.back.send.hop
}

// refuseOtherHop refuses an answer of another hop, so that no service can answer for another one. It ignores an exhausted event
// instead. Such an event is about an event of the step that the other hop consumes and has given up; participants of earlier versions
// name the step in it.
func (x *decision) refuseOtherHop(e Event) {
	if e.Outcome == "exhausted" {
		x.ignore("%s has given up an event, and not the command of step %s", e.Hop, e.Step)
		return
	}
	x.refuse("the answer %s to step %s came from hop %s, which the step does not ask. If the saga was on another definition before its "+
		"database was set back, move it there again and redrive the answer; else find out why that hop answers, and discard this dead letter", e.Type, e.Step, e.Hop)
}
