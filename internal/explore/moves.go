package explore

import (
	"fmt"
	"slices"

	"github.com/troupe-go/troupe/saga"
)

// The ways to deliver a message.
const (
	once  = iota
	stays // delivered and kept, as after a crash before its offset was committed
	again // delivered and appended after all others, as after a crash of the relay
)

// expand makes every possible move from w.
func (x *explorer) expand(w *world) {
	x.stopped = false
	for queue := range w.queues {
		if queue == stashQueue {
			continue
		}
		for at := range w.queues[queue] {
			if at > 0 && (!x.cfg.Unordered || w.queues[queue][at] == w.queues[queue][at-1]) {
				if !x.cfg.Unordered {
					break
				}
				continue
			}
			x.deliver(w, queue, at, once)
			if int(w.duplicates) == x.cfg.Duplicates {
				continue
			}
			x.deliver(w, queue, at, stays)
			if len(w.queues[queue]) > 1 && !x.cfg.Unordered {
				x.deliver(w, queue, at, again)
			}
		}
	}
	x.fire(w)
	x.redrive(w)
	x.come(w)
	x.press(w)
}

// begin copies w into x.next, which a move may change.
func (x *explorer) begin(w *world) *world {
	x.next.copyFrom(w)
	x.problem = ""
	if x.tale != nil {
		*x.tale = (*x.tale)[:0]
	}
	return &x.next
}

// end finishes a move: it checks the world and visits it.
func (x *explorer) end() {
	x.close(&x.next)
	if x.problem == "" {
		x.problem = x.check(&x.next)
	}
	if !x.visit() {
		x.stopped = true
	}
}

func (x *explorer) breaks(format string, args ...any) {
	if x.problem == "" {
		x.problem = fmt.Sprintf(format, args...)
	}
}

func (x *explorer) deliver(w *world, queue, at, how int) {
	if x.stopped {
		return
	}
	message := w.queues[queue][at]
	if queue >= hopQueues && queue%2 == hopQueues%2 {
		c := x.commands[message]
		x.eachReply(w, c, func(reply uint8) {
			n := x.begin(w)
			x.leave(n, queue, at, how)
			x.perform(n, message, reply)
			x.end()
		})
		return
	}
	n := x.begin(w)
	x.leave(n, queue, at, how)
	if x.sagas[n.saga].state.Version == 0 && queue != startQueue {
		x.stash(n, message, "the saga's start")
		x.end()
		return
	}
	begins := x.sagas[n.saga].state.Version == 0
	x.decided(n, message)
	if begins && x.events[message].Locked {
		n.put(startQueue, x.event(event{Event: saga.Event{Kind: saga.Granted}}), x.cfg.Unordered)
	}
	x.unstash(n)
	x.end()
}

// stash keeps an event that came before the saga, or before the step that awaits it.
func (x *explorer) stash(n *world, message uint16, before string) {
	n.queues[stashQueue] = append(n.queues[stashQueue], message)
	if e := x.events[message]; x.tale != nil {
		x.say(Step{From: e.Hop, To: "saga", Text: e.Type + " comes before " + before + " and is kept"})
	}
}

// unstash applies the kept events to the saga, the first one first, until all that are left are early.
func (x *explorer) unstash(n *world) {
	for at := 0; at < len(n.queues[stashQueue]); at++ {
		message := n.queues[stashQueue][at]
		if o := x.decide(n.saga, message); !o.early() {
			n.take(stashQueue, at)
			x.decided(n, message)
			at = -1
		}
	}
}

// leave takes a message from its queue, except if how is stays.
func (x *explorer) leave(n *world, queue, at, how int) {
	message := n.queues[queue][at]
	if how != once {
		n.duplicates++
	}
	switch how {
	case once:
		n.take(queue, at)
	case stays:
		x.say(Step{From: "adversary", To: "adversary", Text: "the next message will be delivered again"})
	case again:
		n.take(queue, at)
		n.put(queue, message, x.cfg.Unordered)
		x.say(Step{From: "adversary", To: "adversary", Text: "the next message is published again, behind all others"})
	}
}

