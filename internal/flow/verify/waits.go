package verify

import (
	"slices"
	"time"
)

func joins(m *model) {
	for i, j := range m.joins {
		switch {
		case slices.ContainsFunc(j.await, func(id int) bool { return len(m.messages[id].senders) == 0 }):
			for k, id := range j.await {
				if len(m.messages[id].senders) == 0 {
					m.report("join-never", j.service, indexed(j.path+".await", k), []int{id}, nil,
						"join %s can never be complete: no service sends %s on %s%s; mend the name or the topic, or give it a sender",
						j.Name, m.messages[id].typ, m.messages[id].topic, m.hint(id))
				}
			}
		case slices.ContainsFunc(j.await, func(id int) bool { return !m.fed[id] }):
			m.joinOfItself(i)
		case !m.facts.completed[i] && !m.facts.short[part{aJoin, i}]:
			m.joinNever(i)
		case m.facts.stuck[i] != nil:
			m.joinStuck(i)
		}
	}
}

// joinOfItself finds messages of a join that are sent only after the join. If something else is missing, it is reported there.
func (m *model) joinOfItself(i int) {
	j := m.joins[i]
	for k, id := range j.await {
		if m.fed[id] {
			continue
		}
		if why := m.whyUnfed(id); !why.unsent && slices.Contains(why.joins, i) {
			m.report("join-never", j.service, indexed(j.path+".await", k), []int{id}, nil,
				"join %s can never be complete: %s comes only after the join itself; await messages that come before it", j.Name, m.messages[id].typ)
		}
	}
}

func (m *model) joinNever(i int) {
	j := m.joins[i]
	for k, a := range j.await {
		for _, b := range j.await[k+1:] {
			if !m.facts.together[i][[2]int{a, b}] {
				m.report("join-never", j.service, j.path+".await", []int{a, b}, nil,
					"join %s can never be complete: no run sends both %s and %s, since they are of branches that exclude each other; await what both branches lead to",
					j.Name, m.messages[a].typ, m.messages[b].typ)
				return
			}
		}
	}
	m.report("join-never", j.service, j.path+".await", j.await, nil,
		"join %s can never be complete: no run sends all of %s; await messages of one run", j.Name, m.types(j.await))
}

func (m *model) joinStuck(i int) {
	j, r := m.joins[i], m.facts.stuck[i]
	var here, lacking []int
	for _, id := range j.await {
		if r.sent[id] == 0 {
			lacking = append(lacking, id)
		} else {
			here = append(here, id)
		}
	}
	events, _ := r.heard(here)
	behind := m.behind(lacking...)
	for k, e := range r.events { // the reasons why they are not sent
		if e.of.kind == aReaction && e.outcome == failed && behind.reactions[e.of.index] {
			events = append(events, k)
		}
	}
	m.report("join-stuck", j.service, j.path, append(here, lacking...), r.trace(events...),
		"join %s may have %s and wait for %s for ever; give it within, or name in broken what says that it will not come",
		j.Name, m.types(here), m.types(lacking))
}

func expectations(m *model) {
	for i, e := range m.expectations {
		unsent := !slices.ContainsFunc(e.expect, func(id int) bool { return len(m.messages[id].senders) > 0 })
		switch {
		case !m.fed[e.after]:
		case unsent:
			m.report("expectation-never", e.service, e.path+".expect", e.expect, nil,
				"%s is never met: no service sends %s%s; mend the name or the topic, or give it a sender",
				e.Name, m.types(e.expect), m.hint(e.expect[0]))
		case m.facts.awaited[i] && !m.facts.met[i] && !m.facts.short[part{anExpectation, i}]:
			m.report("expectation-never", e.service, e.path+".expect", append([]int{e.after}, e.expect...), nil,
				"%s is never met: no run that sends %s also sends %s; expect what can come after it", e.Name, e.After.Type, m.types(e.expect))
		}
	}
}

