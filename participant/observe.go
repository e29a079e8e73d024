package participant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/topics"
)

// observe is a function that is called with a message and the transaction in which it is handled. The body is undecoded.
type observe = func(ctx context.Context, tx pgx.Tx, m envelope.Message) error

// observer holds an observe function, and the topic and the type of the messages for which it is called.
type observer struct {
	topic, typ string
	fn         observe
}

// observe registers fn for the messages of type typ on topic: the events of a hop, or the hop's own commands.
func (p *Participant) observe(topic, typ string, fn observe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running {
		p.endRun(mistake{errLate})
		return
	}
	t, err := topics.Parse(topic)
	switch {
	case err != nil:
		p.mistakes = append(p.mistakes, fmt.Errorf("observer of %s: %w", typ, err))
	case typ == "":
		p.mistakes = append(p.mistakes, fmt.Errorf("observer on %s: no type", topic))
	case t.Kind == topics.Events, topic == p.cfg.Hop.Commands():
		p.observed = append(p.observed, observer{topic, typ, fn})
	default:
		p.mistakes = append(p.mistakes, fmt.Errorf("observer of %s on %s: want the events of a hop, or %s", typ, topic, p.cfg.Hop.Commands()))
	}
}

// eventObserver is a function of ObserveEvents.
type eventObserver struct {
	wants func(envelope.Message) bool
	fn    observe
}

// observeEvents registers a function for the events of the hop itself and of the hops whose events have handlers.
func (p *Participant) observeEvents(o eventObserver) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running {
		p.endRun(mistake{errLate})
		return
	}
	p.eventObserver = &o
}

// addObservers adds each observer to the handler of its messages. It creates a handler if there is none.
func (p *Participant) addObservers() error {
	for _, o := range p.observed {
		h := p.registered()[o.topic][route{typ: o.typ}]
		if h == nil {
			h = &handler{topic: o.topic, typ: o.typ, name: p.cfg.Group + "/" + o.typ}
			if err := p.registered().add(h); err != nil {
				return errors.Join(errors.New("an observer and OnAll do not go together"), err)
			}
		}
		h.observed = append(h.observed, o.fn)
	}
	if p.eventObserver == nil {
		return nil
	}
	consumed := append(slices.Collect(maps.Keys(p.registered())), p.cfg.Hop.Events())
	slices.Sort(consumed)
	for _, topic := range slices.Compact(consumed) {
		if err := p.addEventObserver(topic); err != nil {
			return err
		}
	}
	return nil
}

// addEventObserver adds the function of ObserveEvents to the handlers of a topic of events, and registers it as the handler of events whose type has
// no handler.
func (p *Participant) addEventObserver(topic string) error {
	t, err := topics.Parse(topic)
	if err != nil || t.Kind != topics.Events {
		return nil
	}
	o := p.eventObserver
	for to, h := range p.registered()[topic] {
		p.observeEventsOf(h)
		if to.all { // it gets all events
			return nil
		}
	}
	rest := &handler{topic: topic, name: p.cfg.Group + "/" + allTypes, wants: o.wants}
	rest.bind = func(_ any, m *message) run {
		return func(ctx context.Context, tx pgx.Tx) (Outcome, error) { return Outcome{}, o.fn(ctx, tx, m.Message) }
	}
	return p.registered().add(rest)
}

// observeEventsOf adds the function of ObserveEvents to h. It does nothing if h is optional: then h's own function gets the events for which
// ObserveEvents was called.
func (p *Participant) observeEventsOf(h *handler) {
	if !h.optional {
		h.events = p.eventObserver
	}
}

// onlyObserves reports whether h has only observers, and no function of its own.
func (h *handler) onlyObserves() bool { return h != nil && h.bind == nil && h.all == nil }

// behind returns a run that first calls h's observers, and then calls then.
func (h *handler) behind(m *message, then run) run {
	if len(h.observed) == 0 && h.events == nil {
		return then
	}
	return func(ctx context.Context, tx pgx.Tx) (Outcome, error) {
		if err := h.callObservers(ctx, tx, m); err != nil {
			return Outcome{}, err
		}
		return then(ctx, tx)
	}
}

// callObservers calls h's observers with m. In a rebuild, which handles m again, it calls none: they had m before.
func (h *handler) callObservers(ctx context.Context, tx pgx.Tx, m *message) error {
	if m.generation() > 0 {
		return nil
	}
	for _, fn := range h.observed {
		if err := fn(ctx, tx, m.Message); err != nil {
			return err
		}
	}
	if h.events != nil && h.events.wants(m.Message) {
		return h.events.fn(ctx, tx, m.Message)
	}
	return nil
}
