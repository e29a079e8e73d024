package watch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// A rule is one promise of a service: after each message of on, one of answers is published within the time.
type rule struct {
	kind    Kind
	hop     string
	name    string // of the join or the expectation
	on      []message
	answers []message
	broken  []message // the answers that break a join, which other services send
	byKey   bool      // an answer has the same key; else it is caused by the message
	within  time.Duration
}

// A message is a type on a topic.
type message struct{ topic, typ string }

// rulesOf returns the same rules in the same order for the same declarations, since findings store the numbers of rules.
func rulesOf(declared []flow.Declaration, answer time.Duration) (rules []rule) {
	for _, s := range declared {
		hop, _ := topics.ParseHop(s.Hop)
		exhausted := message{hop.Events(), participant.Exhausted{}.MessageType()}
		for _, r := range s.Reactions {
			if len(r.Success)+len(r.Failure) > 0 {
				rules = append(rules, rule{
					kind: Missing, hop: s.Hop, on: several(r.On), within: answer,
					answers: append(several(append(slices.Clone(r.Success), r.Failure...)...), exhausted),
				})
			}
		}
		for _, j := range s.Joins {
			within, _ := time.ParseDuration(j.Within)
			ends := slices.Concat(j.Success, j.Expired, j.Broken)
			broken := several(j.Broken...)
			rules = append(rules, rule{
				kind: Stuck, hop: s.Hop, name: j.Name, on: several(j.Await...), broken: broken, byKey: true, within: within + answer,
				answers: append(several(ends...), exhausted),
			})
		}
		for _, e := range s.Expectations {
			within, _ := time.ParseDuration(e.Within)
			met := several(e.Expect...)
			rules = append(rules,
				rule{kind: Missing, hop: s.Hop, name: e.Name, on: several(e.After), answers: met, byKey: true, within: within},
				rule{kind: Missing, hop: s.Hop, name: e.Name, on: several(e.After), byKey: true, within: within + answer,
					answers: append(several(e.Raise), met...)})
		}
	}
	return rules
}

func several(ms ...flow.Message) (all []message) {
	for _, m := range ms {
		all = append(all, message{m.Topic, m.Type})
	}
	return all
}

// sentBy returns all messages that a service declares to send.
func sentBy(declared []flow.Declaration) map[message]bool {
	sent := make(map[message]bool)
	for _, s := range declared {
		hop, _ := topics.ParseHop(s.Hop)
		sent[message{hop.Events(), participant.Exhausted{}.MessageType()}] = true
		all := slices.Clone(s.Starts)
		for _, r := range s.Reactions {
			all = slices.Concat(all, r.Success, r.Failure)
		}
		for _, j := range s.Joins {
			all = slices.Concat(all, j.Success, j.Expired)
		}
		for _, e := range s.Expectations {
			all = append(append(all, e.Raise), e.Late...)
		}
		for _, m := range several(all...) {
			sent[m] = true
		}
	}
	return sent
}

// limits returns the time limits of rules, each once, the shortest first.
func limits(rules []rule) (all []time.Duration) {
	for _, r := range rules {
		all = append(all, r.within)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// String returns the service, the messages that it should send, and the time limit.
func (r rule) String() string {
	who := r.hop
	switch {
	case r.kind == Stuck:
		who += ", join " + r.name
	case r.name != "":
		who += ", expectation " + r.name
	}
	return fmt.Sprintf("%s: %s within %s", who, strings.Join(r.wanted(), " or "), r.within)
}

// wanted returns the types that the service should send. It leaves out the exhausted event, and messages by which others break a
// join.
func (r rule) wanted() (types []string) {
	exhausted := participant.Exhausted{}.MessageType()
	for _, m := range r.answers {
		if m.typ != exhausted && !slices.Contains(r.broken, m) && !slices.Contains(types, m.typ) {
			types = append(types, m.typ)
		}
	}
	return types
}