// decided applies an event to the saga and sends the commands that follow.
func (x *explorer) decided(n *world, e uint16) {
	o := x.decide(n.saga, e)
	if o.early() {
		x.stash(n, e, "a step that awaits it")
		return
	}
	if !o.noted {
		o.noted = true
		for _, path := range o.used {
			x.used[path] = true
		}
	}
	if x.tale != nil {
		x.sayDecision(e, o)
	}
	if o.problem != "" {
		x.breaks("%s", o.problem)
	}
	n.saga = o.next
	for _, m := range o.sends {
		c := x.commands[m]
		s, p := &x.m.steps[c.step], &n.places[c.step]
		if s.hop[c.op] < 0 {
			x.breaks("step %s has no %s command, and it is sent", s.Name, operations[c.op])
			return
		}
		if c.epoch != p.sent[c.op] {
			x.breaks("step %s: the %s command %d is sent under the idempotency key of command %d", s.Name, operations[c.op],
				p.sent[c.op]+1, c.epoch+1)
			return
		}
		p.sent[c.op]++
		n.put(commandsOf(s.hop[c.op]), m, x.cfg.Unordered)
	}
}

// fire fires each armed deadline.
func (x *explorer) fire(w *world) {
	for _, a := range x.sagas[w.saga].fires {
		if x.stopped {
			return
		}
		n := x.begin(w)
		x.decided(n, a.event)
		x.unstash(n)
		x.end()
	}
}

// redrive sends each dead letter to its topic once more.
func (x *explorer) redrive(w *world) {
	for i, m := range w.dead {
		if x.stopped || i > 0 && w.dead[i-1] == m {
			return
		}
		n := x.begin(w)
		n.dead = slices.Delete(n.dead, i, i+1)
		c := x.commands[m]
		c.redriven = true
		hop := x.m.steps[c.step].hop[c.op]
		n.put(commandsOf(hop), x.command(c), x.cfg.Unordered)
		if x.tale != nil {
			x.say(Step{From: "operator", To: x.m.hops[hop], Text: "redrives the dead letter " + x.title(c)})
		}
		x.end()
	}
}

// come publishes each awaited event that has not been published.
func (x *explorer) come(w *world) {
	for i, all := range x.comes {
		if w.published&(1<<i) != 0 {
			continue
		}
		for _, e := range all {
			if x.stopped {
				return
			}
			n := x.begin(w)
			n.published |= 1 << i
			n.put(eventsOf(x.m.awaited[i].hop), e, x.cfg.Unordered)
			if ev := x.events[e]; x.tale != nil {
				x.say(Step{From: ev.Hop, To: ev.Hop, Text: "publishes " + ev.Type + fieldsText(ev.Fields)})
			}
			x.end()
		}
	}
}

// press takes each operator action that is not refused or ignored. A cancel that the definition declares is not counted: it is accepted
// once at most.
func (x *explorer) press(w *world) {
	most := int(w.buttons) == x.cfg.Buttons
	if x.sagas[w.saga].state.Version == 0 || most && !x.m.operatorCancels() {
		return
	}
	for i, b := range x.m.buttons {
		if x.stopped {
			return
		}
		if most && b.event.Kind != saga.ActCancel {
			continue
		}
		if b.event.Kind == saga.ActSet && x.sagas[w.saga].state.Status != saga.Parked {
			continue
		}
		e := x.pressed[i]
		if x.decide(w.saga, e).nothing {
			continue
		}
		n := x.begin(w)
		if b.event.Kind != saga.ActCancel {
			n.buttons++
		}
		if !x.careful(n, b) {
			continue
		}
		x.decided(n, e)
		x.unstash(n)
		x.end()
	}
}

// careful reports whether a careful operator takes action b, and applies its effects outside the saga: the operator asks the
// service whether the step happened, which can be answered only while no command is under way that could change it, and
// performs by hand a step that is then reported as done.
func (x *explorer) careful(n *world, b button) bool {
	if b.step < 0 || b.event.Kind == saga.ActRetry {
		return true
	}
	p := &n.places[b.step]
	back := x.sagas[n.saga].state.Steps[b.step].Phase == saga.CompensateFailed
	if x.cfg.Careless {
		p.hand = handDone | handUndone
		return true
	}
	if x.onItsWay(n, b.step) {
		return false
	}
	n.dead = slices.DeleteFunc(n.dead, func(m uint16) bool { return x.commands[m].step == b.step })
	switch {
	case back && b.event.Kind == saga.ActResolve && !b.event.Happened:
		return p.effect == happened
	case back:
		if p.effect == happened {
			p.effect = undone
		}
		p.hand |= handUndone
	case b.event.Kind == saga.ActSkip:
		if p.effect != happened {
			p.hand |= handDone
		}
	case b.event.Happened:
		return p.effect == happened
	default:
		return p.effect != happened
	}
	return true
}

func (x *explorer) onItsWay(n *world, step int) bool {
	for _, hop := range x.m.steps[step].hop {
		if hop >= 0 && slices.ContainsFunc(n.queues[commandsOf(hop)], func(m uint16) bool { return x.commands[m].step == step }) {
			return true
		}
	}
	return false
}
