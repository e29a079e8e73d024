package participant_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestMembersWithDifferentInboxRetentionsHandleAMessageOnce sends it to both at once, as during a deployment that raises the
// retention above the days of the ring.
func TestMembersWithDifferentInboxRetentionsHandleAMessageOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(2)
	keys := s.keys(2)
	var begun atomic.Int32
	second := make(chan struct{})
	for i, keep := range []time.Duration{7 * 24 * time.Hour, 30 * 24 * time.Hour} {
		p := s.new(func(c *participant.Config) { c.InboxRetention = keep })
		participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
			if c.Body.N == 0 {
				return count(ctx, tx, c)
			}
			if begun.Add(1) == 2 {
				close(second)
			}
			// The other one runs too, or waits for this one's row.
			waitFor(t, "the other member", func() bool {
				select {
				case <-second:
					return true
				default:
				}
				return s.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") > 0
			})
			return count(ctx, tx, c)
		})
		require.NoError(t, p.TurnNow())
		s.start(p)
		if i == 0 {
			waitFor(t, "both partitions", func() bool { return p.Assigned() == 2 })
		} else {
			waitFor(t, "a partition", func() bool { return p.Assigned() == 1 })
		}
	}
	for _, key := range keys { // each member handles its own
		s.send(s.command(key, Count{}))
	}
	s.waitCount(2, "SELECT count(*) FROM done")
	m := s.command(keys[0], Count{N: 1})
	m.IdempotencyKey = ""
	again := m
	again.Key = []byte(keys[1])
	s.send(m, again)
	waitFor(t, "the end of both", func() bool { return s.committed(0) == 2 && s.committed(1) == 2 })
	require.Equal(t, 1, s.count("SELECT count(*) FROM done WHERE n = 1"))
}

// TestTheLongestRetentionKeepsTheIdentitiesOfAShorterOne: a service whose InboxRetention becomes the longest time that Go can name recognises the
// messages that it has handled before.
func TestTheLongestRetentionKeepsTheIdentitiesOfAShorterOne(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	m := s.command("a", Count{N: 1})
	m.IdempotencyKey = ""
	for n, keep := range []time.Duration{7 * 24 * time.Hour, math.MaxInt64} {
		p := s.new(onePartition, func(c *participant.Config) { c.InboxRetention = keep })
		participant.Handle(p, count)
		require.NoError(t, p.TurnNow())
		stop := s.start(p)
		s.send(m)
		waitFor(t, "the message", func() bool { return s.committed(0) == int64(n+1) })
		require.NoError(t, p.PruneInbox())
		stop()
	}
	require.Equal(t, 1, s.count("SELECT count(*) FROM done"))
}
