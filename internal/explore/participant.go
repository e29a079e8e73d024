package explore

import "github.com/troupe-go/troupe/saga"

// verdict is a barrier's decision on a command.
type verdict int

const (
	runs verdict = iota
	repeats
	nothing
	dropped
)

// judge models the barrier of package participant, and its inbox: a command that was refused is not run again after a command
// under another idempotency key was handled.
func (x *explorer) judge(p *place, c command) verdict {
	known := p.row[c.op] == answered || p.row[c.op] == refused && p.epoch[c.op] == c.epoch
	other := uint8(unknown)
	if x.m.steps[c.step].sameHop() {
		other = p.row[1-c.op]
	}
	switch {
	case known:
		return repeats
	case p.inbox[c.op]&(1<<c.epoch) != 0:
		return dropped
	case c.op == forward && other != unknown:
		return nothing
	case c.op == forward, !c.doubt, other == answered:
		return runs
	}
	return nothing
}

// eachReply calls f for each answer that c may get.
func (x *explorer) eachReply(w *world, c command, f func(reply uint8)) {
	p, s := &w.places[c.step], &x.m.steps[c.step]
	switch x.judge(p, c) {
	case repeats:
		f(p.reply[c.op])
		return
	case nothing, dropped:
		f(0)
		return
	}
	for i := 1; i < len(s.replies[c.op]) && !x.stopped; i++ {
		switch s.replies[c.op][i].outcome {
		case failure:
			if c.op == forward && s.Retriable || c.op == compensate && !x.cfg.Exhausted {
				continue
			}
		case exhausted:
			if !x.cfg.Exhausted || c.redriven {
				continue
			}
		}
		f(uint8(i))
	}
}

// perform runs a participant's transaction, which answers command m.
func (x *explorer) perform(n *world, m uint16, reply uint8) {
	c := x.commands[m]
	p, s := &n.places[c.step], &x.m.steps[c.step]
	v, how := x.judge(p, c), "repeats its answer"
	if v == dropped {
		x.say(Step{From: x.m.hops[s.hop[c.op]], To: x.m.hops[s.hop[c.op]], Text: "skips a command that it has answered"})
		return
	}
	outcome := s.replies[c.op][reply].outcome
	switch v {
	case runs:
		how = x.run(n, m, outcome)
	case nothing:
		how = "lets nothing happen"
		if c.op == compensate && p.row[forward] == unknown {
			p.row[forward], p.epoch[forward], p.reply[forward] = refused, maxEpoch, 0
		}
	}
	if outcome != exhausted && v != repeats {
		p.inbox[c.op] |= 1 << c.epoch
		p.row[c.op], p.epoch[c.op], p.reply[c.op] = answered, c.epoch, reply
		if outcome == failure {
			p.row[c.op] = refused
		}
	}
	if hop := x.m.hops[s.hop[c.op]]; x.tale != nil {
		x.say(Step{From: hop, To: hop, Text: x.title(c) + ": " + how + ", answers " + s.replies[c.op][reply].typ})
	}
	n.put(eventsOf(s.hop[c.op]), x.answer(c, reply), x.cfg.Unordered)
}

// run runs the handler and returns a description of its effect.
func (x *explorer) run(n *world, m uint16, outcome string) string {
	c := x.commands[m]
	switch {
	case outcome == exhausted:
		n.bury(m)
		return "is given up, a dead letter"
	case outcome == failure:
		return "refuses"
	case c.op == forward:
		x.takesEffect(n, c.step)
		return "takes effect"
	}
	was := n.places[c.step].effect
	if x.undoes(n, c.step); was != happened {
		return "runs, with nothing to undo"
	}
	return "undoes it"
}

func (x *explorer) takesEffect(n *world, i int) {
	p, s := &n.places[i], &x.m.steps[i]
	switch {
	case p.hand != 0 || x.sagas[n.saga].state.Status == saga.Abandoned:
	case p.effect == happened:
		x.breaks("step %s takes effect twice", s.Name)
	case p.effect == undone:
		x.breaks("step %s takes effect again after it was undone", s.Name)
	case s.Optional && !s.undoable(): // an effect that comes late is kept
	default:
		for _, b := range s.before {
			if n.places[b].effect == undone && !x.sagas[n.saga].state.Steps[b].Tolerated {
				x.breaks("step %s takes effect although %s, which comes before it, is undone", s.Name, x.m.steps[b].Name)
			}
		}
	}
	p.effect = happened
}

func (x *explorer) undoes(n *world, i int) {
	p, s := &n.places[i], &x.m.steps[i]
	if p.hand != 0 || x.sagas[n.saga].state.Status == saga.Abandoned {
		if p.effect == happened {
			p.effect = undone
		}
		return
	}
	switch p.effect {
	case undone:
		x.breaks("step %s is undone twice", s.Name)
	case never:
		if s.sameHop() {
			x.breaks("step %s is undone, and it never took effect", s.Name)
		}
		return
	}
	if x.sagas[n.saga].state.Steps[i].Tolerated { // the saga goes on without it
		p.effect = undone
		return
	}
	for _, a := range s.after {
		if b := &n.places[a]; b.effect == happened && b.hand == 0 && x.m.steps[a].undoable() {
			x.breaks("step %s is undone before %s, which comes behind it", s.Name, x.m.steps[a].Name)
		}
	}
	for k := range x.m.steps {
		if t := &x.m.steps[k]; t.Pivot && !t.undoable() && n.places[k].effect == happened && n.places[k].hand == 0 {
			x.breaks("step %s is undone after the pivot %s took effect", s.Name, t.Name)
		}
	}
	p.effect = undone
}
