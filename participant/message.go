package participant

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/inbox"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/internal/retryheader"
)

// message is one message in processing, from the topic, troupe.held or troupe.local_work.
type message struct {
	envelope.Message                   // ID is never empty
	record           *kgo.Record       // nil when it comes from troupe.held
	stored           []envelope.Header // as received, when it comes from troupe.held
	undecoded        []byte            // the headers as troupe.held has them, if they are too many to decode; else nil
	unreadable       error             // the headers break a rule; then Message has no attributes
	topicID          uuid.UUID
	partition        int32
	offset           int64
	epoch            int32     // of the leader that wrote it; -1 when not known
	at               time.Time // the record's timestamp
	id               string    // its identity, as the inbox stores it
	redrive          int
	elsewhere        bool                  // it was redriven for another group
	handler          *handler              // nil if none fits
	observed         bool                  // it needs no handler: all its observers ran when it was written
	atTakeOver       bool                  // it was in the partition before this member took the partition over
	deadline         *firing               // nil if it is not the message of a deadline
	override         *retryheader.Override // its sender's settings for retries; nil for none
	held             *heldRow              // nil unless it comes from troupe.held, or has failed in troupe.local_work
	again            again                 // its retry state, if it comes from a retry topic
	tries            int                   // immediate tries so far
	unnamed          bool                  // it has no ce_id
	entry            *entry                // nil unless it comes from troupe.local_work
	began            time.Time             // start of the run
	outcome          envelope.Outcome      // of the run
	nothingReason    string                // why the run did nothing, if its saga's barrier blocked the handler
	passed           string                // the reason why it ends without effect
	rebuilt          bool                  // a rebuild handles it again
	result           *callResult           // of its call of another service, until it ends
	announced        *uint32               // the version of its call's mark, if its present run inserted the mark
	called           bool                  // its call, or its handler, has begun
	alone            bool                  // the run has no other message
	unhandledFor     time.Duration         // how long it had waited for a member with a handler when it was read
	txEnded          error                 // set if a handler in its transaction has ended the transaction

	limits *limits // of its handler; nil if there are none, or if m comes from troupe.held
	permit *permit // nil: it has none
	tardy  int     // how often its permit had expired when its handler was to run
	waited bool    // it waits for a slot of its concurrency limit

	due  bool    // it is no message, but represents the turn of a held key
	turn holdKey // that key
}

// read decodes the headers of m's record and finds m's handler. If fromRetry is true, the record is from a retry topic, and read removes the headers
// that were added for that topic.
func (m *message) read(p *Participant, fromRetry bool) {
	m.Message, m.unreadable = kafka.Message(m.record)
	if fromRetry && m.unreadable == nil {
		m.unwrap()
	}
	m.identify(p.cfg.Group)
	p.route(m)
}

// identity returns the identity by which the inbox recognises m.
func (m *message) identity() identity { return identity{m.id, m.redrive} }

// lowMark returns the low mark that is reached when m and all messages before m have ended.
func (m *message) lowMark() lowMark { return lowMark{m.topicID, m.offset, m.epoch, m.at.UnixMilli()} }

// identify sets the fields by which m is recognised (ID, id, redrive, elsewhere) from its headers.
func (m *message) identify(group string) {
	if m.unnamed = m.ID == ""; m.unnamed {
		m.ID = m.unnamedID()
	}
	switch {
	case m.again.identity != "":
		m.id = m.again.identity
	case deadletter.RedriveIdentity(m.Extra) != "":
		m.id = deadletter.RedriveIdentity(m.Extra)
	case m.unnamed:
		m.id = inbox.ID(m.ID)
	default:
		m.id = inbox.Identity(m.Message)
	}
	m.redrive = deadletter.Redrives(m.Extra, group)
	m.elsewhere = slices.ContainsFunc(m.Extra, func(h envelope.Header) bool {
		return h.Key == deadletter.HeaderRedriveGroup && string(h.Value) != group
	})
}

// unnamedID returns the id of m, which has no ce_id. For a message from troupe.held it is the id in its row, since an earlier version may have made
// that id in another way.
func (m *message) unnamedID() string {
	switch {
	case m.record != nil:
		return kafka.UnnamedID(m.topicID, m.record)
	case m.held != nil && m.held.id != "":
		return m.held.id
	}
	return fmt.Sprintf("%s/%d/%d", m.topicID, m.partition, m.offset)
}

