package verify

import "slices"

// These are the limits of the search, in combinations of outcomes.
const (
	maxCases    = 1280 // of the whole flow
	maxOfOne    = 128  // of the part of a flow that one question is about
	maxTogether = 512  // of all questions together
	minOfOne    = 4    // of the first question about a part, even if maxTogether is used up
	maxSteps    = 16   // per run, on average: a run of a densely connected flow has many steps
)

// An event of a run is an outcome of a part.
type event struct {
	of      part
	outcome outcome
	sent    []int
	causes  []int // the events that sent the messages which it consumed
	back    bool  // it is a failure or an expiry that makes the flow compensate, or follows from one
}

type outcome uint8

const (
	succeeded outcome = iota
	failed
	expired
	broken
	raised
	met
	later // not decided yet
)

// A delivery is a message on its way to all its consumers.
type delivery struct{ message, cause int }

// A handling is a reaction to a message whose outcome is not decided yet.
type handling struct{ reaction, cause int }

// A run is one possible execution of a flow, for one key. The order in which messages arrive does not change which of them are
// sent, except where a time-out or a failure decides: there each order is a run of its own. A reaction handles a message at most
// twice, however often it arrives.
type run struct {
	m        *model
	in       *slice
	queue    []delivery
	open     []handling
	sent     []int   // per message: how often
	handled  []uint8 // per reaction: how often
	first    [][]int // per message: the events that sent it
	joins    []outcome
	expects  []outcome
	deferred []part
	events   []event
}

// slice is the part of a flow that can change the answer to a question.
type slice struct {
	reactions, joins, expectations []bool
	starts                         []int
}

func (m *model) whole() *slice {
	s := m.nothing()
	for i := range s.reactions {
		s.reactions[i] = true
	}
	for i := range s.joins {
		s.joins[i] = true
	}
	for i := range s.expectations {
		s.expectations[i] = true
	}
	for i := range m.starts {
		s.starts = append(s.starts, i)
	}
	return s
}

func (m *model) nothing() *slice {
	return &slice{
		reactions: make([]bool, len(m.reactions)), joins: make([]bool, len(m.joins)), expectations: make([]bool, len(m.expectations)),
	}
}

// behind returns everything that can decide whether messages are sent.
func (m *model) behind(messages ...int) *slice {
	s, seen := m.nothing(), make([]bool, len(m.messages))
	for queue := messages; len(queue) > 0; {
		id := queue[0]
		queue = queue[1:]
		if seen[id] {
			continue
		}
		seen[id] = true
		for _, p := range m.messages[id].senders {
			i := p.of.index
			switch p.of.kind {
			case aStart:
				if !slices.Contains(s.starts, i) {
					s.starts = append(s.starts, i)
				}
			case aReaction:
				s.reactions[i] = true
				queue = append(slices.Clip(queue), m.reactions[i].on)
			case aJoin:
				s.joins[i] = true
				queue = append(append(slices.Clip(queue), m.joins[i].await...), m.joins[i].broken...)
			case anExpectation:
				s.expectations[i] = true
				queue = append(append(slices.Clip(queue), m.expectations[i].expect...), m.expectations[i].after)
			}
		}
	}
	slices.Sort(s.starts)
	return s
}

