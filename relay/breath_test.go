package relay

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A call that waits finds its context ended, so that the result does not depend on the clock.
func TestAWindowOfAFewRowsWaitsForOthersBehindOneThatHasJustGone(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	with := func(rows int) *window { return &window{items: make([]item, rows), whole: rows, upTo: 1} }
	just := time.Now().Add(time.Hour) // recent for the whole test
	long := time.Now().Add(-time.Minute)
	within := func(rows int, begun time.Time) *window {
		return &window{items: make([]item, rows), whole: 1, upTo: 1, begun: begun}
	}
	for _, c := range []struct {
		name   string
		window *window
		last   time.Time
		waits  bool
	}{
		{"a row behind others", with(1), just, true},
		{"a keepalive behind rows", with(0), just, true},
		{"the first row in a while", with(1), long, false},
		{"a full window", with(windowRows), just, false},
		{"the first rows of a transaction", within(3, just), long, true},
		{"rows of a long transaction", within(3, long), long, false},
		{"a full window of one", within(windowRows, just), long, false},
	} {
		s := &stream{relay: &Relay{}, filling: c.window, spare: new(window), taken: c.last, room: make(chan struct{}, 1), publishedMoved: make(chan struct{}, 1)}
		items, err := s.next(over)
		if c.waits {
			require.ErrorIs(t, err, context.Canceled, c.name)
			continue
		}
		require.NoError(t, err, c.name)
		require.Len(t, items, len(c.window.items), c.name)
	}
}

func TestAKeepaliveIsNothingToWaitBehind(t *testing.T) {
	t.Parallel()
	s := &stream{relay: &Relay{}, filling: &window{upTo: 1}, spare: &window{}, room: make(chan struct{}, 1), publishedMoved: make(chan struct{}, 1)}
	_, err := s.next(t.Context())
	require.NoError(t, err)
	require.Zero(t, s.taken)
}

func TestRowsOfATransactionWaitForEachOther(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		then  func(s *stream) // after two rows of a transaction
		after time.Duration
		rows  int
	}{
		{"until it is whole", func(s *stream) { s.advanceRead(1, true) }, 0, 2},
		{"as long as a breath", func(*stream) {}, breath, 2},
		{"another one begins no other breath", func(s *stream) {
			s.advanceRead(1, true)
			time.Sleep(breath / 2) //nolint:forbidigo // virtual time
			s.filling.push(item{})
		}, breath, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &stream{relay: &Relay{}, filling: &window{}, spare: &window{}, ready: make(chan struct{}, 1), room: make(chan struct{}, 1), publishedMoved: make(chan struct{}, 1)}
			began := time.Now()
			s.mu.Lock()
			s.filling.push(item{})
			s.filling.push(item{})
			s.mu.Unlock()
			gone := make(chan int, 1)
			go func() {
				items, err := s.next(t.Context())
				if err == nil {
					gone <- len(items)
				}
			}()
			synctest.Wait()
			require.Empty(t, gone, c.name)
			c.then(s)
			tell(s.ready)
			require.Equal(t, c.rows, <-gone, c.name)
			require.Equal(t, c.after, time.Since(began), c.name)
		})
	}
}
