package personal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/troupe-go/troupe/internal/avsc"
)

var (
	// ErrForgotten is wrapped by the error about a subject whose key is forgotten.
	ErrForgotten = errors.New("the subject's key is forgotten")
	// ErrNoKey is wrapped by the error about a subject that never had a key, as far as the store knows: the store was set back, or it is
	// not the one of the writer.
	ErrNoKey = errors.New("the store has no key of the subject")
	// ErrUnreadableKey is wrapped by the error about a subject whose key the store has and cannot decrypt. The store answers then, so keys of
	// other subjects are looked up as before.
	ErrUnreadableKey = errors.New("the store cannot decrypt the subject's key")
)

// Keys is a store of keys. It has one key for each subject. It is safe for concurrent use.
type Keys interface {
	// Find returns a subject's key. Its error wraps ErrForgotten or ErrNoKey if there is none, and ErrUnreadableKey if it cannot
	// be decrypted. No error contains a key.
	Find(ctx context.Context, subject string) (tink.DeterministicAEAD, error)
	// Make returns a subject's key, and stores a new one if there is none. Concurrent calls return the same key. Its error wraps
	// ErrForgotten if the key is forgotten: a subject does not get a second one.
	Make(ctx context.Context, subject string) (tink.DeterministicAEAD, error)
}

// retryAfter is the time for which lookups fail at once after the store has failed.
const retryAfter = time.Second

// A cache keeps keys for a time.
type cache struct {
	store   Keys
	keep    time.Duration
	timeout time.Duration
	now     func() time.Time
	known   *avsc.Cache[string, known]

	mu     sync.Mutex
	failed time.Time
	err    error // of the failure; nil: the store has answered since
}

// known is a subject's key, or that it is forgotten.
type known struct {
	key   tink.DeterministicAEAD // nil: forgotten
	until time.Time
}

func newCache(store Keys, keep, timeout time.Duration) *cache {
	return &cache{store: store, keep: keep, timeout: timeout, now: time.Now, known: avsc.NewCache[string, known]()}
}

// get returns a subject's key. With create it makes one if there is none.
func (c *cache) get(subject string, create bool) (tink.DeterministicAEAD, error) {
	now := c.now()
	if k, is := c.known.Get(subject); is && now.Before(k.until) {
		if k.key == nil {
			return nil, ErrForgotten
		}
		return k.key, nil
	}
	if err := c.failure(now); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	find := c.store.Find
	if create {
		find = c.store.Make
	}
	key, err := find(ctx, subject)
	switch {
	case err == nil, errors.Is(err, ErrForgotten):
		c.known.Put(subject, known{key, now.Add(c.keep)}, len(subject))
		err = c.settle(now, nil, err)
	case errors.Is(err, ErrNoKey), errors.Is(err, ErrUnreadableKey):
		err = c.settle(now, nil, err)
	default:
		err = c.settle(c.now(), err, err)
	}
	if err != nil {
		return nil, err
	}
	return key, nil
}

// failure returns the error of a store that has just failed.
func (c *cache) failure(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil && now.Before(c.failed.Add(retryAfter)) {
		return fmt.Errorf("the store of keys was away less than a second ago: %w", c.err)
	}
	return nil
}

// settle records whether the store failed, and returns err.
func (c *cache) settle(at time.Time, failure, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed, c.err = at, failure
	return err
}