// eachRun calls see with the runs of a slice, until see returns false, and with at most most runs. all reports whether no limit
// was reached. It also stops after most*maxSteps steps. It adds its steps to m.steps.
func (m *model) eachRun(in *slice, most int, see func(*run) (more bool)) (all bool) {
	all = true
	n, done := 0, false
	end := m.steps + most*maxSteps
	var follow func(r *run)
	follow = func(r *run) {
		if n >= most {
			all, done = false, true
		}
		if done {
			return
		}
		for {
			if m.steps >= end {
				all, done = false, true
				return
			}
			m.steps += 1 + len(r.events)/64 // a step copies its events
			ways := r.step()
			if ways == nil {
				n++
				done = !see(r)
				return
			}
			// Follow successes first: they answer most questions soon.
			last := len(ways) - 1
			for _, way := range ways[:last] {
				other := r.clone()
				way(other)
				follow(other)
				if done {
					return
				}
			}
			ways[last](r)
		}
	}
	var begin func(r *run, starts []int)
	begin = func(r *run, starts []int) {
		if len(starts) == 0 {
			if len(r.events) > 0 {
				follow(r)
			}
			return
		}
		with := r.clone()
		with.happens(part{aStart, starts[0]}, succeeded, []int{m.starts[starts[0]].message}, nil)
		begin(with, starts[1:])
		if !done {
			begin(r, starts[1:])
		}
	}
	begin(&run{
		m: m, in: in, sent: make([]int, len(m.messages)), handled: make([]uint8, len(m.reactions)), first: make([][]int, len(m.messages)),
		joins: filled(len(m.joins), later), expects: filled(len(m.expectations), later),
	}, in.starts)
	return all
}

func filled(n int, with outcome) []outcome {
	all := make([]outcome, n)
	for i := range all {
		all[i] = with
	}
	return all
}

func (r *run) clone() *run {
	c := *r
	c.queue, c.open = slices.Clone(r.queue), slices.Clone(r.open)
	c.sent, c.handled = slices.Clone(r.sent), slices.Clone(r.handled)
	c.first, c.joins, c.expects = slices.Clone(r.first), slices.Clone(r.joins), slices.Clone(r.expects)
	c.events = slices.Clip(r.events)
	for i, of := range c.first {
		c.first[i] = slices.Clip(of)
	}
	c.deferred = slices.Clip(r.deferred)
	return &c
}

// happens records an outcome and sends its messages.
func (r *run) happens(of part, o outcome, sends, causes []int) {
	e := event{of: of, outcome: o, sent: sends, causes: causes, back: r.turns(of, o)}
	for _, c := range causes {
		e.back = e.back || r.events[c].back
	}
	r.events = append(r.events, e)
	for _, id := range sends {
		r.queue = append(r.queue, delivery{id, len(r.events) - 1})
	}
	r.deferred = nil // deferred parts may have waited for this
}

// turns reports whether an outcome makes the flow compensate.
func (r *run) turns(of part, o outcome) bool {
	return of.kind == aReaction && o == failed && r.m.reactions[of.index].turns ||
		of.kind == aJoin && o == expired && r.m.joins[of.index].turns
}

// step continues as long as there is only one way to go on, and returns the ways to go on from there; nil if the run has ended.
func (r *run) step() []func(*run) {
	for len(r.queue) > 0 {
		d := r.queue[0]
		r.queue = r.queue[1:]
		r.sent[d.message]++
		r.first[d.message] = append(r.first[d.message], d.cause)
		r.deliver(d)
	}
	if len(r.open) > 0 {
		return r.waysOfReaction()
	}
	for i := range r.m.joins {
		if ways := r.waysOfJoin(i); len(ways) > 0 {
			return ways
		}
	}
	for i := range r.m.expectations {
		if ways := r.waysOfExpectation(i); len(ways) > 0 {
			return ways
		}
	}
	if len(r.deferred) > 0 { // nothing more will happen that they could wait for
		r.deferred = nil
		return r.step()
	}
	return nil
}

// deliver delivers a message to its reactions. A reaction that can only succeed does; the outcome of the others is decided later.
func (r *run) deliver(d delivery) {
	for _, i := range r.m.messages[d.message].reactions {
		if !r.in.reactions[i] || r.handled[i] == 2 {
			continue
		}
		r.handled[i]++
		if len(r.m.reactions[i].failure) > 0 {
			r.open = append(r.open, handling{i, d.cause})
			continue
		}
		r.happens(part{aReaction, i}, succeeded, r.m.reactions[i].success, []int{d.cause})
	}
}

