package sagatest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/troupe-go/troupe/saga"
)

// Fields are a message's, or variables, as JSON has them: whole numbers of any Go type are the same.
type Fields = map[string]any

// A Message comes to the coordinator from a hop. Event, Success, Failure and Exhausted make one.
type Message struct {
	// ID by which a message that comes twice is known. Default: it is another one each time that it is published.
	ID        string
	Hop, Type string
	Key       string
	Fields    Fields
	// Outcome is success, failure or exhausted; "" where nothing was asked.
	Outcome string
	// Reason of an exhausted command.
	Reason string
	// Step says that it answers the command of this step, or its compensation, whichever was sent last. Hop, Key, Saga and
	// Operation then are those of that command, unless they are set.
	Step string
	// Saga is the id of the saga that is answered. Default: the one that sent the step's command last.
	Saga string
	// Operation that is answered: forward or compensate.
	Operation string

	epoch int // of that command
}

// Event is a message that answers no command.
func Event(hop, typ, key string, fields Fields) Message {
	return Message{Hop: hop, Type: typ, Key: key, Fields: fields}
}

// Success is what a hop answers when it did what a step asked, or undid it.
func Success(step, typ string, fields Fields) Message {
	return Message{Step: step, Type: typ, Fields: fields, Outcome: "success"}
}

// Failure is what a hop answers when it refuses what a step asked.
func Failure(step, typ string, fields Fields) Message {
	return Message{Step: step, Type: typ, Fields: fields, Outcome: "failure"}
}

// Exhausted is what a hop answers when it has given up what a step asked.
func Exhausted(step, reason string) Message {
	return Message{Step: step, Type: "troupe.Exhausted", Reason: reason, Outcome: "exhausted"}
}

// A Command is one that a saga sent. Where ThenCommands wants one, what is zero is not compared.
type Command struct {
	Saga      string // the id
	Step      string
	Operation string // forward or compensate
	Hop, Type string
	Fields    Fields // all of them

	epoch int // how often a person had had it sent again
}

// String is how histories show it.
func (c Command) String() string {
	return line(c.Saga, prefixed("step ", c.Step), c.Operation, prefixed("to ", c.Hop), c.Type, shown(c.Fields))
}

func (c Command) is(want Command) bool {
	return same(want.Saga, c.Saga) && same(want.Step, c.Step) && same(want.Operation, c.Operation) &&
		same(want.Hop, c.Hop) && same(want.Type, c.Type) && sameFields(want.Fields, c.Fields)
}

// An Emitted is an event that a saga emitted. Where ThenEvents wants one, what is zero is not compared.
type Emitted struct {
	Saga    string // the id
	Hop     string // "" for the coordinator's own
	Type    string
	Outcome string // success or failure
	Fields  Fields // all of them
}

// String is how histories show it.
func (e Emitted) String() string {
	return line(e.Saga, prefixed("as ", e.Hop), e.Type, e.Outcome, shown(e.Fields))
}

func (e Emitted) is(want Emitted) bool {
	return same(want.Saga, e.Saga) && same(want.Hop, e.Hop) && same(want.Type, e.Type) &&
		same(want.Outcome, e.Outcome) && sameFields(want.Fields, e.Fields)
}

func same(want, have string) bool { return want == "" || want == have }

func sameFields(want, have Fields) bool { return want == nil || shown(want) == shown(have) }

// shown is fields as JSON, which is the same for equal ones.
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

// read is fields as a message brings them.
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

// line is words with a space between, without the empty ones.
func line(words ...string) string {
	var b strings.Builder
	for _, w := range words {
		if w != "" {
			b.WriteString(" " + w)
		}
	}
	return strings.TrimPrefix(b.String(), " ")
}
