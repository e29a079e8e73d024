package participant

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/topics"
)

// observe is a function that is called with a message and the transaction in which it is handled. The body is undecoded.
type observe = func(ctx context.Context, tx pgx.Tx, m envelope.Message) error

// observer is an observe function and the topic and type of the messages for it.
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

// observeUnhandled registers fn for the hop's own events that have no other handler and for which wants returns true.
func (p *Participant) observeUnhandled(wants func(envelope.Message) bool, fn observe) {
	h := &handler{topic: p.cfg.Hop.Events(), name: p.cfg.Group + "/" + allTypes, wants: wants}
	h.bind = func(_ any, m *message) run {
		return func(ctx context.Context, tx pgx.Tx) (Outcome, error) { return Outcome{}, fn(ctx, tx, m.forHandler()) }
	}
	p.register(h)
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
	return nil
}

// onlyObserves reports whether h has only observers, and no function of its own.
func (h *handler) onlyObserves() bool { return h != nil && h.bind == nil && h.all == nil }

// behind returns a run that calls h's observers, and then the run then.
func (h *handler) behind(m *message, then run) run {
	if len(h.observed) == 0 || m.generation() > 0 { // a rebuild handles m again: the observers had it before
		return then
	}
	return func(ctx context.Context, tx pgx.Tx) (Outcome, error) {
		for _, fn := range h.observed {
			if err := fn(ctx, tx, m.Message); err != nil {
				return Outcome{}, err
			}
		}
		return then(ctx, tx)
	}
}
