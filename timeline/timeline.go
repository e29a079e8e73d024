package timeline

import (
	"encoding/json"
	"time"

	"github.com/troupe-go/troupe/envelope"
)

// Kind says what an entry is.
type Kind string

// The kinds. The first three are messages, by the topic that they are on or on their way to; the others are what became
// of one.
const (
	Command    Kind = "command"
	Event      Kind = "event"
	Message    Kind = "message" // on a topic that is none of a hop's
	Retry      Kind = "retry"   // put on a retry topic, for one more attempt
	Held       Kind = "held"
	DeadLetter Kind = "dead letter"
)

// A Timeline is what was found of a key or a flow, and what was not looked at.
type Timeline struct {
	// Subject is the text that was looked for.
	Subject string `json:"subject"`
	// Flow is the correlation id that was followed where Subject is the id of one message of it.
	Flow string `json:"flow,omitempty"`
	// Since is how far back the topics were read; Read is when.
	Since time.Time `json:"since"`
	Read  time.Time `json:"read_at"`
	// Records is how many were read, of Partitions.
	Records    int64 `json:"records_read"`
	Partitions int   `json:"partitions_read"`

	Entries  []Entry   `json:"entries"`
	Findings []Finding `json:"findings"`
	Unseen   []Unseen  `json:"not_seen"`
}

// An Entry is one thing that happened, or waits to.
type Entry struct {
	Kind Kind `json:"kind"`
	// At is when a message's row was written (of a redriven or retried one: when it was published), when a held message last
	// failed or was put behind another, when a dead letter became one.
	At  time.Time `json:"at"`
	Hop string    `json:"hop,omitempty"` // by the topic; of held messages and dead letters the consumer group

	ID            string           `json:"id,omitempty"` // of the message, for held messages and dead letters too
	Type          string           `json:"type,omitempty"`
	Key           string           `json:"key,omitempty"`
	Outcome       envelope.Outcome `json:"outcome,omitempty"`
	CorrelationID string           `json:"correlation_id,omitempty"`
	CausationID   string           `json:"causation_id,omitempty"`
	Redrive       int              `json:"redrive,omitempty"` // how often the message had been redriven

	// Cause is the index in Timeline.Entries of what this follows from: the message with CausationID, or the message
	// that is held or dead. -1: it is not there.
	Cause int `json:"cause"`
	// After is the time since Cause.
	After time.Duration `json:"after_ns,omitempty"`

	Record     *Record  `json:"record,omitempty"`      // where it stands in Kafka
	Outbox     *Row     `json:"outbox,omitempty"`      // where it waits to be published
	Held       *Attempt `json:"held,omitempty"`        // set for Held
	DeadLetter *Letter  `json:"dead_letter,omitempty"` // set for DeadLetter

	// Payload is JSON, or nil where it cannot be shown as such; PayloadNote says why.
	Payload     json.RawMessage `json:"payload,omitempty"`
	PayloadNote string          `json:"payload_note,omitempty"`

	identity string // the message's: two sources may use one id
}

// A Record is a message's place in Kafka.
type Record struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Published time.Time `json:"published_at"`
	// Repeats is how many more records carry the same message: duplicates, which change nothing.
	Repeats int `json:"repeats,omitempty"`
}

// A Row is a message's place in an outbox.
type Row struct {
	Database    string        `json:"database"`
	Topic       string        `json:"topic"` // where it is to go
	Position    int64         `json:"position"`
	Status      string        `json:"status"` // pending, retrying, parked or done
	Attempts    int           `json:"attempts,omitempty"`
	MaxAttempts int           `json:"max_attempts,omitempty"` // 0: time decides
	NextTry     time.Duration `json:"next_try_ns,omitempty"`  // from now; negative: due
	LastError   string        `json:"last_error,omitempty"`
	// Behind is the position of the row of the same key that this one waits for; 0: none.
	Behind       int64  `json:"behind,omitempty"`
	BehindStatus string `json:"behind_status,omitempty"`
	BehindError  string `json:"behind_error,omitempty"`
}

// An Attempt is what troupe.held says of a message. Attempts is 0 where it waits behind another of its key; then NextTry,
// MaxAttempts, Failed, Class and LastError are of the one it waits for.
type Attempt struct {
	Database    string        `json:"database"`
	Topic       string        `json:"topic"`
	Partition   int32         `json:"partition"`
	Offset      int64         `json:"offset"`
	Since       time.Time     `json:"since"` // when it was put there
	Attempts    int           `json:"attempts"`
	MaxAttempts int           `json:"max_attempts"`
	NextTry     time.Duration `json:"next_try_ns"` // from now; negative: due
	Class       string        `json:"class,omitempty"`
	LastError   string        `json:"last_error,omitempty"`
	// Behind is the offset of the message that this one waits for, and Failed its attempts so far; nil: none.
	Behind *int64 `json:"behind,omitempty"`
	Failed int    `json:"behind_attempts,omitempty"`
}

// A Letter is a row of troupe.dead_letters. Where the database was not seen it is the copy on the dlq topic: then
// Database and Status are empty.
type Letter struct {
	ID          string    `json:"id"`
	Database    string    `json:"database,omitempty"`
	Status      string    `json:"status,omitempty"` // open, redriven or discarded
	Handler     string    `json:"handler"`
	Class       string    `json:"class"`
	Error       string    `json:"error"`
	Attempts    int       `json:"attempts"`
	FirstFailed time.Time `json:"first_failed_at"`
	Topic       string    `json:"topic"` // of the message
	Partition   int32     `json:"partition"`
	Offset      int64     `json:"offset"`
}

// A Finding is what the flow waits for at one entry, in words.
type Finding struct {
	Entry int    `json:"entry"` // index in Timeline.Entries
	Text  string `json:"text"`
}

// Unseen is what should have been looked at and was not.
type Unseen struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// isMessage says whether e is a message, as opposed to what became of one.
func (e *Entry) isMessage() bool { return e.Kind == Command || e.Kind == Event || e.Kind == Message }

// topic is where the message is, or is to go.
func (e *Entry) topic() string {
	switch {
	case e.Record != nil:
		return e.Record.Topic
	case e.Outbox != nil:
		return e.Outbox.Topic
	case e.Held != nil:
		return e.Held.Topic
	case e.DeadLetter != nil:
		return e.DeadLetter.Topic
	}
	return ""
}
