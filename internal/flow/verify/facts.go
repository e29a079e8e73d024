package verify

import (
	"fmt"
	"slices"
)

// facts are observations from the runs of a flow.
type facts struct {
	completed []bool              // by join: all its messages arrived
	together  []map[[2]int]bool   // by join: the pairs of its messages that arrived in one run
	stuck     []*run              // by join: the shortest run in which it received a message and waits for ever
	awaited   []bool              // by expectation: its time began
	met       []bool              // by expectation: it could be met
	left      map[[2]part]witness // an effect that is not undone, and the failure before, after or in parallel
	short     map[part]bool       // parts of which not all runs were checked
}

// A witness is a run, and the events in it that matter.
type witness struct {
	run    *run
	events []int
	kept   []int // messages whose effect nothing undoes
}

// look collects the facts: from the runs of the whole flow if they are few enough, else question by question.
func (m *model) look() {
	m.facts = facts{
		completed: make([]bool, len(m.joins)), together: make([]map[[2]int]bool, len(m.joins)), stuck: make([]*run, len(m.joins)),
		awaited: make([]bool, len(m.expectations)), met: make([]bool, len(m.expectations)),
		left: make(map[[2]part]witness), short: make(map[part]bool),
	}
	for i := range m.joins {
		m.facts.together[i] = make(map[[2]int]bool)
	}
	all := m.eachRun(m.whole(), maxCases, func(r *run) bool {
		for i := range m.joins {
			m.seeJoin(i, r)
		}
		for i := range m.expectations {
			m.seeExpectation(i, r)
		}
		m.seeLeft(r, nil)
		return true
	})
	if all {
		return
	}
	used, asked := m.steps, make(map[part]bool)
	ask := func(about part, in func() *slice, see func(*run) (more bool)) {
		budget := maxTogether - (m.steps-used+maxSteps-1)/maxSteps
		if budget < minOfOne && asked[about] {
			m.facts.short[about] = true
			return
		}
		asked[about] = true
		all := m.eachRun(in(), max(minOfOne, min(budget, maxOfOne)), see)
		m.facts.short[about] = m.facts.short[about] || !all
	}
	for i, j := range m.joins {
		in := func() *slice {
			in := m.behind(append(slices.Clip(j.await), j.broken...)...)
			in.joins[i] = true
			return in
		}
		ask(part{aJoin, i}, in, func(r *run) bool {
			m.seeJoin(i, r)
			return !m.facts.completed[i] || j.Within == "" && m.facts.stuck[i] == nil
		})
	}
	for i, e := range m.expectations {
		in := func() *slice { return m.behind(append(slices.Clip(e.expect), e.after)...) }
		ask(part{anExpectation, i}, in, func(r *run) bool {
			m.seeExpectation(i, r)
			return !m.facts.met[i]
		})
	}
	m.askWhatIsLeft(ask)
}

// askWhatIsLeft checks each reaction with an effect together with each failure that makes the flow compensate, if both can follow
// from one start.
func (m *model) askWhatIsLeft(ask func(part, func() *slice, func(*run) bool)) {
	turns := m.turns()
	starts := make([][]int, len(turns)) // by turn: the starts from which it may follow
	for k, turn := range turns {
		starts[k] = m.behind(m.heardBy(turn)...).starts
	}
	for i := range m.reactions {
		done := &m.reactions[i]
		if !done.staysDone() {
			continue
		}
		with := []int{done.on}
		for _, undoers := range done.undoers {
			for _, u := range undoers {
				with = append(with, m.reactions[u].on)
			}
		}
		first := m.behind(done.on).starts
		for k, turn := range turns {
			if !slices.ContainsFunc(starts[k], func(s int) bool { return slices.Contains(first, s) }) {
				continue
			}
			in := func() *slice {
				in := m.behind(append(slices.Clip(with), m.heardBy(turn)...)...)
				in.reactions[i] = true
				for _, undoers := range done.undoers {
					for _, u := range undoers {
						in.reactions[u] = true
					}
				}
				if turn.kind == aReaction {
					in.reactions[turn.index] = true
				} else {
					in.joins[turn.index] = true
				}
				return in
			}
			asked := [2]part{{aReaction, i}, turn}
			ask(part{aReaction, i}, in, func(r *run) bool {
				m.seeLeft(r, &asked)
				_, left := m.facts.left[asked]
				return !left
			})
		}
	}
}

