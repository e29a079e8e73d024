package sagatest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/troupe-go/troupe/saga"
)

// Fields are the fields of a message, or variables, as in JSON. Whole numbers of all Go types are equal.
type Fields = map[string]any

// A Message is sent to the coordinator by a hop. Event, Success, Failure and Exhausted return one.
type Message struct {
	// ID identifies a message that is delivered twice. Default: a new one each time that the message is published.
	ID        string
	Hop, Type string
	Key       string
	Fields    Fields
	// Outcome is success, failure or exhausted; "" if the message answers no command.
	Outcome string
	// Reason is, for the outcome exhausted, the error for which the hop gave up the command.
	Reason string
	// Step makes the message an answer to the command of this step or to its compensation, whichever was sent last. Hop, Key,
	// Saga and Operation are then taken from that command, unless they are set.
	Step string
	// Saga is the id of the saga that is answered. Default: the saga that sent the latest command of the step.
	Saga string
	// Operation is the operation that is answered: forward or compensate.
	Operation string

	epoch int // of the answered command
}

// Event returns a message that answers no command.
func Event(hop, typ, key string, fields Fields) Message {
	return Message{Hop: hop, Type: typ, Key: key, Fields: fields}
}

// Success returns the answer of a hop that has executed a step's command or compensation.
func Success(step, typ string, fields Fields) Message {
	return Message{Step: step, Type: typ, Fields: fields, Outcome: "success"}
}

// Failure returns the answer of a hop that refuses a step's command or compensation.
func Failure(step, typ string, fields Fields) Message {
	return Message{Step: step, Type: typ, Fields: fields, Outcome: "failure"}
}

// Exhausted returns the answer of a hop that has given up a step's command or compensation.
func Exhausted(step, reason string) Message {
	return Message{Step: step, Type: "troupe.Exhausted", Reason: reason, Outcome: "exhausted"}
}

// A Command is a command that a saga sent. As an argument of ThenCommands, its zero fields are not compared.
type Command struct {
	Saga      string // the saga's id
	Step      string
	Operation string // forward or compensate
	Hop, Type string
	Fields    Fields // compared as a whole

	epoch int // how often an operator had it sent again
}

// String returns the command as histories show it.
func (c Command) String() string {
	return line(c.Saga, prefixed("step ", c.Step), c.Operation, prefixed("to ", c.Hop), c.Type, shown(c.Fields))
}

func (c Command) is(want Command) bool {
	return same(want.Saga, c.Saga) && same(want.Step, c.Step) && same(want.Operation, c.Operation) &&
		same(want.Hop, c.Hop) && same(want.Type, c.Type) && sameFields(want.Fields, c.Fields)
}

// An Emitted is an event that a saga emitted. As an argument of ThenEvents, its zero fields are not compared.
type Emitted struct {
	Saga    string // the saga's id
	Hop     string // "" for the coordinator's hop
	Type    string
	Outcome string // success or failure
	Fields  Fields // compared as a whole
}

// String returns the event as histories show it.
func (e Emitted) String() string {
	return line(e.Saga, prefixed("as ", e.Hop), e.Type, e.Outcome, shown(e.Fields))
}

func (e Emitted) is(want Emitted) bool {
	return same(want.Saga, e.Saga) && same(want.Hop, e.Hop) && same(want.Type, e.Type) &&
		same(want.Outcome, e.Outcome) && sameFields(want.Fields, e.Fields)
}

func same(want, have string) bool { return want == "" || want == have }

func sameFields(want, have Fields) bool { return want == nil || shown(want) == shown(have) }

// shown returns fields as JSON, which is equal for equal fields.
func shown(fields Fields) string {
	if fields == nil {
		return ""
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return fmt.Sprintf("%v (%s)", fields, err)
	}
	return string(text)
}

// read returns fields in the form that a received message has.
func read(fields Fields) (map[string]any, error) {
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	if fields == nil {
		return nil, nil
	}
	return saga.ReadFields(text)
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// line joins words with spaces, without the empty ones.
func line(words ...string) string {
	var b strings.Builder
	for _, w := range words {
		if w != "" {
			b.WriteString(" " + w)
		}
	}
	return strings.TrimPrefix(b.String(), " ")
}
