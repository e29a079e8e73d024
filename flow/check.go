package flow

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/troupe-go/troupe/topics"
)

// These are the limits of a service.
const (
	maxReactions = 256 // also of starts, and of the types that a reaction undoes
	maxJoins     = 64  // also of expectations
	maxAwait     = 64
	maxSent      = 32 // by one outcome
	maxAttempts  = 1000
	maxWithin    = 366 * 24 * time.Hour
	maxReason    = 1000
)

var (
	typeForm = regexp.MustCompile(`^[!-~]{1,255}$`)
	nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
)

// Check checks a service by itself: names, limits and contradictions. Its error is of type Mistakes. The command
// `troupe flow verify` checks whether the service fits the others.
func (s Declaration) Check() error {
	if found := s.mistakes(); len(found) > 0 {
		return found
	}
	return nil
}

// checking holds a service and the mistakes found so far.
type checking struct {
	Declaration
	hop   topics.Hop
	found Mistakes
}

func (c *checking) mistake(path, format string, args ...any) {
	c.found = append(c.found, Mistake{Path: path, Text: fmt.Sprintf(format, args...)})
}

func (s Declaration) mistakes() Mistakes {
	c := checking{Declaration: s}
	var err error
	if c.hop, err = topics.ParseHop(s.Hop); err != nil {
		c.mistake("hop", "%v", err)
		return c.found
	}
	if len(s.Starts)+len(s.Reactions)+len(s.Joins)+len(s.Expectations) == 0 {
		c.mistake("", "it takes no part in the flow: give it starts, reactions, joins or expectations, or remove the file")
	}
	c.messages("starts", s.Starts, maxReactions, c.send)
	c.reactions()
	c.joins()
	c.expectations()
	return c.found
}

func (c *checking) reactions() {
	c.atMost("reactions", len(c.Reactions), maxReactions)
	undoable := c.successTypes()
	on := make(map[string]string)
	for i, r := range c.Reactions {
		path := fmt.Sprintf("reactions[%d]", i)
		c.heard(path+".on", r.On)
		if first, twice := on[r.On.key()]; twice {
			c.mistake(path+".on", "%s handles %s already: a service has one handler per message, so say in one what both do", first, r.On.Type)
		} else {
			on[r.On.key()] = path
		}
		c.messages(path+".success", r.Success, maxSent, c.send)
		c.messages(path+".failure", r.Failure, maxSent, c.send)
		c.atMost(path+".undoes", len(r.Undoes), maxReactions)
		for k, typ := range r.Undoes {
			if !slices.Contains(undoable, typ) {
				c.mistake(fmt.Sprintf("%s.undoes[%d]", path, k), "%q is no success event of %s: a service compensates only its own steps", typ, c.Hop)
			}
			if slices.Contains(r.Undoes[:k], typ) {
				c.mistake(fmt.Sprintf("%s.undoes[%d]", path, k), "%q is listed twice", typ)
			}
		}
		if r.Attempts < 0 || r.Attempts > maxAttempts {
			c.mistake(path+".attempts", "%d, want 1 to %d, or 0 for as many as the participant has", r.Attempts, maxAttempts)
		}
		switch {
		case len(r.Irreversible) > maxReason:
			c.mistake(path+".irreversible", "%d bytes, want at most %d", len(r.Irreversible), maxReason)
		case r.Irreversible != "" && len(r.Undoes) > 0:
			c.mistake(path+".irreversible", "it undoes something, and what does is never undone: leave the reason out")
		}
	}
}

// successTypes returns the types of the messages that the service sends in success, and may have to undo.
func (c *checking) successTypes() (types []string) {
	for _, m := range c.Starts {
		types = append(types, m.Type)
	}
	for _, r := range c.Reactions {
		for _, m := range r.Success {
			types = append(types, m.Type)
		}
	}
	for _, j := range c.Joins {
		for _, m := range j.Success {
			types = append(types, m.Type)
		}
	}
	return types
}