// turns returns the reactions and joins whose failure makes the flow compensate.
func (m *model) turns() (all []part) {
	for i, r := range m.reactions {
		if r.turns {
			all = append(all, part{aReaction, i})
		}
	}
	for i, j := range m.joins {
		if j.turns {
			all = append(all, part{aJoin, i})
		}
	}
	return all
}

func (m *model) heardBy(p part) []int {
	if p.kind == aReaction {
		return []int{m.reactions[p.index].on}
	}
	return append(slices.Clip(m.joins[p.index].await), m.joins[p.index].broken...)
}

// staysDone reports whether the effect of a reaction must be undone by another one.
func (r *reaction) staysDone() bool {
	return len(r.success) > 0 && !r.compensates() && r.Irreversible == ""
}

func (m *model) seeJoin(i int, r *run) {
	j := &m.joins[i]
	if r.joins[i] == succeeded {
		m.facts.completed[i] = true
	}
	heard := 0
	for k, a := range j.await {
		if r.sent[a] == 0 {
			continue
		}
		heard++
		for _, b := range j.await[k+1:] {
			if r.sent[b] > 0 {
				m.facts.together[i][[2]int{a, b}] = true
			}
		}
	}
	shortest := m.facts.stuck[i]
	if heard > 0 && r.joins[i] == later && (shortest == nil || len(r.events) < len(shortest.events)) {
		m.facts.stuck[i] = r
	}
}

func (m *model) seeExpectation(i int, r *run) {
	e := &m.expectations[i]
	if r.sent[e.after] == 0 {
		return
	}
	m.facts.awaited[i] = true
	if slices.ContainsFunc(e.expect, func(id int) bool { return r.sent[id] > 0 }) {
		m.facts.met[i] = true
	}
}

// seeLeft finds effects that a compensating run does not undo. If a compensation fails too, it finds none: an operator must act,
// and the failure event of the compensation reports it. If only one pair is checked, the compensations of other effects may not
// be in the run.
func (m *model) seeLeft(r *run, only *[2]part) {
	var done, turned []int
	for k, e := range r.events {
		switch {
		case r.turns(e.of, e.outcome):
			turned = append(turned, k)
		case e.of.kind != aReaction:
		case e.outcome == failed && m.reactions[e.of.index].compensates():
			return
		case e.outcome == succeeded && !e.back && m.reactions[e.of.index].staysDone():
			done = append(done, k)
		}
	}
	for _, d := range done {
		var kept []int
		act := &m.reactions[r.events[d].of.index]
		for _, id := range act.success {
			if !slices.ContainsFunc(act.undoers[id], func(u int) bool { return r.handled[u] > 0 }) {
				kept = append(kept, id)
			}
		}
		if len(kept) == 0 {
			continue
		}
		for _, t := range turned {
			key := [2]part{r.events[d].of, r.events[t].of}
			if only != nil && key != *only {
				continue
			}
			if w, known := m.facts.left[key]; !known || len(r.events) < len(w.run.events) {
				m.facts.left[key] = witness{r, []int{d, t}, kept}
			}
		}
	}
}

// trace describes how a run reaches some of its events.
func (r *run) trace(events ...int) (lines []string) {
	on := make(map[int]bool)
	for len(events) > 0 {
		k := events[0]
		events = events[1:]
		if !on[k] {
			on[k] = true
			events = append(slices.Clip(events), r.events[k].causes...)
		}
	}
	for k, e := range r.events {
		if on[k] {
			lines = append(lines, r.m.told(e))
		}
	}
	return lines
}

// told describes an event.
func (m *model) told(e event) string {
	sends := m.types(e.sent)
	if sends == "" {
		sends = "nothing"
	}
	switch i := e.of.index; e.of.kind {
	case aStart:
		return fmt.Sprintf("%s: sends %s", m.hop(m.starts[i].service), sends)
	case aReaction:
		how := "sends"
		if e.outcome == failed {
			how = "fails and sends"
		}
		return fmt.Sprintf("%s: %s → %s %s", m.hop(m.reactions[i].service), m.reactions[i].On.Type, how, sends)
	case aJoin:
		how := map[outcome]string{succeeded: "has all and sends", expired: "is out of time and sends", broken: "is broken and sends"}[e.outcome]
		return fmt.Sprintf("%s: join %s %s %s", m.hop(m.joins[i].service), m.joins[i].Name, how, sends)
	}
	e2 := m.expectations[e.of.index]
	return fmt.Sprintf("%s: %s did not come and it sends %s", m.hop(e2.service), e2.Name, sends)
}
