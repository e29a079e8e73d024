// Package graph draws a flow without an orchestrator from the declarations of its services: as a flowchart for pages that
// render Mermaid, and as an SVG that needs no other file. It neither runs a flow nor checks whether it is sound; package
// verify does that.
package graph

import (
	"slices"
	"strings"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/topics"
)

// A kind is the reason why a message is sent.
type kind uint8

const (
	plain   kind = iota
	failure      // a reaction's failure, or a time limit that has expired
	undoing      // sent by a compensation
)

// A sending is one message of one service, with its receivers.
type sending struct {
	message flow.Message
	kind    kind
	from    int
	by      string // the join or expectation that sends it; "" for a start or a reaction
	to      []hearing
	start   bool
}

// A hearing is a service that receives a message.
type hearing struct {
	service int
	by      string // the join or expectation that receives it; "" for a reaction
}

// sendings returns all messages of a flow, ordered by their distance from a start.
func sendings(services []flow.Declaration) []sending {
	var all []sending
	add := func(s sending) {
		last := s.message.Last
		s.message.Last = false
		s.to = hearers(services, s.message)
		for i, have := range all {
			if have.message.Topic == s.message.Topic && have.message.Type == s.message.Type && have.from == s.from && have.by == s.by {
				all[i].kind, all[i].start = min(have.kind, s.kind), have.start || s.start
				all[i].message.Last = have.message.Last || last
				return
			}
		}
		s.message.Last = last
		all = append(all, s)
	}
	each(services, func(s sending, _ []flow.Message) { add(s) })
	depth := depths(services)
	slices.SortStableFunc(all, func(a, b sending) int { return depth[key(a.message)] - depth[key(b.message)] })
	return all
}

// each calls see for each message that services send, with the messages that cause it.
func each(services []flow.Declaration, see func(s sending, of []flow.Message)) {
	for i, s := range services {
		for _, m := range s.Starts {
			see(sending{message: m, from: i, start: true}, nil)
		}
		for _, r := range s.Reactions {
			of, how := []flow.Message{r.On}, plain
			if len(r.Undoes) > 0 {
				how = undoing
			}
			for _, m := range r.Success {
				see(sending{message: m, from: i, kind: how}, of)
			}
			for _, m := range r.Failure {
				see(sending{message: m, from: i, kind: failure}, of)
			}
		}
		for _, j := range s.Joins {
			for _, m := range j.Success {
				see(sending{message: m, from: i, by: j.Name}, j.Await)
			}
			for _, m := range j.Expired {
				see(sending{message: m, from: i, by: j.Name, kind: failure}, j.Await)
			}
		}
		for _, e := range s.Expectations {
			see(sending{message: e.Raise, from: i, by: e.Name, kind: failure}, []flow.Message{e.After})
			for _, m := range e.Late {
				see(sending{message: m, from: i, by: e.Name}, e.Expect)
			}
		}
	}
}

func key(m flow.Message) string { return m.Topic + " " + m.Type }

// depths returns the distance of messages from a start. A message with several causes is one step after the farthest of them.
// A message that no start leads to comes last.
func depths(services []flow.Declaration) map[string]int {
	const far = 1 << 20
	depth := make(map[string]int)
	each(services, func(s sending, of []flow.Message) { depth[key(s.message)] = far })
	for changed := true; changed; {
		changed = false
		each(services, func(s sending, of []flow.Message) {
			d := 0
			for _, m := range of {
				at, known := depth[key(m)]
				if !known {
					at = far
				}
				d = max(d, at+1)
			}
			if at := key(s.message); d < depth[at] {
				depth[at], changed = d, true
			}
		})
	}
	return depth
}

func hearers(services []flow.Declaration, m flow.Message) (to []hearing) {
	is := func(other flow.Message) bool { return key(other) == key(m) }
	add := func(h hearing) {
		if !slices.Contains(to, h) {
			to = append(to, h)
		}
	}
	for i, s := range services {
		for _, r := range s.Reactions {
			if is(r.On) {
				add(hearing{service: i})
			}
		}
		for _, j := range s.Joins {
			if slices.ContainsFunc(j.Await, is) || slices.ContainsFunc(j.Broken, is) {
				add(hearing{i, j.Name})
			}
		}
		for _, e := range s.Expectations {
			if is(e.After) || slices.ContainsFunc(e.Expect, is) {
				add(hearing{i, e.Name})
			}
		}
	}
	return to
}

// short returns a type without its namespace.
func short(typ string) string { return typ[strings.LastIndex(typ, ".")+1:] }

// names returns the services' names, without the flow if all are of one.
func names(services []flow.Declaration) []string {
	all, flows := make([]string, len(services)), make(map[string]bool)
	for i, s := range services {
		all[i] = s.Hop
		h, _ := topics.ParseHop(s.Hop)
		flows[h.Flow()] = true
	}
	if len(flows) == 1 {
		for i, s := range services {
			_, all[i], _ = strings.Cut(s.Hop, ".")
		}
	}
	return all
}