func (c *checking) joins() {
	c.atMost("joins", len(c.Joins), maxJoins)
	names := make(map[string]bool)
	for i, j := range c.Joins {
		path := fmt.Sprintf("joins[%d]", i)
		c.named(path, j.Name, names)
		c.messages(path+".await", j.Await, maxAwait, c.heard)
		c.messages(path+".broken", j.Broken, maxAwait, c.heard)
		if len(j.Await) == 0 {
			c.mistake(path+".await", "it waits for nothing: name the messages that it joins")
		}
		for k, m := range j.Broken {
			if slices.ContainsFunc(j.Await, func(a Message) bool { return a.key() == m.key() }) {
				c.mistake(fmt.Sprintf("%s.broken[%d]", path, k), "%s is also awaited: it cannot be both", m.Type)
			}
		}
		if len(j.Success) == 0 {
			c.mistake(path+".success", "the join sends nothing when it is complete: name the messages to send")
		}
		c.messages(path+".success", j.Success, maxSent, c.send)
		c.messages(path+".expired", j.Expired, maxSent, c.send)
		if j.Within != "" {
			c.within(path+".within", j.Within)
		} else if len(j.Expired) > 0 {
			c.mistake(path+".expired", "nothing expires without within: say how long it waits, or leave it out")
		}
	}
}

func (c *checking) expectations() {
	c.atMost("expectations", len(c.Expectations), maxJoins)
	names := make(map[string]bool)
	for i, e := range c.Expectations {
		path := fmt.Sprintf("expectations[%d]", i)
		c.named(path, e.Name, names)
		c.heard(path+".after", e.After)
		c.messages(path+".expect", e.Expect, maxAwait, c.heard)
		if len(e.Expect) == 0 {
			c.mistake(path+".expect", "it expects nothing: name the messages one of which should come")
		}
		if slices.ContainsFunc(e.Expect, func(m Message) bool { return m.key() == e.After.key() }) {
			c.mistake(path+".expect", "the expectation begins with %s: it would be met at once", e.After.Type)
		}
		c.within(path+".within", e.Within)
		c.send(path+".raise", e.Raise)
		c.messages(path+".late", e.Late, maxSent, c.send)
	}
}

func (c *checking) named(path, name string, names map[string]bool) {
	switch {
	case !nameForm.MatchString(name):
		c.mistake(path+".name", "%q, want 1 to 63 of a-z, 0-9, - and _, beginning with a letter or digit", name)
	case names[name]:
		c.mistake(path+".name", "%q is taken: its row in the database goes by the name", name)
	}
	names[name] = true
}

func (c *checking) within(path, text string) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > maxWithin {
		c.mistake(path, "%q, want a duration such as 30s or 1h30m, more than nothing and at most %s", text, maxWithin)
	}
}

func (c *checking) atMost(path string, have, most int) {
	if have > most {
		c.mistake(path, "%d of them, want at most %d", have, most)
	}
}

// messages checks messages, each by the function check: send or heard. Each may be named once.
func (c *checking) messages(path string, ms []Message, most int, check func(path string, m Message)) {
	c.atMost(path, len(ms), most)
	seen := make(map[string]bool)
	for i, m := range ms {
		at := fmt.Sprintf("%s[%d]", path, i)
		check(at, m)
		if seen[m.key()] {
			c.mistake(at, "%s is listed twice", m.Type)
		}
		seen[m.key()] = true
	}
}

// heard checks a message that the service consumes: any hop's event, or a command to the service itself.
func (c *checking) heard(path string, m Message) {
	hop, kind, ok := c.message(path, m)
	if ok && kind == topics.Commands && hop != c.hop {
		c.mistake(path+".topic", "%q: the commands of %s are for it alone; want %s, or events", m.Topic, hop, c.hop.Commands())
	}
	if m.Last {
		c.mistake(path+".last", "only the sender of a message declares that a flow may end with it")
	}
}

// send checks a message that the service sends: an event of its own, or a command to any hop.
func (c *checking) send(path string, m Message) {
	hop, kind, ok := c.message(path, m)
	if ok && kind == topics.Events && hop != c.hop {
		c.mistake(path+".topic", "%q: only %s sends its events; want %s, or commands of a hop", m.Topic, hop, c.hop.Events())
	}
}

func (c *checking) message(path string, m Message) (topics.Hop, topics.Kind, bool) {
	if !typeForm.MatchString(m.Type) {
		c.mistake(path+".type", "%q, want a type as in ce_type, such as troupe.order.Paid: 1 to 255 visible ASCII characters", m.Type)
	}
	t, err := topics.Parse(m.Topic)
	switch {
	case err != nil:
		c.mistake(path+".topic", "%v", err)
	case t.Kind != topics.Events && t.Kind != topics.Commands:
		c.mistake(path+".topic", "%q: services send and hear events and commands; want %s or %s", m.Topic, t.Hop.Events(), t.Hop.Commands())
	default:
		return t.Hop, t.Kind, true
	}
	return topics.Hop{}, "", false
}

// key identifies a message.
func (m Message) key() string { return m.Topic + " " + m.Type }
