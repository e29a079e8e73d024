package registry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/troupe-go/troupe/internal/avsc"
)

const (
	forgetDown    = time.Second      // time without a request after the registry failed, or returned an error for an id or subject
	forgetUnknown = 10 * time.Second // time without a request for an unknown id or subject
	askUnknown    = 5                // number of requests for one, forgetDown apart, before it counts as unknown: registries lag
	ForgetLatest  = time.Minute      // time for which a subject's latest version counts as the latest
)

type latest struct {
	id    uint32
	until time.Time
}

// failures stores the registry's failures, so that many bad messages do not cause many requests to the registry.
type failures struct {
	turn  chan struct{}                // one caller sends a request, the others wait and then use its result
	about *avsc.Cache[string, failure] // by id or subject
	now   func() time.Time

	mu   sync.Mutex
	down failure
}

type failure struct {
	err   error
	until time.Time
	asked int // number of responses that the registry does not have it
}

// ErrNotYet is wrapped together with ErrNoSchema while the registry may still get the schema.
var ErrNotYet = errors.New("the registry may not have it yet: it is requested again")

func newFailures() failures {
	return failures{turn: make(chan struct{}, 1), about: avsc.NewCache[string, failure](), now: time.Now}
}

// ByID returns the schema with an id. The first call for an id queries the registry; later calls do not. An error that wraps
// ErrNoSchema means that there is no such schema now; any other error means that the registry could not be queried.
func (r *Client) ByID(ctx context.Context, id uint32) (Stored, error) {
	if id > math.MaxInt32 {
		return Stored{}, fmt.Errorf("schema id %d: %w: the largest id is %d", id, ErrNoSchema, math.MaxInt32)
	}
	known := func() (Stored, bool) { return r.byID.Get(id) }
	return ask(ctx, r, fmt.Sprintf("schema id %d", id), known, func() (Stored, error) {
		s, err := r.client().SchemaByID(ctx, int(id))
		if err != nil {
			return Stored{}, err
		}
		whole, err := r.complete(ctx, s)
		if err == nil {
			r.Keep(id, whole)
		}
		return whole, err
	})
}

// maxSubjectPath is the longest subject in a path, in bytes. Servers limit the length of a request's first line, many to 8 KiB, and some
// close the connection on a longer one.
const maxSubjectPath = 2 << 10

// checkSubject returns an error that wraps ErrNoSchema if no request can name the subject. A type of a message may be a subject, and
// services write any type. The response to a request for another path would say nothing about the subject, and count as an outage.
func checkSubject(subject string) error {
	switch {
	case subject == "", subject == ".", subject == "..":
		return fmt.Errorf("subject %q: %w: no path of a request can end in this name", subject, ErrNoSchema)
	case len(url.PathEscape(subject)) > maxSubjectPath:
		return fmt.Errorf("subject %s…: %w: it has %d bytes, and more than %d in the path of a request",
			strings.ToValidUTF8(subject[:100], ""), ErrNoSchema, len(subject), maxSubjectPath)
	}
	return nil
}

// Latest returns the id of the newest version of subject, at most a minute old. Errors are the same as ByID's.
func (r *Client) Latest(ctx context.Context, subject string) (uint32, error) {
	if err := checkSubject(subject); err != nil {
		return 0, err
	}
	known := func() (latest, bool) {
		l, ok := r.latest.Get(subject)
		return l, ok && r.failures.now().Before(l.until)
	}
	l, err := ask(ctx, r, "subject "+subject, known, func() (latest, error) {
		s, err := r.client().SchemaByVersion(ctx, subject, -1)
		if err != nil {
			return latest{}, err
		}
		whole, err := r.complete(ctx, s.Schema)
		if err != nil {
			return latest{}, err
		}
		id, err := r.checkID(s.ID)
		if err != nil {
			return latest{}, err
		}
		r.Keep(id, whole)
		l := latest{id, r.failures.now().Add(ForgetLatest)}
		r.latest.Put(subject, l, len(subject))
		return l, nil
	})
	if answer := (*sr.ResponseError)(nil); errors.As(err, &answer) && !errors.Is(err, ErrNoSchema) && isOdd(subject) {
		return 0, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return l.id, err
}

// isOdd reports whether a server may read the escaped subject as another path, or refuse it: many decode or refuse %2F, for example. Then an
// error response, of any status, does not mean that the registry is unavailable for other subjects.
func isOdd(subject string) bool {
	return strings.ContainsFunc(url.PathEscape(subject), func(c rune) bool { return !strings.ContainsRune(plainSubject, c) })
}

const plainSubject = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

// ask returns the known value, or a recent failure, or else fetches the value; one caller at a time fetches.
func ask[V any](ctx context.Context, r *Client, what string, known func() (V, bool), fetch func() (V, error)) (v V, err error) {
	if v, ok := known(); ok {
		return v, nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", what, err)
		}
	}()
	t := &r.failures
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
	if !errors.Is(ctx.Err(), context.Canceled) { // a caller that cancels proves nothing
		t.add(what, err)
	}
	return v, err
}

func (t *failures) recent(what string) error {
	now := t.now()
	if f, ok := t.about.Get(what); ok && now.Before(f.until) {
		return f.err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.down.until) {
		return t.down.err
	}
	return nil
}

// unknown counts how often the registry did not have a schema. A registry of several servers may lag behind a schema that
// another one of them has just stored.
func (t *failures) unknown(what string, r *Client) error {
	before, _ := t.about.Get(what)
	f := failure{asked: before.asked + 1}
	if f.asked < askUnknown {
		f.until = t.now().Add(forgetDown)
		f.err = fmt.Errorf("%w: registry %s does not have it; asked %d of %d times: %w",
			ErrNoSchema, r, f.asked, askUnknown, ErrNotYet)
	} else {
		f.until = t.now().Add(forgetUnknown)
		f.err = fmt.Errorf("%w: registry %s does not have it", ErrNoSchema, r)
	}
	t.about.Put(what, f, len(what))
	return f.err
}

// add stores a failure under the requested id or subject if the registry responded, and for the whole registry if it did not:
// one bad id must not prevent requests for others.
func (t *failures) add(what string, err error) {
	var answer *sr.ResponseError
	switch {
	case errors.Is(err, ErrNoSchema):
		t.about.Put(what, failure{err: err, until: t.now().Add(forgetUnknown)}, len(what))
	case errors.As(err, &answer), errors.Is(err, errAnswerTooLarge):
		t.about.Put(what, failure{err: err, until: t.now().Add(forgetDown)}, len(what))
	default:
		t.mu.Lock()
		defer t.mu.Unlock()
		t.down = failure{err: err, until: t.now().Add(forgetDown)}
	}
}
