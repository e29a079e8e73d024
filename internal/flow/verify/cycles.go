package verify

import (
	"slices"
)

// next calls see with each reaction to id and each message that this reaction may send.
func (m *model) next(id int, see func(reaction, message int)) {
	for _, i := range m.messages[id].reactions {
		for _, to := range m.reactions[i].success {
			see(i, to)
		}
		for _, to := range m.reactions[i].failure {
			see(i, to)
		}
	}
}

// cycles finds messages that lead to themselves by reactions. A join and an expectation send once per key, so they cannot be part
// of an endless cycle.
func cycles(m *model) {
	ends := m.ends()
	for _, loop := range m.loops() {
		if !m.fed[loop[0]] {
			continue
		}
		round := m.round(loop)
		first := round[0]
		var trace []string
		endless := false
		for _, step := range round {
			r := m.reactions[step.reaction]
			trace = append(trace, m.hop(r.service)+": "+r.On.Type+" → "+m.messages[step.to].typ)
			endless = endless || !ends[r.on]
		}
		r := m.reactions[first.reaction]
		if endless {
			m.report("endless-cycle", r.service, r.path, loop, trace,
				"%s leads to itself, whatever comes of it; let one outcome on the way send something else, or nothing", r.On.Type)
			continue
		}
		m.report("cycle", r.service, r.path, loop, trace,
			"%s leads to itself without a limit; count the rounds in the messages and fail at a limit, or remove one edge", r.On.Type)
	}
}

// ends returns the messages after which a flow can end: each reaction to them has an outcome after all of whose messages it can
// end.
func (m *model) ends() []bool {
	ends := make([]bool, len(m.messages))
	all := func(ids []int) bool { return !slices.ContainsFunc(ids, func(id int) bool { return !ends[id] }) }
	for changed := true; changed; {
		changed = false
		for id := range m.messages {
			if ends[id] {
				continue
			}
			stays := slices.ContainsFunc(m.messages[id].reactions, func(i int) bool {
				r := &m.reactions[i]
				return !all(r.success) && (len(r.failure) == 0 || !all(r.failure))
			})
			if !stays {
				ends[id], changed = true, true
			}
		}
	}
	return ends
}

// loops returns the sets of messages in which each message leads to all of its set, by Tarjan's algorithm.
func (m *model) loops() (all [][]int) {
	index, low := make([]int, len(m.messages)), make([]int, len(m.messages))
	var stack []int
	on := make([]bool, len(m.messages))
	counter := 0
	var visit func(id int)
	visit = func(id int) {
		counter++
		index[id], low[id] = counter, counter
		stack, on[id] = append(stack, id), true
		self := false
		m.next(id, func(_, to int) {
			self = self || to == id
			switch {
			case index[to] == 0:
				visit(to)
				low[id] = min(low[id], low[to])
			case on[to]:
				low[id] = min(low[id], index[to])
			}
		})
		if low[id] != index[id] {
			return
		}
		from := slices.Index(stack, id)
		loop := slices.Clone(stack[from:])
		stack = stack[:from]
		for _, member := range loop {
			on[member] = false
		}
		if len(loop) > 1 || self {
			slices.Sort(loop)
			all = append(all, loop)
		}
	}
	for id := range m.messages {
		if index[id] == 0 {
			visit(id)
		}
	}
	return all
}

// An edge is a reaction with one message that it sends.
type edge struct{ reaction, to int }

// round returns the shortest path in a loop from its first message back to it.
func (m *model) round(loop []int) (way []edge) {
	return m.way(loop[0], loop[0], func(id int) bool { return slices.Contains(loop, id) })
}

// way returns the shortest path from one message to another, at least one edge long, through messages that use accepts.
func (m *model) way(from, to int, use func(int) bool) (way []edge) {
	type step struct {
		at     int
		before *step
		by     edge
	}
	seen := make([]bool, len(m.messages))
	for queue := []*step{{at: from}}; len(queue) > 0; queue = queue[1:] {
		var end *step
		m.next(queue[0].at, func(i, next int) {
			s := &step{next, queue[0], edge{i, next}}
			if next == to && end == nil {
				end = s
			}
			if !seen[next] && use(next) {
				seen[next] = true
				queue = append(queue, s)
			}
		})
		for s := end; s != nil && s.before != nil; s = s.before {
			way = append(way, s.by)
		}
		if end != nil {
			slices.Reverse(way)
			return way
		}
	}
	return nil
}

// retryOwners finds messages that a participant retries and that the flow sends again after the failure.
func retryOwners(m *model) {
	anywhere := func(int) bool { return true }
	for _, r := range m.reactions {
		if r.Attempts == 1 {
			continue
		}
		for _, f := range r.failure {
			var trace []string
			for _, e := range m.way(f, r.on, anywhere) {
				trace = append(trace, m.hop(m.reactions[e.reaction].service)+": "+m.reactions[e.reaction].On.Type+" → "+m.messages[e.to].typ)
			}
			if len(trace) == 0 && f != r.on {
				continue
			}
			trace = append([]string{m.hop(r.service) + ": " + r.On.Type + " → fails and sends " + m.messages[f].typ}, trace...)
			m.report("retry-owners", r.service, r.path, []int{r.on, f}, trace,
				"%s tries %s again itself, and after %s the flow sends it again; set attempts to 1 here, or do not send it again",
				m.hop(r.service), r.On.Type, m.messages[f].typ)
			break
		}
	}
	for _, e := range m.expectations {
		m.retriedByExpectation(e)
	}
}

// retriedByExpectation finds a message that a participant retries and that the flow sends again when its answer does not arrive
// in time.
func (m *model) retriedByExpectation(e expectation) {
	for _, i := range m.messages[e.after].reactions {
		r := m.reactions[i]
		answers := slices.ContainsFunc(e.expect, func(id int) bool { return slices.Contains(r.success, id) || slices.Contains(r.failure, id) })
		if r.Attempts == 1 || !answers {
			continue
		}
		way := m.way(e.raise, e.after, func(int) bool { return true })
		if len(way) == 0 && e.raise != e.after {
			continue
		}
		trace := []string{m.hop(e.service) + ": " + e.Name + " did not come and it sends " + e.Raise.Type}
		for _, s := range way {
			trace = append(trace, m.hop(m.reactions[s.reaction].service)+": "+m.reactions[s.reaction].On.Type+" → "+m.messages[s.to].typ)
		}
		m.report("retry-owners", e.service, e.path, []int{e.after, e.raise}, trace,
			"%s tries %s again itself, and when its answer is late the flow sends it again; set attempts to 1 there, or do not send it again",
			m.hop(r.service), r.On.Type)
		return
	}
}
