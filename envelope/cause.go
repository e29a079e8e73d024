package envelope

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// A Cause carries the message being handled to the messages that its handler emits: they get its correlation, causation and
// trace context, and ids that are the same if the same emission is repeated. A participant puts a Cause into the context of
// each run of a handler; outbox.Write reads it.
type Cause struct {
	Message Message
	Handler string    // name of the emitting handler; part of the derived ids
	Redrive int       // how often the message was redriven; each redrive emits under new ids
	At      time.Time // stored time of the emission
	// Name, unless empty, identifies the emission by itself: the derived ids depend on it, and not on Message, Handler, Redrive and
	// At. It is for an emission that follows from several messages, of which any may be handled last.
	Name string

	emitted atomic.Int64
}

type causeKey struct{}

// WithCause returns a context in which emissions follow from c.
func WithCause(ctx context.Context, c *Cause) context.Context {
	return context.WithValue(ctx, causeKey{}, c)
}

// CauseOf returns the Cause in ctx, or nil if a flow begins here.
func CauseOf(ctx context.Context) *Cause {
	c, _ := ctx.Value(causeKey{}).(*Cause)
	return c
}

// Apply sets m's id, correlation, causation and trace context if they are empty. Without a Cause, m begins a flow: its id is
// new, and its correlation is its own id.
//
// With a Cause, m's id is derived, so that a handler that runs again and emits in the same order emits the same ids. The id
// has the layout of a UUIDv7 with At as its time. The rest is a hash of the handler, the input's identity, the redrive count,
// the operation, the number of the emission in this run, and the outcome if it is failure or exhausted: if a database loses
// such an outcome, the input may later succeed, and its success needs another id. With a Name the id is a UUIDv8, of which all but
// version and variant is a hash.
func (c *Cause) Apply(m *Message) {
	if c == nil {
		if m.ID == "" {
			m.ID = NewID()
		}
		if m.CorrelationID == "" {
			m.CorrelationID = m.ID
		}
		return
	}
	n := c.emitted.Add(1)
	if m.ID == "" {
		m.ID = c.derive(m.SagaOperation, m.Outcome, n)
	}
	fill(&m.CorrelationID, c.Message.CorrelationID)
	fill(&m.CorrelationID, c.Message.ID)
	fill(&m.CausationID, c.Message.ID)
	if m.TraceParent == "" {
		m.TraceParent, m.TraceState = c.Message.TraceParent, c.Message.TraceState
	}
}

func fill(s *string, with string) {
	if *s == "" {
		*s = with
	}
}

func (c *Cause) derive(operation string, o Outcome, n int64) string {
	b := make([]byte, 0, 128)
	if c.Name != "" {
		b = strconv.AppendQuote(b, c.Name)
	} else {
		b = strconv.AppendQuote(b, c.Handler)
		b = strconv.AppendQuote(append(b, ' '), c.Message.Identity())
		b = strconv.AppendInt(append(b, ' '), int64(c.Redrive), 10)
	}
	b = strconv.AppendQuote(append(b, ' '), operation)
	b = strconv.AppendInt(append(b, ' '), n, 10)
	if o == Failure || o == Exhausted { // ids of all other outcomes are the same as in earlier versions
		b = append(append(b, ' '), o...)
	}
	sum := sha256.Sum256(b)
	var u uuid.UUID
	if c.Name != "" {
		copy(u[:], sum[:])
		u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
		return u.String()
	}
	copy(u[6:], sum[:10])
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(c.At.UnixMilli()))
	copy(u[:6], ms[2:])
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80
	return u.String()
}
