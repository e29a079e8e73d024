package relay

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Who waits finds the context at its end, so that the clock decides nothing.
func TestAWindowOfAFewRowsWaitsForOthersBehindOneThatHasJustGone(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	with := func(rows int) *window { return &window{items: make([]item, rows), whole: rows, upTo: 1} }
	just := time.Now().Add(time.Hour) // and for all of this test
	for _, c := range []struct {
		name   string
		window *window
		last   time.Time
		waits  bool
	}{
		{"a row behind others", with(1), just, true},
		{"a keepalive behind rows", with(0), just, true},
		{"the first row in a while", with(1), time.Now().Add(-time.Minute), false},
		{"a full window", with(windowRows), just, false},
	} {
		s := &stream{filling: c.window, spare: new(window), taken: c.last, room: make(chan struct{}, 1), passed: make(chan struct{}, 1)}
		items, err := s.next(over)
		if c.waits {
			require.ErrorIs(t, err, context.Canceled, c.name)
			continue
		}
		require.NoError(t, err, c.name)
		require.Len(t, items, len(c.window.items), c.name)
	}
}

// TestAKeepaliveIsNothingToWaitBehind.
func TestAKeepaliveIsNothingToWaitBehind(t *testing.T) {
	t.Parallel()
	s := &stream{filling: &window{upTo: 1}, spare: &window{}, room: make(chan struct{}, 1), passed: make(chan struct{}, 1)}
	_, err := s.next(t.Context())
	require.NoError(t, err)
	require.Zero(t, s.taken)
}
