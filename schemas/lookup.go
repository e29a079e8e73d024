package schemas

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
)

const (
	forgetDown    = time.Second      // how long a registry that did not answer, or with an error, is not asked again
	forgetUnknown = 10 * time.Second // how long an unknown id or subject is not asked for again
	askUnknown    = 5                // times that one is asked for, forgetDown apart, before that is final: registries lag
	forgetLatest  = time.Minute      // how long a subject's latest version counts as the latest
)

type latest struct {
	id    uint32
	avsc  string
	until time.Time
}

// trouble remembers failures, so that a storm of bad messages is no storm on the registry.
type trouble struct {
	turn  chan struct{}           // one asks, the others wait and then find its answer
	about *cache[string, failure] // by what was asked for
	now   func() time.Time

	mu   sync.Mutex
	down failure
}

type failure struct {
	err   error
	until time.Time
	asked int // times that the registry said that it does not have it
}

// errNotYet is wrapped beside ErrNoSchema while the registry may still come to know what was asked for.
var errNotYet = errors.New("it may come to know it")

func newTrouble() trouble {
	return trouble{turn: make(chan struct{}, 1), about: newCache[string, failure](), now: time.Now}
}

// ByID is the schema that id stands for. The first call for an id asks the registry; later ones do not. Errors that wrap
// ErrNoSchema say that there is none for now, others that the registry could not be asked.
func (r *Registry) ByID(ctx context.Context, id uint32) (string, error) {
	if id > math.MaxInt32 {
		return "", fmt.Errorf("schema id %d: %w: registries count to %d", id, ErrNoSchema, math.MaxInt32)
	}
	known := func() (string, bool) { return r.byID.get(id) }
	return ask(ctx, r, fmt.Sprintf("schema id %d", id), known, func() (string, error) {
		s, err := r.client.SchemaByID(ctx, int(id))
		if err == nil {
			err = usable(s)
		}
		if err == nil {
			r.byID.put(id, s.Schema)
		}
		return s.Schema, err
	})
}

// Latest is the newest version of subject and its id, at most a minute old. Errors are those of ByID.
func (r *Registry) Latest(ctx context.Context, subject string) (id uint32, avsc string, err error) {
	known := func() (latest, bool) {
		l, ok := r.latest.get(subject)
		return l, ok && r.trouble.now().Before(l.until)
	}
	l, err := ask(ctx, r, "subject "+subject, known, func() (latest, error) {
		s, err := r.client.SchemaByVersion(ctx, subject, -1)
		if err == nil {
			err = usable(s.Schema)
		}
		if err != nil {
			return latest{}, err
		}
		id, err := r.remember(s.ID, s.Schema.Schema)
		l := latest{id, s.Schema.Schema, r.trouble.now().Add(forgetLatest)}
		if err == nil {
			r.latest.put(subject, l)
		}
		return l, err
	})
	return l.id, l.avsc, err
}

func usable(s sr.Schema) error {
	switch {
	case s.Schema == "":
		return errors.New("the answer has no schema")
	case s.Type != sr.TypeAvro:
		return fmt.Errorf("%w: it is %s", ErrNoSchema, s.Type)
	case len(s.References) > 0:
		return fmt.Errorf("%w: it has references to other subjects", ErrNoSchema)
	}
	if err := checkSize(s.Schema); err != nil {
		return fmt.Errorf("%w: %w", ErrNoSchema, err)
	}
	return nil
}

// ask gives what is known, or what went wrong a moment ago, or else fetches; one caller at a time.
func ask[V any](ctx context.Context, r *Registry, what string, known func() (V, bool), fetch func() (V, error)) (v V, err error) {
	if v, ok := known(); ok {
		return v, nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", what, err)
		}
	}()
	t := &r.trouble
	if err := t.recent(what); err != nil {
		return v, err
	}
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return v, fmt.Errorf("registry %s: %w", r, ctx.Err())
	}
	if v, ok := known(); ok {
		return v, nil
	}
	if err := t.recent(what); err != nil {
		return v, err
	}
	v, err = fetch()
	switch {
	case err == nil:
		return v, nil
	case isUnknown(err):
		return v, t.unknown(what, r)
	case !errors.Is(err, ErrNoSchema):
		err = r.explain(err)
	}
	if !errors.Is(ctx.Err(), context.Canceled) { // a caller who left proves nothing
		t.add(what, err)
	}
	return v, err
}

func (t *trouble) recent(what string) error {
	now := t.now()
	if f, ok := t.about.get(what); ok && now.Before(f.until) {
		return f.err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.down.until) {
		return t.down.err
	}
	return nil
}

// unknown counts how often the registry did not have it. A registry of several servers can be late with what another
// one has just given out.
func (t *trouble) unknown(what string, r *Registry) error {
	before, _ := t.about.get(what)
	f := failure{asked: before.asked + 1}
	if f.asked < askUnknown {
		f.until = t.now().Add(forgetDown)
		f.err = fmt.Errorf("%w: registry %s does not have it; asked %d of %d times: %w",
			ErrNoSchema, r, f.asked, askUnknown, errNotYet)
	} else {
		f.until = t.now().Add(forgetUnknown)
		f.err = fmt.Errorf("%w: registry %s does not have it", ErrNoSchema, r)
	}
	t.about.put(what, f)
	return f.err
}

// add blames the question if the registry answered it, and the registry if it did not: one odd id must not keep others
// from being asked for.
func (t *trouble) add(what string, err error) {
	var answer *sr.ResponseError
	switch {
	case errors.Is(err, ErrNoSchema):
		t.about.put(what, failure{err: err, until: t.now().Add(forgetUnknown)})
	case errors.As(err, &answer), errors.Is(err, errAnswerTooLarge):
		t.about.put(what, failure{err: err, until: t.now().Add(forgetDown)})
	default:
		t.mu.Lock()
		defer t.mu.Unlock()
		t.down = failure{err: err, until: t.now().Add(forgetDown)}
	}
}
