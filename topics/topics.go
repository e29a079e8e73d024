// Package topics is the grammar of topic names, and the only place where one is spelled.
//
// A flow is a chain of hops; a hop is one service's part in it. Every hop has the same topics:
//
//	<flow>.<hop>.commands       what the hop is asked to do
//	<flow>.<hop>.events         what it answered: success, failure and exhausted events, ordered per key
//	<flow>.<hop>.dlq            copies of its dead letters
//	<flow>.<hop>.retry.<delay>  only for handlers that gave up order
//
// A relay that delivers exactly once has one too, which is of no hop:
//
//	troupe.relay.<slot>         how far each Kafka transaction has published the log
//
// Flow and hop are [a-z0-9][a-z0-9-]{0,62}, so the longest name stays below Kafka's limit of 249 characters, and no
// name holds an underscore, which Kafka's metrics cannot tell from a dot.
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

// A Hop is one service's part in a flow. Its zero value is no hop; make one with NewHop or MustHop.
// It is comparable and may be used concurrently.
type Hop struct{ flow, name string }

// NewHop checks both parts. The error wraps ErrName and names the part that is wrong.
func NewHop(flow, name string) (Hop, error) {
	for _, p := range []struct{ what, text string }{{"flow", flow}, {"hop", name}} {
		if !part.MatchString(p.text) {
			return Hop{}, fmt.Errorf("%s %q: %w: want 1 to 63 of a-z, 0-9 and -, not beginning with -", p.what, p.text, ErrName)
		}
	}
	return Hop{flow, name}, nil
}

// MustHop is NewHop for names that are constants. It panics on a bad one.
func MustHop(flow, name string) Hop {
	h, err := NewHop(flow, name)
	if err != nil {
		panic(err)
	}
	return h
}

// ParseHop reads what String wrote: "order.payment".
func ParseHop(s string) (Hop, error) {
	flow, name, ok := strings.Cut(s, ".")
	if !ok {
		return Hop{}, fmt.Errorf("hop %q: %w: want flow.hop", s, ErrName)
	}
	return NewHop(flow, name)
}

// Flow is the flow's name, the first part of the topics.
func (h Hop) Flow() string { return h.flow }

// Name is the hop's own name, the second part of the topics.
func (h Hop) Name() string { return h.name }

// IsZero says whether h names no hop.
func (h Hop) IsZero() bool { return h == Hop{} }

// String is "flow.hop". It is also the default name of the hop's consumer group.
func (h Hop) String() string { return h.flow + "." + h.name }

// Commands is the topic that asks this hop to act.
func (h Hop) Commands() string { return h.topic(Commands) }

// Events is the topic of this hop's outcomes.
func (h Hop) Events() string { return h.topic(Events) }

// DeadLetters is the topic with copies of this hop's dead letters. The table is the truth.
func (h Hop) DeadLetters() string { return h.topic(DeadLetters) }

// Retry is the topic on which an unordered handler's failed messages wait for delay, which must be whole seconds
// and positive; it panics otherwise, since delays are constants.
func (h Hop) Retry(delay time.Duration) string {
	if delay <= 0 || delay%time.Second != 0 {
		panic(fmt.Sprintf("topics: retry delay %s: want whole seconds", delay))
	}
	return fmt.Sprintf("%s.%s.%ds", h, Retry, int64(delay/time.Second))
}

func (h Hop) topic(k Kind) string { return h.String() + "." + string(k) }

// Relay is the topic in which the relay of a replication slot keeps its place. The underscores of the slot's name, which
// holds no hyphen, are hyphens in it.
func Relay(slot string) string { return "troupe.relay." + strings.ReplaceAll(slot, "_", "-") }

// Kind says what a topic of a hop is for.
type Kind string

// The four kinds, spelled as they stand in the name.
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

// Parse reads any topic name of the grammar. The error wraps ErrName.
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

// String is the name again.
func (t Topic) String() string {
	if t.Kind == Retry {
		return t.Hop.Retry(t.Delay)
	}
	return t.Hop.topic(t.Kind)
}
