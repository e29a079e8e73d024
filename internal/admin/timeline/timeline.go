package timeline

import (
	"encoding/json"
	"time"

	"github.com/troupe-go/troupe/envelope"
)

// Kind is the kind of an entry.
type Kind string

// These are the kinds. The first three are messages, by the topic that they are on or on their way to. The others are states of a
// message.
const (
	Command    Kind = "command"
	Event      Kind = "event"
	Message    Kind = "message" // on a topic that belongs to no hop
	Retry      Kind = "retry"   // put on a retry topic, for one more attempt
	Held       Kind = "held"
	DeadLetter Kind = "dead letter"
)

// A Timeline holds the entries and findings of a key or a flow, and the sources that could not be read.
type Timeline struct {
	// Subject is the text that was searched for.
	Subject string `json:"subject"`
	// Flow is the correlation id that was used if Subject is the id of one of the flow's messages.
	Flow string `json:"flow,omitempty"`
	// Since is the time from which the topics were read, Read the time of reading.
	Since time.Time `json:"since"`
	Read  time.Time `json:"read_at"`
	// Records is the number of records that were read, of Partitions partitions.
	Records    int64 `json:"records_read"`
	Partitions int   `json:"partitions_read"`

	Entries  []Entry   `json:"entries"`
	Findings []Finding `json:"findings"`
	Unseen   []Unseen  `json:"not_seen"`
}

// An Entry is one event in the history of a flow, or something that it waits for.
type Entry struct {
	Kind Kind `json:"kind"`
	// At is the time at which a message's row was written (a redriven or retried one: was published), at which a held message
	// last failed or was put behind another, or at which a dead letter became one.
	At  time.Time `json:"at"`
	Hop string    `json:"hop,omitempty"` // the topic's hop; for held messages and dead letters the consumer group

	ID            string           `json:"id,omitempty"` // the message's, for held messages and dead letters too
	Type          string           `json:"type,omitempty"`
	Key           string           `json:"key,omitempty"`
	Outcome       envelope.Outcome `json:"outcome,omitempty"`
	CorrelationID string           `json:"correlation_id,omitempty"`
	CausationID   string           `json:"causation_id,omitempty"`
	Redrive       int              `json:"redrive,omitempty"` // how often the message had been redriven

	// Deadline is the name of the deadline that this message was, and Expects the messages whose time it ends, by topic and type.
	Deadline string   `json:"deadline,omitempty"`
	Expects  []string `json:"expects,omitempty"`

	// Cause is the index in Timeline.Entries of the entry that this one follows from: the message with CausationID, or the
	// message that is held or dead. -1: it is not there.
	Cause int `json:"cause"`
	// After is the time since Cause.
	After time.Duration `json:"after_ns,omitempty"`

	Record     *Record  `json:"record,omitempty"`      // its record in Kafka
	Outbox     *Row     `json:"outbox,omitempty"`      // its row while it waits to be published
	Held       *Attempt `json:"held,omitempty"`        // set for Held
	DeadLetter *Letter  `json:"dead_letter,omitempty"` // set for DeadLetter

	// Payload is JSON. It is nil if the payload cannot be shown as JSON; then PayloadNote has the reason.
	Payload     json.RawMessage `json:"payload,omitempty"`
	PayloadNote string          `json:"payload_note,omitempty"`

	identity string // identifies the message, since two sources may use one id
}

// A Record is the position of a message in Kafka.
type Record struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Published time.Time `json:"published_at"`
	// Repeats counts further records with the same message: duplicates, which have no effect.
	Repeats int `json:"repeats,omitempty"`
}

// A Row is the row of a message in an outbox.
type Row struct {
	Database    string        `json:"database"`
	Topic       string        `json:"topic"` // its destination
	Position    int64         `json:"position"`
	Status      string        `json:"status"` // pending, retrying, parked or done
	Attempts    int           `json:"attempts,omitempty"`
	MaxAttempts int           `json:"max_attempts,omitempty"` // 0: no limit of attempts, but of time
	NextTry     time.Duration `json:"next_try_ns,omitempty"`  // from now; negative: due
	LastError   string        `json:"last_error,omitempty"`
	// Behind is the position of the row of the same key that this one waits for; 0: none.
	Behind       int64  `json:"behind,omitempty"`
	BehindStatus string `json:"behind_status,omitempty"`
	BehindError  string `json:"behind_error,omitempty"`
}

// An Attempt is the row of a message in troupe.held. Attempts is 0 if it waits behind another of its key; then NextTry,
// MaxAttempts, Failed, Class and LastError belong to the message that it waits for.
type Attempt struct {
	Database    string        `json:"database"`
	Topic       string        `json:"topic"`
	Partition   int32         `json:"partition"`
	Offset      int64         `json:"offset"`
	Since       time.Time     `json:"since"` // when it was held
	Attempts    int           `json:"attempts"`
	MaxAttempts int           `json:"max_attempts"`
	NextTry     time.Duration `json:"next_try_ns"` // from now; negative: due
	Class       string        `json:"class,omitempty"`
	LastError   string        `json:"last_error,omitempty"`
	// Behind is the offset of the message that this one waits for, and Failed the number of its failed attempts; nil: none.
	Behind *int64 `json:"behind,omitempty"`
	Failed int    `json:"behind_attempts,omitempty"`
}

// A Letter is a row of troupe.dead_letters. If the database was not read it is the copy on the dlq topic: then Database and
// Status are empty.
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

// A Finding describes why the flow does not continue at one entry.
type Finding struct {
	Entry int    `json:"entry"` // index in Timeline.Entries
	Text  string `json:"text"`
}

// Unseen is a source, or a part of one, that could not be read.
type Unseen struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// isMessage reports whether e is a message, and not a state of one.
func (e *Entry) isMessage() bool { return e.Kind == Command || e.Kind == Event || e.Kind == Message }

// topic returns the topic that the message is on, or its destination.
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
