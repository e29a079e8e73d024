package verify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/flow"
)

// A place is the position at which a message is sent: the service, and the path in its file.
type place struct {
	service int
	path    string
	last    bool
	of      part
}

// A part is one start, reaction, join or expectation of a service.
type part struct {
	kind  partKind
	index int // in the model's list of that kind
}

type partKind uint8

const (
	aStart partKind = iota
	aReaction
	aJoin
	anExpectation
)

// A message holds everything that the services declare about one message.
type message struct {
	topic, typ string
	senders    []place
	reactions  []int // reactions that handle it
	awaited    []int // joins that await it
	breaks     []int // joins that it breaks
	after      []int // expectations that count from it
	expected   []int // expectations that it meets
}

type reaction struct {
	flow.Reaction
	service          int
	path             string
	on               int
	success, failure []int
	// undoers holds, by success message, the reactions that undo it.
	undoers map[int][]int
	// turns reports that its failure makes the flow compensate.
	turns bool
}

func (r *reaction) compensates() bool { return len(r.Undoes) > 0 }

type join struct {
	flow.Join
	service                         int
	path                            string
	await, success, expired, broken []int
	turns                           bool // its expiry makes the flow compensate
}

type expectation struct {
	flow.Expectation
	service      int
	path         string
	after, raise int
	expect, late []int
}

type start struct {
	service int
	message int
}

// model is a flow with its messages numbered and linked.
type model struct {
	services     []flow.Declaration
	messages     []message
	ids          map[[2]string]int
	starts       []start
	reactions    []reaction
	joins        []join
	expectations []expectation
	findings     []Finding
	where        []int // the service of each finding

	fed   []bool // messages that some run may send, as far as reach can find out without runs
	facts facts
	steps int // of all runs so far
}

func newModel(services []flow.Declaration) *model {
	m := &model{services: services, ids: make(map[[2]string]int)}
	for s, of := range services {
		for i, msg := range of.Starts {
			id := m.sent(msg, s, fmt.Sprintf("starts[%d]", i), part{aStart, len(m.starts)})
			m.starts = append(m.starts, start{s, id})
		}
		for i, r := range of.Reactions {
			m.addReaction(s, i, r)
		}
		for i, j := range of.Joins {
			m.addJoin(s, i, j)
		}
		for i, e := range of.Expectations {
			m.addExpectation(s, i, e)
		}
	}
	m.tieCompensations()
	m.fed = m.reach()
	return m
}

func (m *model) message(msg flow.Message) int {
	key := [2]string{msg.Topic, msg.Type}
	id, known := m.ids[key]
	if !known {
		id = len(m.messages)
		m.ids[key] = id
		m.messages = append(m.messages, message{topic: msg.Topic, typ: msg.Type})
	}
	return id
}

func (m *model) sent(msg flow.Message, service int, path string, of part) int {
	id := m.message(msg)
	m.messages[id].senders = append(m.messages[id].senders, place{service, path, msg.Last, of})
	return id
}

func (m *model) allSent(ms []flow.Message, service int, path string, of part) (ids []int) {
	for i, msg := range ms {
		ids = append(ids, m.sent(msg, service, fmt.Sprintf("%s[%d]", path, i), of))
	}
	return ids
}

func (m *model) addReaction(s, i int, r flow.Reaction) {
	n, path := len(m.reactions), fmt.Sprintf("reactions[%d]", i)
	of := part{aReaction, n}
	one := reaction{Reaction: r, service: s, path: path, on: m.message(r.On)}
	one.success = m.allSent(r.Success, s, path+".success", of)
	one.failure = m.allSent(r.Failure, s, path+".failure", of)
	one.turns = len(r.Undoes) == 0 && slices.ContainsFunc(r.Failure, func(f flow.Message) bool { return !f.Last })
	m.messages[one.on].reactions = append(m.messages[one.on].reactions, n)
	m.reactions = append(m.reactions, one)
}