// waysOfReaction returns the outcomes of the first reaction that is not decided.
func (r *run) waysOfReaction() []func(*run) {
	h := r.open[0]
	r.open = r.open[1:]
	of, act := part{aReaction, h.reaction}, &r.m.reactions[h.reaction]
	return []func(*run){
		func(r *run) { r.happens(of, succeeded, act.success, []int{h.cause}) },
		func(r *run) { r.happens(of, failed, act.failure, []int{h.cause}) },
	}
}

// waysOfJoin returns the outcomes of a join that has received a message, once no message is on its way.
func (r *run) waysOfJoin(i int) (ways []func(*run)) {
	j, of := &r.m.joins[i], part{aJoin, i}
	if !r.in.joins[i] || r.joins[i] != later || slices.Contains(r.deferred, of) {
		return nil
	}
	heard, lacking := r.heard(j.await)
	over, _ := r.heard(j.broken)
	end := func(o outcome, sends, causes []int) {
		ways = append(ways, func(r *run) {
			r.joins[i] = o
			r.happens(of, o, sends, causes)
		})
	}
	if lacking == 0 {
		end(succeeded, j.success, heard)
	}
	if len(heard) > 0 && j.Within != "" {
		end(expired, j.expired, heard)
	}
	if len(over) > 0 {
		end(broken, nil, over)
	}
	decided := lacking == 0 && len(ways) == 1 && len(j.broken) == 0
	if len(ways) > 0 && !decided && r.othersMayMove(of) {
		ways = append(ways, func(r *run) { r.deferred = append(r.deferred, of) })
	}
	return ways
}

// waysOfExpectation returns the outcomes of an expectation: it is raised, or met in time, or met late, or waits.
func (r *run) waysOfExpectation(i int) (ways []func(*run)) {
	e, of := &r.m.expectations[i], part{anExpectation, i}
	if !r.in.expectations[i] || r.expects[i] != later || r.sent[e.after] == 0 || slices.Contains(r.deferred, of) {
		return nil
	}
	after, _ := r.heard([]int{e.after})
	ways = append(ways, func(r *run) {
		r.expects[i] = raised
		r.happens(of, raised, []int{e.raise}, after)
	})
	heard, _ := r.heard(e.expect)
	if len(heard) > 0 {
		if len(e.late) > 0 {
			ways = append(ways, func(r *run) {
				r.expects[i] = raised
				r.happens(of, raised, append([]int{e.raise}, e.late...), append(slices.Clone(after), heard...))
			})
		}
		return append(ways, func(r *run) { r.expects[i] = met })
	}
	if r.othersMayMove(of) {
		ways = append(ways, func(r *run) { r.deferred = append(r.deferred, of) })
	}
	return ways
}

// othersMayMove reports whether another join or expectation may still decide, so that waiting for it makes a difference.
func (r *run) othersMayMove(than part) bool {
	for i, j := range r.m.joins {
		of := part{aJoin, i}
		if of == than || !r.in.joins[i] || r.joins[i] != later || slices.Contains(r.deferred, of) {
			continue
		}
		heard, lacking := r.heard(j.await)
		over, _ := r.heard(j.broken)
		if lacking == 0 || len(heard) > 0 && j.Within != "" || len(over) > 0 {
			return true
		}
	}
	for i, e := range r.m.expectations {
		of := part{anExpectation, i}
		if of != than && r.in.expectations[i] && r.expects[i] == later && r.sent[e.after] > 0 && !slices.Contains(r.deferred, of) {
			return true
		}
	}
	return false
}

// heard returns the events that sent messages, and how many of the messages have not been sent.
func (r *run) heard(messages []int) (causes []int, lacking int) {
	for _, id := range messages {
		if r.sent[id] == 0 {
			lacking++
			continue
		}
		// If it was sent twice, the one that is not part of the compensation may have arrived first.
		first := r.first[id][0]
		for _, c := range r.first[id] {
			if r.events[first].back && !r.events[c].back {
				first = c
			}
		}
		causes = append(causes, first)
	}
	return causes, lacking
}