// markUnreadable makes m unreadable, since the database cannot store one of its attributes. Then m has no attributes, like a message whose headers
// break a rule. It returns false if m is unreadable already.
func (m *message) markUnreadable(err error) bool {
	if m.unreadable != nil {
		return false
	}
	m.unreadable = errors.New("the database cannot store an attribute of the message: " + err.Error()) // not wrapped: the database is not away
	m.Message = envelope.Message{Topic: m.Topic, Key: m.Key, Payload: m.Payload, Time: m.Time}
	m.ID, m.unnamed, m.handler, m.deadline, m.override = m.unnamedID(), true, nil, nil, nil
	m.id = m.ID
	return true
}

// passReason returns the reason why m ends without a run of its handler, or "" if it must run. own is true if m's topic has messages of the hop itself:
// each of these needs a handler.
func (p *Participant) passReason(m *message, own bool) string {
	switch {
	case m.again.group != "" && m.again.group != p.cfg.Group && (m.handler == nil || m.Topic != p.cfg.Hop.Commands()):
		return reasonElsewhere // except a command with a handler, which may be of this group's former name
	case m.unreadable != nil:
		return ""
	case m.elsewhere && !own: // a command has one group, which may have been renamed since
		return reasonElsewhere
	case m.handler == nil && (!own && m.redrive == 0 && (m.held == nil || m.observed) || p.foreign(m)):
		return reasonUnhandled // but an event that was redriven, or has failed, waits for a member with its handler: this group had one
	}
	return ""
}

// received returns m's headers as they were received. For a message from a retry topic they include the headers that were added for that topic.
func (m *message) received() []envelope.Header {
	if m.record == nil {
		return m.stored
	}
	return kafka.Headers(m.record)
}

// headers returns m's headers without the ones that were added for a retry topic.
func (m *message) headers() []envelope.Header {
	if m.record == nil {
		return m.stored
	}
	if m.again.stage > 0 {
		return deadletter.WithoutRetry(kafka.Headers(m.record))
	}
	return kafka.Headers(m.record)
}

// unhandled returns an error that names the missing handler of a message of the hop's own.
func (m *message) unhandled() error {
	if m.deadline != nil {
		return fmt.Errorf("no handler for deadline %q", m.deadline.name)
	}
	return fmt.Errorf("no handler for type %q on %s", m.Type, m.Topic)
}

// maxAttempts is the highest number of attempts that is counted. An integer column can still hold one more.
const maxAttempts = math.MaxInt32 - 1

// attempts returns the number of attempts made before this one.
func (m *message) attempts() int {
	n := m.again.attempts + m.tries
	if m.held != nil {
		n += m.held.attempts
	}
	return min(n, maxAttempts)
}

// handlerName returns the handler's name for rows, headers and logs; the group's name if m has no handler.
func (m *message) handlerName(group string) string {
	if m.handler == nil {
		return group
	}
	return m.handler.name
}

// cause returns m as the cause of emitted messages. The cause's time is the time in m's id, so that it is the same in every run of m. The record's
// timestamp need not be the same: m may come in several records (a local entry that goes back to Kafka, a copy on a retry topic, a deadline that
// fires again), and after the database was set back it may run from another one. If the id has no time, the record's timestamp is used.
func (m *message) cause(group string) *envelope.Cause {
	at := m.at
	if id, _, ok := inbox.Recent(m.ID); ok {
		at = time.Unix(id.Time().UnixTime())
	}
	return &envelope.Cause{Message: m.Message, Handler: m.handlerName(group), Redrive: m.redrive, At: at}
}

// holdKey identifies messages that wait together: all with m's key, or m alone if it has none. It is a hash, since a key may be
// longer than an index accepts.
type holdKey [sha256.Size]byte

func (m *message) holdKey() holdKey {
	key := m.Key
	if m.record != nil {
		key = m.record.Key
	}
	if key == nil {
		return sha256.Sum256(fmt.Appendf(nil, "message %s %d %d", m.topicID, m.partition, m.offset))
	}
	return sha256.Sum256(append([]byte("key "), key...))
}

// lane returns the number under which keyed.Lane runs the messages of k one after the other.
func (k holdKey) lane() uint64 { return binary.BigEndian.Uint64(k[:]) }

// indexable and readable make a message's text fit into a column: indexable into one with an index, readable into one that people read.
var indexable, readable = pgtext.Indexable, pgtext.Readable

// place returns topic, partition and offset of m.
func (m *message) place() string { return fmt.Sprintf("%s/%d/%d", m.Topic, m.partition, m.offset) }
