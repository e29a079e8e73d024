package verify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/topics"
)

func sameHop(m *model) {
	first := make(map[string]bool)
	for i, s := range m.services {
		if first[s.Hop] {
			m.report("same-hop", i, "hop", nil, nil, "another file says what %s does: make them one, or give one of them a hop of its own", s.Hop)
		}
		first[s.Hop] = true
	}
}

// consumers finds messages that are sent and that no service reacts to.
func consumers(m *model) {
	for id, msg := range m.messages {
		if len(msg.reactions)+len(msg.awaited)+len(msg.breaks) > 0 {
			continue
		}
		for _, p := range msg.senders {
			switch {
			case p.last:
			case p.of.kind == aReaction && strings.Contains(p.path, ".failure[") && !m.reactions[p.of.index].compensates():
				m.report("no-failure-consumer", p.service, p.path, []int{id}, nil,
					"no service reacts to %s, so that the effects of earlier services remain%s; let them react and compensate, or mark it last where nothing has to be undone",
					msg.typ, m.elsewhere(id))
			default:
				m.report("no-consumer", p.service, p.path, []int{id}, nil, "%s%s; let a service react to it, or mark it last where a flow may end with it",
					m.unheard(id), m.elsewhere(id))
			}
		}
	}
}

// unheard explains why a message has no consumer.
func (m *model) unheard(id int) string {
	msg := m.messages[id]
	t, err := topics.Parse(msg.topic)
	switch {
	case err == nil && t.Kind == topics.Commands && !m.has(t.Hop.String()):
		return msg.typ + " is a command to " + t.Hop.String() + ", of which no service here speaks"
	case err == nil && t.Kind == topics.Commands:
		return t.Hop.String() + " does not handle " + msg.typ
	case len(msg.expected)+len(msg.after) > 0:
		return msg.typ + " is expected and nothing more: to expect is not to react"
	}
	return "no service reacts to " + msg.typ
}

func (m *model) has(hop string) bool {
	for _, s := range m.services {
		if s.Hop == hop {
			return true
		}
	}
	return false
}

// elsewhere returns a hint if a type is consumed on another topic where it is not sent, which is probably a slip.
func (m *model) elsewhere(id int) string {
	for other, msg := range m.messages {
		if other == id || msg.typ != m.messages[id].typ || len(msg.senders) > 0 {
			continue
		}
		return " (a service waits for it on " + msg.topic + ")"
	}
	return ""
}

// feeders finds reactions, joins and expectations that wait for messages without a sender.
func feeders(m *model) {
	unsent := func(id int) bool { return len(m.messages[id].senders) == 0 && !m.gaveUp(id) }
	report := func(service int, path string, id int) {
		m.report("no-producer", service, path, []int{id}, nil, "no service sends %s on %s%s; mend the name or the topic, or give it a sender",
			m.messages[id].typ, m.messages[id].topic, m.hint(id))
	}
	for _, r := range m.reactions {
		if unsent(r.on) {
			report(r.service, r.path+".on", r.on)
		}
	}
	for _, j := range m.joins {
		for k, id := range j.broken {
			if unsent(id) {
				report(j.service, indexed(j.path+".broken", k), id)
			}
		}
	}
	for _, e := range m.expectations {
		if unsent(e.after) {
			report(e.service, e.path+".after", e.after)
		}
		if !slices.ContainsFunc(e.expect, func(id int) bool { return !unsent(id) }) {
			continue // it is never met, which is reported as such
		}
		for k, id := range e.expect {
			if unsent(id) {
				report(e.service, indexed(e.path+".expect", k), id)
			}
		}
	}
}

// exhausted is the type of the event with which any hop reports that it made a message a dead letter. No declaration names it.
const exhausted = "troupe.Exhausted"

func (m *model) gaveUp(id int) bool {
	t, err := topics.Parse(m.messages[id].topic)
	return err == nil && t.Kind == topics.Events && m.messages[id].typ == exhausted && m.has(t.Hop.String())
}

// hint names the messages that exist instead of a message without a sender.
func (m *model) hint(id int) string {
	var there []string
	for other, msg := range m.messages {
		switch {
		case other == id || len(msg.senders) == 0:
		case msg.typ == m.messages[id].typ:
			return " (it is sent on " + msg.topic + ")"
		case msg.topic == m.messages[id].topic:
			there = append(there, msg.typ)
		}
	}
	if len(there) == 0 {
		return ", nor anything else"
	}
	if len(there) > 8 {
		there = append(there[:8], "others")
	}
	return ", which carries " + inWords(there, "and")
}

// beginsNowhere finds services that only feed each other.
func beginsNowhere(m *model) {
	told := make([]bool, len(m.messages))
	tell := func(service int, path string, id int) {
		if m.fed[id] || told[id] {
			return
		}
		why := m.whyUnfed(id)
		if why.unsent || len(why.joins) > 0 {
			return // reported there
		}
		for _, other := range why.messages {
			told[other] = true
		}
		m.report("no-producer", service, path, []int{id}, nil,
			"%s comes only of itself: no flow begins with anything that leads to it; name what begins one in starts of its service",
			m.messages[id].typ)
	}
	for _, r := range m.reactions {
		tell(r.service, r.path+".on", r.on)
	}
	for _, e := range m.expectations {
		tell(e.service, e.path+".after", e.after)
	}
}

// unfed explains why a message is never sent.
type unfed struct {
	messages []int
	joins    []int // joins that lack one of them
	unsent   bool  // one of them has no sender
}

func (m *model) whyUnfed(id int) (why unfed) {
	why.messages = []int{id}
	for k := 0; k < len(why.messages); k++ {
		add := func(ids ...int) {
			for _, id := range ids {
				if !m.fed[id] && !slices.Contains(why.messages, id) {
					why.messages = append(why.messages, id)
				}
			}
		}
		senders := m.messages[why.messages[k]].senders
		why.unsent = why.unsent || len(senders) == 0
		for _, p := range senders {
			switch p.of.kind {
			case aReaction:
				add(m.reactions[p.of.index].on)
			case aJoin:
				if !slices.Contains(why.joins, p.of.index) {
					why.joins = append(why.joins, p.of.index)
				}
				add(m.joins[p.of.index].await...)
			case anExpectation:
				add(m.expectations[p.of.index].after)
			}
		}
	}
	return why
}

func indexed(path string, k int) string { return path + fmt.Sprintf("[%d]", k) }
