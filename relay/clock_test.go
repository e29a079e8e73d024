package relay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// The database's clock was an hour ahead when the last lease was taken. Then the clock was corrected, or another host took
// over, and the holder is gone.
func TestALeaseFromAClockThatWasAheadIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(`INSERT INTO troupe.relay_leases (shard, holder, term, expires_at) VALUES (0, 'dead', 7, clock_timestamp() + interval '1 hour')`)
	r := s.start(s.config())
	s.insert(s.topic, "k", "1")
	testkit.Consume(t, s.brokers, s.topic).WaitN(1)
	require.EqualValues(t, 8, r.Status().Term)
}

func TestALeaseThatLastsIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(`INSERT INTO troupe.relay_leases (shard, holder, term, expires_at) VALUES (0, 'alive', 7, clock_timestamp() + interval '1 hour')`)
	cfg := s.config()
	cfg.Lease = time.Hour
	r := s.start(cfg)
	testkit.Wait(t, "the standby", func() (bool, error) { return r.Status().Role == relay.Standby, nil })
	require.Equal(t, "alive", r.Status().Leader)
}

// The same for shards, both of the current layout and of a former one.
func TestShardsFromAClockThatWasAheadAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(`INSERT INTO troupe.relay_leases (shard, holder, term, expires_at, shards, layout) VALUES
		(0, 'dead', 7, clock_timestamp() + interval '1 hour', 3, 4),
		(1, 'dead', 7, clock_timestamp() + interval '1 hour', 1, 4),
		(2, 'dead', 7, clock_timestamp() + interval '1 hour', 1, 3)`)
	cfg := s.config()
	cfg.Source, cfg.Shards = relay.Poll, 3
	r := s.start(cfg)
	testkit.Wait(t, "all shards", func() (bool, error) { return len(r.Status().Held) == 3, nil })
}

// A row that failed while the clock was ahead does not wait until the clock reaches its next try.
func TestANextTryFromAClockThatWasAheadIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.insert(s.topic, "k", "1")
	s.exec(`INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, next_try, last_error)
		SELECT position, id, topic, 'k', 'retrying', 1, 8, clock_timestamp() + interval '1 hour', 'it failed' FROM troupe.outbox`)
	s.insert(s.topic, "k", "2")
	s.start(s.config())
	require.Equal(t, []string{"1", "2"}, values(s.gather(2, s.topic)))
}
