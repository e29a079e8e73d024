package participant_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// TestARedrivenEventWaitsForAMemberWithItsHandler redrives an event while an earlier version, without a handler for its type,
// owns the partition.
func TestARedrivenEventWaitsForAMemberWithItsHandler(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	order := topics.MustHop(s.hop.Flow(), "order")
	s.provision(1)
	testkit.Topics(t, s.client, 1, order.Events())
	var broken atomic.Bool
	broken.Store(true)
	var passed atomic.Int64
	member := func(with bool) *participant.Participant {
		p := s.new(onePartition, func(c *participant.Config) {
			c.Hooks.Passed = func(participant.Passed) { passed.Add(1) }
		})
		participant.On(p, order, func(context.Context, pgx.Tx, participant.Event[Other]) error { return nil })
		if with {
			participant.On(p, order, func(ctx context.Context, tx pgx.Tx, e participant.Event[Count]) error {
				if broken.Load() {
					return errAsked
				}
				_, err := tx.Exec(ctx, "INSERT INTO done (key, n, attempt) VALUES ('a', 1, 1)")
				return err
			})
		}
		return p
	}
	stop := s.start(member(true))
	m := s.command("a", Count{N: 1})
	m.Topic, m.Outcome = order.Events(), envelope.Success
	s.send(m)
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE status = 'open'")
	stop()
	broken.Store(false)

	stop = s.start(member(false))
	r, err := s.desk().Redrive(t.Context(), repair.Filter{}, repair.RedriveConfig{By: ann})
	require.NoError(t, err)
	require.Equal(t, 1, r.Redriven)
	require.Equal(t, 1, s.publish(order.Events(), 1))
	waitFor(t, "the event is held or passed over", func() bool { return passed.Load() > 0 || s.count("SELECT count(*) FROM troupe.held") > 0 })
	stop()
	require.Zero(t, passed.Load(), "the redriven event is lost")
	s.start(member(true))
	s.waitCount(1, "SELECT count(*) FROM done")
}
