package participant

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/extension"
)

// addSelfObserver registers o, which observes events of the hop's own: o.OnWrite when the event is written, and o.OnConsume if it is consumed.
func (p *Participant) addSelfObserver(o extension.SelfObserver) {
	topic := p.cfg.Hop.Events()
	p.mu.Lock()
	switch {
	case p.running: // observe reports it
	case o.Name == "" || o.OnWrite == nil || o.OnConsume == nil:
		p.mistakes = append(p.mistakes, fmt.Errorf("observer of %s on %s: want a name, OnWrite and OnConsume", o.Type, topic))
	default:
		p.selfObservers = append(p.selfObservers, o)
	}
	p.mu.Unlock()
	p.observe(topic, o.Type, o.OnConsume)
}

// observeSelf calls OnWrite of each observer of m's type, and adds a header to m for each.
func (p *Participant) observeSelf(ctx context.Context, m *envelope.Message, along *pgx.Batch) error {
	if m.Topic != p.cfg.Hop.Events() {
		return nil
	}
	for _, o := range p.selfObservers {
		if o.Type != m.Type {
			continue
		}
		as := *m
		as.Subject, as.Time = string(m.Key), time.Now() // as the relay sets them
		cause := &envelope.Cause{Message: as, Handler: p.cfg.Group + "/" + m.Type, At: as.Time}
		if err := o.OnWrite(envelope.WithCause(ctx, cause), along, as); err != nil {
			return err
		}
		m.Extra = append(m.Extra, envelope.Header{Key: ce.HeaderObserved, Value: []byte(p.cfg.Group + "/" + o.Name)})
	}
	return nil
}

// wasObserved reports whether m needs no handling here, since all its observers ran when it was written. It returns false if m was in the partition
// before this member took the partition over: a restore, or a failover to a standby that lagged, may have lost the effect of the observers since. The
// observers then run again, and do nothing if their effect is still stored. It also returns false if m comes from troupe.held or was redriven: its run
// at a take-over may have failed.
func (p *Participant) wasObserved(m *message) bool {
	h := m.handler
	if h == nil || h.bind != nil || h.all != nil || h.ask != nil || m.Topic != p.cfg.Hop.Events() {
		return false
	}
	if m.atTakeOver || m.redrive > 0 || m.held != nil && m.entry == nil {
		return false
	}
	seen := 0
	for _, o := range p.selfObservers {
		if o.Type != m.Type {
			continue
		}
		name := p.cfg.Group + "/" + o.Name
		if !slices.ContainsFunc(m.Extra, func(h envelope.Header) bool { return h.Key == ce.HeaderObserved && string(h.Value) == name }) {
			return false
		}
		seen++
	}
	// Any other observer of h observes only received messages.
	return seen == len(h.observed) && (h.events == nil || !h.events.wants(m.Message))
}
