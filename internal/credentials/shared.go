package credentials

import (
	"context"
	"sync"
	"time"
)

// A Shared value is fetched once for all callers that call Get at the same time, and may be kept for later callers.
type Shared[T any] struct {
	// Fetch gets the value. Its context ends when no caller of Get waits any more.
	Fetch func(context.Context) (T, error)
	// Lasts returns the time from which a value is fetched again, and the time at which it becomes invalid. If the fetch fails
	// between the two, the value is still used. Nil: no value is kept.
	Lasts func(T) (refresh, end time.Time)
	// Now returns the time, for tests. Nil: time.Now.
	Now func() time.Time

	mu           sync.Mutex
	running      *fetch[T] // nil: none
	kept         T
	refresh, end time.Time // of kept
}

// A fetch is one call of Shared.Fetch, with the callers that wait for it.
type fetch[T any] struct {
	done   chan struct{}
	value  T
	err    error
	waits  int // callers of Get that wait
	cancel context.CancelFunc
}

// Get returns the value, or the error of the fetch, or ctx's error when ctx ends first.
func (s *Shared[T]) Get(ctx context.Context) (T, error) {
	s.mu.Lock()
	if s.now().Before(s.refresh) {
		defer s.mu.Unlock()
		return s.kept, nil
	}
	f := s.running
	if f == nil {
		f = s.start(ctx)
	}
	f.waits++
	s.mu.Unlock()
	select {
	case <-f.done:
		return f.value, f.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.waits--; f.waits == 0 {
		f.cancel()
		if s.running == f {
			s.running = nil
		}
	}
	var zero T
	return zero, ctx.Err()
}

// start begins a fetch. The fetch continues if ctx ends and other callers still wait. The caller holds s.mu.
func (s *Shared[T]) start(ctx context.Context) *fetch[T] {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &fetch[T]{done: make(chan struct{}), cancel: cancel}
	s.running = f
	go func() {
		defer cancel()
		value, err := s.Fetch(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		f.value, f.err = value, err
		switch {
		case err == nil && s.Lasts != nil:
			s.kept = value
			s.refresh, s.end = s.Lasts(value)
		case err != nil && s.now().Before(s.end):
			f.value, f.err = s.kept, nil
		}
		if s.running == f {
			s.running = nil
		}
		close(f.done)
	}()
	return f
}

func (s *Shared[T]) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}
