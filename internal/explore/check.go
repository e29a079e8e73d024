package explore

import (
	"slices"

	"github.com/troupe-go/troupe/saga"
)

// check returns the invariant that n breaks, "" if none.
func (x *explorer) check(n *world) string {
	in := x.sagas[n.saga]
	for i, waits := range in.waits {
		if waits && !x.underWay(n, i) {
			return "step " + x.m.steps[i].Name + " is " + string(in.state.Steps[i].Phase) + ", and its answer can never come"
		}
	}
	for _, i := range in.refused {
		if n.places[i].hand == 0 && x.mayHappen(n, i) {
			return "step " + x.m.steps[i].Name + " is refused, and may still take effect"
		}
	}
	switch in.state.Status {
	case saga.Completed:
		return x.checkCompleted(n, in)
	case saga.Compensated:
		return x.checkCompensated(n)
	}
	return ""
}

// underWay reports whether a command whose answer step awaits, or that answer, is in a queue.
func (x *explorer) underWay(n *world, step int) bool {
	op := forward
	if x.sagas[n.saga].state.Steps[step].Phase == saga.CompensateIntent {
		op = compensate
	}
	hop := x.m.steps[step].hop[op]
	return slices.ContainsFunc(n.queues[commandsOf(hop)], func(m uint16) bool {
		return x.commands[m].step == step && x.commands[m].op == op
	}) || slices.ContainsFunc(n.queues[eventsOf(hop)], func(m uint16) bool {
		e := &x.events[m]
		return e.Kind == saga.Answered && e.step == step && e.op == op
	})
}

// mayHappen reports whether a step took effect, or whether a queued command or a dead letter could let it.
func (x *explorer) mayHappen(n *world, step int) bool {
	runs := func(m uint16) bool {
		c := x.commands[m]
		return c.step == step && c.op == forward && x.judge(&n.places[step], c) == runs
	}
	return n.places[step].effect == happened || slices.ContainsFunc(n.dead, runs) ||
		slices.ContainsFunc(n.queues[commandsOf(x.m.steps[step].hop[forward])], runs)
}

func (x *explorer) checkCompleted(n *world, in *instance) string {
	for i, p := range n.places {
		switch s := &x.m.steps[i]; {
		case p.hand != 0 || s.hop[forward] < 0:
		case in.state.Steps[i].Phase == saga.Done && p.effect == never:
			return "the saga is completed, and step " + s.Name + " is done, but never took effect"
		case in.state.Steps[i].Tolerated:
			if p.effect == happened && s.undoable() {
				return "the saga is completed without step " + s.Name + ", which has taken effect and is not undone"
			}
		case p.effect == undone:
			return "the saga is completed, and step " + s.Name + " is undone"
		}
	}
	return ""
}

func (x *explorer) checkCompensated(n *world) string {
	for i, p := range n.places {
		if s := &x.m.steps[i]; p.effect == happened && p.hand == 0 && s.undoable() {
			return "the saga is compensated, and step " + s.Name + " has taken effect and is not undone"
		}
	}
	return ""
}

// close removes events, awaited events and operator actions from a world whose saga has ended, if the saga ignores all of
// them, so that fewer worlds differ. Commands still have effects, except after an abandoned saga.
func (x *explorer) close(n *world) {
	in := x.sagas[n.saga]
	if !in.ended || x.problem != "" || !x.closed(n.saga) {
		return
	}
	for queue := range n.queues {
		if queue >= hopQueues && queue%2 == hopQueues%2 {
			continue
		}
		for _, e := range n.queues[queue] {
			if o := x.decide(n.saga, e); !o.nothing || o.problem != "" {
				return
			}
		}
	}
	for queue := range n.queues {
		if queue < hopQueues || queue%2 != hopQueues%2 || in.state.Status == saga.Abandoned {
			n.queues[queue] = n.queues[queue][:0]
		}
	}
	if in.state.Status == saga.Abandoned {
		n.dead = n.dead[:0]
	}
	n.published, n.buttons = 1<<len(x.comes)-1, uint8(x.cfg.Buttons)
}

// closed reports whether an ended saga refuses every operator action and ignores every awaited event.
func (x *explorer) closed(s uint32) bool {
	open := func(e uint16) bool { o := x.decide(s, e); return !o.nothing || o.problem != "" }
	if slices.ContainsFunc(x.pressed, open) {
		return false
	}
	return !slices.ContainsFunc(x.comes, func(all []uint16) bool { return slices.ContainsFunc(all, open) })
}

// still returns the invariant that w breaks if nothing moves in it any more, "" otherwise.
func (x *explorer) still(w *world) string {
	in := x.sagas[w.saga]
	if len(in.fires) > 0 {
		return ""
	}
	for _, q := range w.queues {
		if len(q) > 0 {
			return ""
		}
	}
	x.report.Ends[in.state.Status]++
	switch {
	case in.ended:
		return ""
	case in.state.Status == saga.Parked:
		for i, e := range x.pressed {
			if x.m.buttons[i].event.Kind != saga.ActAbandon && !x.decide(w.saga, e).nothing {
				return ""
			}
		}
		return "the saga is parked, and a person can do nothing but abandon it"
	}
	for i, s := range x.m.steps {
		if s.hop[forward] >= 0 || s.ForEach != nil || in.state.Steps[i].Phase != saga.Intent {
			continue
		}
		for _, a := range slices.Concat(s.Success, s.Failure) {
			if a.When != "" {
				return ""
			}
			for k, b := range x.m.awaited {
				if x.m.hops[b.hop] == a.Hop && b.typ == a.Event && w.published&(1<<k) == 0 {
					return ""
				}
			}
		}
	}
	return "the saga is " + string(in.state.Status) + ", and nothing will ever happen to it"
}
