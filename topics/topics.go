// Package topics defines the grammar of topic names. No other package builds one.
//
// A flow is a chain of hops; a hop is one service's part in it. Every hop has the same topics:
//
//	<flow>.<hop>.commands       commands to the hop
//	<flow>.<hop>.events         its outcomes: success, failure and exhausted events, ordered per key
//	<flow>.<hop>.dlq            copies of its dead letters
//	<flow>.<hop>.retry.<delay>  only for handlers that do not need order
//
// A relay with exactly-once delivery has a topic too, which belongs to no hop:
//
//	troupe.relay.<slot>         the relay's checkpoint, written in each Kafka transaction
//
// Flow and hop are [a-z0-9][a-z0-9-]{0,62}, so the longest name stays below Kafka's limit of 249 characters, and no name
// contains an underscore, which Kafka's metrics do not distinguish from a dot.
package topics

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// ErrName is wrapped by every error about a name that does not follow the grammar.
var ErrName = errors.New("not a topic name of troupe")

var part = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// A Hop is one service's part in a flow. Its zero value is no hop; make one with NewHop or MustHop. It is comparable and safe
// for concurrent use.
type Hop struct{ flow, name string }

// NewHop checks both parts. The error wraps ErrName and names the wrong part.
func NewHop(flow, name string) (Hop, error) {
	for _, p := range []struct{ what, text string }{{"flow", flow}, {"hop", name}} {
		if !part.MatchString(p.text) {
			return Hop{}, fmt.Errorf("%s %q: %w: want 1 to 63 of a-z, 0-9 and -, not beginning with -", p.what, p.text, ErrName)
		}
	}
	return Hop{flow, name}, nil
}

// MustHop is NewHop for constant names. It panics if a name is wrong.
func MustHop(flow, name string) Hop {
	h, err := NewHop(flow, name)
	if err != nil {
		panic(err)
	}
	return h
}

// ParseHop parses the result of String, such as "order.payment".
func ParseHop(s string) (Hop, error) {
	flow, name, ok := strings.Cut(s, ".")
	if !ok {
		return Hop{}, fmt.Errorf("hop %q: %w: want flow.hop", s, ErrName)
	}
	return NewHop(flow, name)
}

// Flow returns the flow's name, the first part of the topics.
func (h Hop) Flow() string { return h.flow }

// Name returns the hop's own name, the second part of the topics.
func (h Hop) Name() string { return h.name }

// IsZero reports whether h is the zero Hop.
func (h Hop) IsZero() bool { return h == Hop{} }

// String returns "flow.hop". It is also the default name of the hop's consumer group.
func (h Hop) String() string { return h.flow + "." + h.name }

// Commands returns the topic of commands to this hop.
func (h Hop) Commands() string { return h.topic(Commands) }

// Events returns the topic of this hop's outcomes.
func (h Hop) Events() string { return h.topic(Events) }

// DeadLetters returns the topic with copies of this hop's dead letters. The authoritative copy is in the table.
func (h Hop) DeadLetters() string { return h.topic(DeadLetters) }

// Retry returns the topic in which failed messages of an unordered handler wait for delay. A delay must be positive and whole
// seconds: Retry panics otherwise, since delays are constants.
func (h Hop) Retry(delay time.Duration) string {
	if delay <= 0 || delay%time.Second != 0 {
		panic(fmt.Sprintf("topics: retry delay %s: want whole seconds", delay))
	}
	return fmt.Sprintf("%s.%s.%ds", h, Retry, int64(delay/time.Second))
}

func (h Hop) topic(k Kind) string { return h.String() + "." + string(k) }

// Relay returns the topic in which the relay of a replication slot stores its checkpoint. Slot names contain no hyphen, so
// their underscores become hyphens.
func Relay(slot string) string { return "troupe.relay." + strings.ReplaceAll(slot, "_", "-") }

// A Kind is the purpose of a hop's topic.
type Kind string

// The four kinds, spelled as in the topic's name.
const (
	Commands    Kind = "commands"
	Events      Kind = "events"
	DeadLetters Kind = "dlq"
	Retry       Kind = "retry"
)

// A Topic is a parsed name. Delay is set for Retry only.
type Topic struct {
	Hop   Hop
	Kind  Kind
	Delay time.Duration
}

// Parse parses a topic name of a hop. The error wraps ErrName.
func Parse(name string) (Topic, error) {
	bad := func() (Topic, error) {
		return Topic{}, fmt.Errorf("topic %q: %w: want flow.hop.commands, .events, .dlq or .retry.30s", name, ErrName)
	}
	p := strings.Split(name, ".")
	if len(p) < 3 || len(p) > 4 {
		return bad()
	}
	hop, err := NewHop(p[0], p[1])
	if err != nil {
		return Topic{}, fmt.Errorf("topic %q: %w", name, err)
	}
	t := Topic{Hop: hop, Kind: Kind(p[2])}
	switch t.Kind {
	case Commands, Events, DeadLetters:
		if len(p) != 3 {
			return bad()
		}
	case Retry:
		if len(p) != 4 {
			return bad()
		}
		t.Delay, err = time.ParseDuration(p[3])
		if err != nil || t.Delay <= 0 || t.Delay%time.Second != 0 || hop.Retry(t.Delay) != name {
			return bad()
		}
	default:
		return bad()
	}
	return t, nil
}

// String returns the topic's name.
func (t Topic) String() string {
	if t.Kind == Retry {
		return t.Hop.Retry(t.Delay)
	}
	return t.Hop.topic(t.Kind)
}
