package decisions

import (
	"context"
	"fmt"

	"github.com/troupe-go/troupe/saga"
)

// A StartResult reports which saga a start has started or found: see coordinator.StartResult.
type StartResult struct {
	ID                 string
	Existed, OtherData bool
}

// A Start is a checked start of a saga that no transaction has decided on yet.
type Start struct{ target target }

// ID returns the saga's id.
func (s Start) ID() string { return s.target.id }

// Lock returns the name of the lock that the saga takes, or an empty text if it takes none.
func (s Start) Lock() string { return s.target.lock }

// StartOf returns the start of a saga of the type name with the values in fields. If ctx is the context of a handler, the saga belongs
// to the flow of the handled message; otherwise it begins a flow.
func (ds *Definitions) StartOf(ctx context.Context, name string, fields map[string]any) (Start, error) {
	d, err := ds.Named(name)
	if err != nil {
		return Start{}, err
	}
	t, err := started(d, saga.Event{Fields: fields, Correlation: correlationOf(ctx)})
	return Start{t}, err
}

// begin starts a saga of the type name, on its current definition.
func (p *pass) begin(ctx context.Context, name string, fields map[string]any) (StartResult, error) {
	d, err := p.Named(name)
	if err != nil {
		return StartResult{}, err
	}
	return p.beginOn(ctx, d, saga.Event{Fields: fields})
}

// StartData returns the saga's key and variables for the values that a caller gives. Each value is converted to the type that d
// declares.
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

// started returns the target that starts a saga of d. e has the values for the variables, the actor, the reason and the id of the
// message that starts the saga.
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

// beginOn starts a saga of definition d. e has the values, the actor and the reason.
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

// found returns the result of the start t. Call it before start, which changes the state that found reads.
func (p *pass) found(t target) StartResult {
	s := p.sagas[t.id].state
	return StartResult{ID: t.id, Existed: s.Version > 0, OtherData: t.event.OtherData(s)}
}
