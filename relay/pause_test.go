package relay_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

func TestAPausedRelayReadsNothingAndKeepsItsLease(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := s.config()
	looked := make(chan struct{}, 100)
	cfg.Hooks.Claimed = func(int) { looked <- struct{}{} }
	r := s.start(cfg)
	waitRole(t, r, relay.Active)
	s.insert(s.topic, "a", "1")
	<-looked
	s.waitEmpty()

	require.Zero(t, r.Paused())
	r.Pause()
	r.Pause()
	require.NotZero(t, r.Paused())
	// The round that was under way at Pause may read once more; this row shows its end.
	s.insert(s.topic, "a", "2")
	standby := s.start(s.config())
	waitRole(t, standby, relay.Standby)
	term := r.Status().Term
	expires := func() int { return s.count("SELECT extract(epoch FROM expires_at)::bigint FROM troupe.relay_leases") }
	renewed := func() {
		before := expires()
		testkit.Wait(t, "the lease is renewed", func() (bool, error) { return expires() > before+2, nil })
	}
	renewed()
	s.insert(s.topic, "a", "3")
	renewed()
	require.Equal(t, relay.Active, r.Status().Role)
	require.Positive(t, s.count("SELECT count(*) FROM troupe.outbox"))

	r.Resume()
	r.Resume()
	s.waitEmpty()
	require.Equal(t, term, r.Status().Term, "nobody took over meanwhile")
	require.Zero(t, r.Paused())
}

func TestAPausedRelayStopsWhenAsked(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r := s.start(s.config())
	waitRole(t, r, relay.Active)
	r.Pause()
	require.NoError(t, r.stop())
}

func ExampleRelay_Pause() {
	maintain := func(_ context.Context, r *relay.Relay, work func()) {
		r.Pause()
		defer r.Resume()
		work() // nothing is published meanwhile; the lease is kept
	}
	_ = maintain
	// Output:
}