// belowJoins reports expectations of messages that follow an expired join, if the expectation's time is shorter than the join's.
func belowJoins(m *model) {
	for _, e := range m.expectations {
		for _, j := range m.joins {
			if j.Within == "" || duration(e.Within) >= duration(j.Within) {
				continue
			}
			late := m.following(j.expired)
			k := slices.IndexFunc(e.expect, func(id int) bool { return late[id] })
			if k < 0 || late[e.after] || m.following(j.success)[e.after] {
				continue
			}
			m.report("expectation-below-join", e.service, e.path+".within", []int{e.after, e.expect[k]}, nil,
				"%s expires after %s, and %s may come when join %s has expired, after %s: set a longer time", e.Name, e.Within, m.messages[e.expect[k]].typ, j.Name, j.Within)
			break
		}
	}
}

// following returns the messages in first, and all messages that reactions to them may send.
func (m *model) following(first []int) map[int]bool {
	all := make(map[int]bool)
	for next := slices.Clone(first); len(next) > 0; next = next[1:] {
		if all[next[0]] {
			continue
		}
		all[next[0]] = true
		for _, r := range m.messages[next[0]].reactions {
			next = append(next, m.reactions[r].success...)
			next = append(next, m.reactions[r].failure...)
		}
	}
	return all
}

// duration reads a duration that package flow has checked.
func duration(text string) time.Duration {
	d, _ := time.ParseDuration(text)
	return d
}

// undone reports effects that are not undone. There is one finding per reaction, which names all failures before, after or in
// parallel.
func undone(m *model) {
	for i, r := range m.reactions {
		var turns []part
		for _, t := range m.turns() {
			if _, left := m.facts.left[[2]part{{aReaction, i}, t}]; left && m.heardOf(t) {
				turns = append(turns, t)
			}
		}
		if len(turns) == 0 {
			continue
		}
		w := m.facts.left[[2]part{{aReaction, i}, turns[0]}]
		var names []string
		messages := slices.Clone(w.kept)
		for _, t := range turns {
			name, sent := m.turn(t)
			names, messages = append(names, name), append(messages, sent...)
		}
		kept := m.types(w.kept)
		m.report("missing-undo", r.service, r.path, messages, w.run.trace(w.events...),
			"its effect remains when %s: no reaction that undoes %s is reached; let %s react to the failure and name it in undoes, or give the reason in irreversible",
			inWords(names, "or"), kept, m.hop(r.service))
	}
}

// turn describes the failure that makes the flow compensate, and returns the messages that it sends.
func (m *model) turn(t part) (string, []int) {
	if t.kind == aReaction {
		r := m.reactions[t.index]
		return m.hop(r.service) + " sends " + m.types(r.failure), r.failure
	}
	j := m.joins[t.index]
	return "join " + j.Name + " of " + m.hop(j.service) + " is out of time", j.expired
}

// heardOf reports whether a service reacts to a failure. If none does, this must be corrected first, and is reported as such.
func (m *model) heardOf(t part) bool {
	if t.kind == aJoin {
		return true
	}
	return slices.ContainsFunc(m.reactions[t.index].failure, func(id int) bool {
		msg := m.messages[id]
		return len(msg.reactions)+len(msg.awaited)+len(msg.breaks) > 0
	})
}

func tooMany(m *model) {
	told := make(map[int]bool)
	tell := func(p part, service int, path string) {
		if m.facts.short[p] && !told[service] {
			told[service] = true
			m.report("too-many-cases", service, path, nil, nil,
				"outcomes before it can be combined in too many ways, and not all were looked at; split the flow, or join earlier")
		}
	}
	for i, r := range m.reactions {
		tell(part{aReaction, i}, r.service, r.path)
	}
	for i, j := range m.joins {
		tell(part{aJoin, i}, j.service, j.path)
	}
	for i, e := range m.expectations {
		tell(part{anExpectation, i}, e.service, e.path)
	}
}
