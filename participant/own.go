package participant

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
)

// HeaderObserved names, on an event of a hop, an Own that its own group has seen to in the transaction that wrote it:
// group/name, once for each.
const HeaderObserved = "__troupe.observed"

// An Own is what a service does about the events that it says itself.
type Own struct {
	// Type is theirs, on the hop's own events topic.
	Type string
	// Name tells it from others of that type.
	Name string
	// Written adds to b what is done in the transaction that writes m: an outcome, or an entry of Outbox. ctx has m as its
	// cause. It goes with the entry, behind it; nobody reads the results but functions of its own.
	Written func(ctx context.Context, b *pgx.Batch, m envelope.Message) error
	// Came is as Observe has it, for those that were written in another way, by SQL or by a version of the service that had
	// no such Own: they come back from the topic like any other's. It may get one again, and must do nothing then.
	Came func(ctx context.Context, tx pgx.Tx, m envelope.Message) error
}

// ObserveOwn has o see to the hop's own events as they are written, so that none of them has to be handled for it. Mistakes
// are Run's error.
func (p *Participant) ObserveOwn(o Own) {
	topic := p.cfg.Hop.Events()
	p.mu.Lock()
	switch {
	case p.running: // Observe says so
	case o.Name == "" || o.Written == nil || o.Came == nil:
		p.mistakes = append(p.mistakes, fmt.Errorf("observer of %s on %s: want a name, Written and Came", o.Type, topic))
	default:
		p.owns = append(p.owns, o)
	}
	p.mu.Unlock()
	p.Observe(topic, o.Type, o.Came)
}

// observeOwn lets those whom m concerns see it, and notes on it that they have.
func (p *Participant) observeOwn(ctx context.Context, m *envelope.Message, along *pgx.Batch) error {
	if m.Topic != p.cfg.Hop.Events() {
		return nil
	}
	for _, o := range p.owns {
		if o.Type != m.Type {
			continue
		}
		as := *m
		as.Subject, as.Time = string(m.Key), time.Now() // as the relay has them
		cause := &envelope.Cause{Message: as, Handler: p.cfg.Group + "/" + m.Type, At: as.Time}
		if err := o.Written(envelope.WithCause(ctx, cause), along, as); err != nil {
			return err
		}
		m.Extra = append(m.Extra, envelope.Header{Key: HeaderObserved, Value: []byte(p.cfg.Group + "/" + o.Name)})
	}
	return nil
}

// wasObserved says whether all that is to be done about m was done when it was written.
func (p *Participant) wasObserved(m *message) bool {
	h := m.handler
	if h == nil || h.bind != nil || h.all != nil || h.ask != nil || m.Topic != p.cfg.Hop.Events() {
		return false
	}
	seen := 0
	for _, o := range p.owns {
		if o.Type != m.Type {
			continue
		}
		name := p.cfg.Group + "/" + o.Name
		if !slices.ContainsFunc(m.Extra, func(h envelope.Header) bool { return h.Key == HeaderObserved && string(h.Value) == name }) {
			return false
		}
		seen++
	}
	return seen == len(h.observed) // the others only observe what comes
}
