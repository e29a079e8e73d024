package participant_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
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

// TestARedriveThatTheDatabaseLostHasNoSecondEffect checks a database that was set back to before the dead letter of a message that
// was redriven: the message is read again, with the service mended, and so is the redriven one.
func TestARedriveThatTheDatabaseLostHasNoSecondEffect(t *testing.T) {
	t.Parallel()
	for _, from := range []struct {
		table, id string
		batch     int
	}{{"inbox_recent", envelope.NewID(), 1}, {"inbox", "charge-17", 1}, {"inbox_recent", envelope.NewID(), 10}} {
		t.Run(fmt.Sprintf("%s, batch %d", from.table, from.batch), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.provision(1)
			var broken atomic.Bool
			broken.Store(true)
			run := func() (stop func()) {
				p := s.new(onePartition, func(c *participant.Config) { c.Batch = from.batch })
				participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
					if broken.Load() {
						return participant.Outcome{}, retry.Permanent(errAsked)
					}
					return count(ctx, tx, c)
				})
				return s.start(p)
			}
			stop := run()
			m := s.command("a", Count{N: 1})
			m.ID, m.IdempotencyKey = from.id, ""
			s.send(m)
			for range 2 {
				s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE status = 'open'")
				r, err := s.desk().Redrive(t.Context(), repair.Filter{}, repair.RedriveConfig{By: ann})
				require.NoError(t, err)
				require.Equal(t, 1, r.Redriven)
				broken.Store(s.count("SELECT count(*) FROM troupe.dead_letters") == 1) // the second one takes effect
				require.Equal(t, 1, s.publish(s.hop.Commands(), 1))
			}
			s.waitCount(1, "SELECT count(*) FROM done")
			stop()
			_, err := s.pool.Exec(t.Context(), `DELETE FROM troupe.inbox_offsets; UPDATE troupe.leases SET watermark = -1;
				DELETE FROM done; DELETE FROM counters; DELETE FROM troupe.dead_letters; DELETE FROM troupe.outbox; `+forget)
			require.NoError(t, err)
			run()
			s.send(s.command("a", Count{N: 2}))
			s.waitCount(1, "SELECT count(*) FROM done WHERE n = 2")
			require.Equal(t, 1, s.count("SELECT count(*) FROM done WHERE n = 1"))
			require.Equal(t, 2, s.count("SELECT count(*) FROM troupe."+from.table+" WHERE redrive > 0"), "each delivery is known")
		})
	}
}

// TestARedriveThatTheDatabaseLostHasNoSecondEffectBesideARetry is the same for a handler without order: the first message fails once
// more, and is tried again when the redriven one has taken effect.
func TestARedriveThatTheDatabaseLostHasNoSecondEffectBesideARetry(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	var broken atomic.Pointer[error]
	run := func(err error) (stop func()) {
		broken.Store(&err)
		p := s.new(onePartition, func(c *participant.Config) { c.Immediate = -1 })
		participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
			if err := *broken.Load(); err != nil && len(c.Message.Extra) == 0 {
				return participant.Outcome{}, err
			}
			return count(ctx, tx, c)
		}, participant.RetryTopics(time.Second))
		return s.start(p)
	}
	stop := run(retry.Permanent(errAsked))
	m := s.command("a", Count{N: 1})
	m.IdempotencyKey = ""
	s.send(m)
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE status = 'open'")
	_, err := s.desk().Redrive(t.Context(), repair.Filter{}, repair.RedriveConfig{By: ann})
	require.NoError(t, err)
	require.Equal(t, 1, s.publish(s.hop.Commands(), 1))
	s.waitCount(1, "SELECT count(*) FROM done")
	stop()
	_, err = s.pool.Exec(t.Context(), `DELETE FROM troupe.inbox_offsets; UPDATE troupe.leases SET watermark = -1;
		DELETE FROM done; DELETE FROM counters; DELETE FROM troupe.dead_letters; DELETE FROM troupe.outbox; `+forget)
	require.NoError(t, err)

	run(errAsked)
	s.waitCount(1, "SELECT count(*) FROM done")
	broken.Store(new(error))
	waits := s.hop.Retry(time.Second)
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", waits)
	require.Equal(t, 1, s.publish(waits, 1))
	waitFor(t, "the message to end on its retry topic", func() bool { return s.committedOf(waits, 0) > 0 })
	require.Equal(t, 1, s.count("SELECT count(*) FROM done"))
}
