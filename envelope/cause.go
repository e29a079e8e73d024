package envelope

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"sync"
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

	mu      sync.Mutex
	emitted []emitted
}

// emitted counts the messages of one topic and type that a run has emitted.
type emitted struct {
	topic, typ string
	n          int
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
// With a Cause, m's id is derived from the handler, the input's identity, the redrive count, and m's topic, type, operation and outcome.
// Messages of one topic and type are numbered in the order in which a run emits them. So a handler that runs again emits the same
// ids, and another id where it emits another message: if a database was set back, the handler may decide otherwise than before, and
// consumers must not take its new message for the lost one.
//
// The id has the layout of a UUIDv7 with At as its time, and a hash as the rest. With a Name it is a UUIDv8, of which all but version and
// variant is a hash.
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
	n := c.count(m.Topic, m.Type)
	if m.ID == "" {
		m.ID = c.derive(m, n)
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

// count returns how many messages of the topic and type the run has emitted with this one.
func (c *Cause) count(topic, typ string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.emitted {
		if e := &c.emitted[i]; e.topic == topic && e.typ == typ {
			e.n++
			return e.n
		}
	}
	c.emitted = append(c.emitted, emitted{topic, typ, 1})
	return 1
}

func (c *Cause) derive(m *Message, n int) string {
	b := make([]byte, 0, 256)
	if c.Name != "" {
		b = strconv.AppendQuote(b, c.Name)
	} else {
		b = strconv.AppendQuote(b, c.Handler)
		b = strconv.AppendQuote(append(b, ' '), c.Message.Identity())
		b = strconv.AppendInt(append(b, ' '), int64(c.Redrive), 10)
	}
	for _, part := range []string{m.Topic, m.Type, m.SagaOperation, string(m.Outcome)} {
		b = strconv.AppendQuote(append(b, ' '), part)
	}
	b = strconv.AppendInt(append(b, ' '), int64(n), 10)
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