func (m *model) addJoin(s, i int, j flow.Join) {
	n, path := len(m.joins), fmt.Sprintf("joins[%d]", i)
	of := part{aJoin, n}
	one := join{Join: j, service: s, path: path}
	one.success = m.allSent(j.Success, s, path+".success", of)
	one.expired = m.allSent(j.Expired, s, path+".expired", of)
	one.turns = j.Within != "" && (len(j.Expired) == 0 || slices.ContainsFunc(j.Expired, func(e flow.Message) bool { return !e.Last }))
	for _, msg := range j.Await {
		id := m.message(msg)
		one.await = append(one.await, id)
		m.messages[id].awaited = append(m.messages[id].awaited, n)
	}
	for _, msg := range j.Broken {
		id := m.message(msg)
		one.broken = append(one.broken, id)
		m.messages[id].breaks = append(m.messages[id].breaks, n)
	}
	m.joins = append(m.joins, one)
}

func (m *model) addExpectation(s, i int, e flow.Expectation) {
	n, path := len(m.expectations), fmt.Sprintf("expectations[%d]", i)
	one := expectation{Expectation: e, service: s, path: path, after: m.message(e.After)}
	one.raise = m.sent(e.Raise, s, path+".raise", part{anExpectation, n})
	m.messages[one.after].after = append(m.messages[one.after].after, n)
	for _, msg := range e.Expect {
		id := m.message(msg)
		one.expect = append(one.expect, id)
		m.messages[id].expected = append(m.messages[id].expected, n)
	}
	for k, msg := range e.Late {
		one.late = append(one.late, m.sent(msg, s, fmt.Sprintf("%s.late[%d]", path, k), part{anExpectation, n}))
	}
	m.expectations = append(m.expectations, one)
}

// tieCompensations finds, for each success event of a reaction, the reactions of the same service that undo it.
func (m *model) tieCompensations() {
	for i := range m.reactions {
		r := &m.reactions[i]
		r.undoers = make(map[int][]int)
		for k, u := range m.reactions {
			if u.service != r.service {
				continue
			}
			for _, msg := range r.success {
				if slices.Contains(u.Undoes, m.messages[msg].typ) {
					r.undoers[msg] = append(r.undoers[msg], k)
				}
			}
		}
	}
}

// reach returns the messages that may be sent, if every reaction can take every outcome in one run.
func (m *model) reach() []bool {
	fed := make([]bool, len(m.messages))
	all := func(ids []int) bool { return !slices.ContainsFunc(ids, func(id int) bool { return !fed[id] }) }
	some := func(ids []int) bool { return slices.ContainsFunc(ids, func(id int) bool { return fed[id] }) }
	for changed := true; changed; {
		changed = false
		send := func(ids ...int) {
			for _, id := range ids {
				changed = changed || !fed[id]
				fed[id] = true
			}
		}
		for _, s := range m.starts {
			send(s.message)
		}
		for _, r := range m.reactions {
			if fed[r.on] {
				send(r.success...)
				send(r.failure...)
			}
		}
		for _, j := range m.joins {
			if all(j.await) {
				send(j.success...)
			}
			if some(j.await) && j.Within != "" {
				send(j.expired...)
			}
		}
		for _, e := range m.expectations {
			if fed[e.after] {
				send(e.raise)
				if some(e.expect) {
					send(e.late...)
				}
			}
		}
	}
	return fed
}

// hop returns the name of a service's hop.
func (m *model) hop(service int) string { return m.services[service].Hop }

// types lists the types of messages as text.
func (m *model) types(ids []int) string {
	var all []string
	for _, id := range ids {
		if typ := m.messages[id].typ; !slices.Contains(all, typ) {
			all = append(all, typ)
		}
	}
	return inWords(all, "and")
}

// inWords lists names as text: a, b and c.
func inWords(names []string, and string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " " + and + " " + names[len(names)-1]
}
