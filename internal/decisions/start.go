package decisions

import (
	"context"
	"fmt"

	"github.com/troupe-go/troupe/saga"
)

// A StartResult reports which saga a start has started or found.
type StartResult struct {
	ID                 string
	Existed, OtherData bool
}

// A Start is the start of a saga, to be decided.
type Start struct{ target target }

// ID returns the saga's id.
func (s Start) ID() string { return s.target.id }

// Lock returns the name of the lock that the saga takes; "": it takes none.
func (s Start) Lock() string { return s.target.lock }

// StartOf returns the start of a saga of a type with values. Within a handler the saga is part of the handled message's flow, otherwise it
// begins a flow.
func (ds *Definitions) StartOf(ctx context.Context, name string, fields map[string]any) (Start, error) {
	d, err := ds.Named(name)
	if err != nil {
		return Start{}, err
	}
	t, err := started(d, saga.Event{Fields: fields, Correlation: correlationOf(ctx)})
	return Start{t}, err
}

// begin starts a saga by a call.
func (p *pass) begin(ctx context.Context, name string, fields map[string]any) (StartResult, error) {
	d, err := p.Named(name)
	if err != nil {
		return StartResult{}, err
	}
	return p.beginOn(ctx, d, saga.Event{Fields: fields})
}

// StartData returns the key and the variables, in the form of the definition, of the values that a caller gives.
func StartData(d *saga.Definition, given map[string]any) (key string, data map[string]any, err error) {
	text, err := saga.WriteFields(given)
	if err != nil {
		return "", nil, fmt.Errorf("saga %s: %w", d.Spec().Saga, err)
	}
	fields, err := saga.ReadFields(text)
	if err != nil {
		return "", nil, fmt.Errorf("saga %s: %w", d.Spec().Saga, err)
	}
	return d.Start(fields)
}

// started returns the start of a saga of d. e has the values for its variables, and the actor, the reason and the message
// that starts it.
func started(d *saga.Definition, e saga.Event) (target, error) {
	key, data, err := StartData(d, e.Fields)
	if err != nil {
		return target{}, err
	}
	id := d.Spec().Saga + "/" + key
	lock, err := d.Lock(data)
	if err != nil {
		return target{}, fmt.Errorf("saga %s: lock: %w", id, err)
	}
	if lock != "" {
		lock = d.Spec().Saga + "/" + lock
	}
	e.Kind, e.Fields, e.DataHash = saga.Started, data, saga.DataHash(data)
	return target{message: -1, id: id, d: d, event: e, lock: lock}, nil
}

// beginOn starts a saga of definition d; e has the values, the actor and the reason.
func (p *pass) beginOn(ctx context.Context, d *saga.Definition, e saga.Event) (is StartResult, err error) {
	e.Correlation = p.correlation
	t, err := started(d, e)
	if err != nil {
		return is, err
	}
	if err := p.load(ctx, []string{t.id}); err != nil {
		return is, err
	}
	is = p.found(t)
	return is, p.start(ctx, t)
}

// found returns the result for t, to be read before t is started.
func (p *pass) found(t target) StartResult {
	s := p.sagas[t.id].state
	return StartResult{ID: t.id, Existed: s.Version > 0, OtherData: t.event.OtherData(s)}
}
