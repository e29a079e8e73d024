package participant_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
)

// TestADependencyThatIsAwayPausesThePartition checks that no attempt is counted, no other message begins, one run tries, other partitions
// continue although there are no more connections than waiting messages, and that all continue in the end.
func TestADependencyThatIsAwayPausesThePartition(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var away atomic.Bool
	away.Store(true)
	var tries, running, most atomic.Int32
	keys := s.keys(2)
	p := s.new(onlyOnce, func(c *participant.Config) { c.Concurrency = 2 })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if away.Load() && c.Body.Fail == "needs the bank" {
			if n := running.Add(1); tries.Add(1) > 10 {
				most.Store(max(n, most.Load()))
			}
			defer running.Add(-1)
			return participant.Outcome{}, retry.Unavailable("the bank", errAsked)
		}
		return count(ctx, tx, c)
	})
	s.provision(2)
	pick := kgo.StickyKeyPartitioner(nil).ForTopic("")
	var needing []envelope.Message
	for n := 0; len(needing) < 20; n++ {
		key := fmt.Sprintf("n-%d", n)
		if pick.Partition(&kgo.Record{Key: []byte(key)}, 2) == 0 {
			needing = append(needing, s.command(key, Count{N: 1, Fail: "needs the bank"}))
		}
	}
	s.send(needing...)
	s.start(p)
	testkit.Wait(t, "tries", func() (bool, error) { return tries.Load() > 12, nil })
	require.ErrorContains(t, p.Ready(), "/0 waits for the bank since")
	require.ErrorIs(t, p.Ready(), errAsked)
	s.send(s.command(keys[1], Count{N: 1}), s.command(keys[1], Count{N: 2}))
	s.waitCount(2, "SELECT count(*) FROM done")
	require.EqualValues(t, 1, most.Load(), "one at a time")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.held"))
	away.Store(false)
	s.waitCount(22, "SELECT count(*) FROM done WHERE attempt = 1")
	testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, nil })
}

// TestACompensationOvertakesItsHeldForwardCommand checks that the undone command does not run any more; another step's command
// keeps its place.
func TestACompensationOvertakesItsHeldForwardCommand(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition, func(c *participant.Config) {
		c.Retry = retry.Policy{Initial: time.Hour, Cap: time.Hour, NoJitter: true, Attempts: 1000}
	})
	participant.Handle(p, count)
	s.provision(1)
	s.start(p)
	forward, other, undo := s.command("a", Count{N: 1, Fail: "error"}), s.command("a", Count{N: 2}), s.command("a", Count{N: 3})
	forward.SagaID, forward.SagaStep, forward.SagaOperation = "s", "charge", "forward"
	other.SagaID, other.SagaStep, other.SagaOperation = "s", "book", "forward"
	undo.SagaID, undo.SagaStep, undo.SagaOperation = "s", "charge", "compensate"
	s.send(forward, other)
	s.waitCount(2, "SELECT count(*) FROM troupe.held")
	s.send(undo)
	s.waitCount(0, "SELECT count(*) FROM troupe.held")
	require.Equal(t, 2, s.count("SELECT count(*) FROM done"))
	require.Equal(t, 3, s.count("SELECT n FROM done ORDER BY position DESC LIMIT 1"), "behind the earlier message")
	s.send(forward, s.command("a", Count{N: 4}))
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 4")
	require.Zero(t, s.count("SELECT count(*) FROM done WHERE n = 1"), "a forward call after its compensation does nothing")
}

// TestATryThatFindsATableLockedIsNotTheLast checks a partition that waits for a dependency: its try ends with an error of neither the
// dependency nor the message, here since a migration has the table of held messages locked.
func TestATryThatFindsATableLockedIsNotTheLast(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	p := s.new(onePartition, func(c *participant.Config) { c.Immediate = -1 })
	p.StatementLimit(500 * time.Millisecond)
	var tries atomic.Int32
	locked := make(chan pgx.Tx, 1)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		switch tries.Add(1) {
		case 1:
			return participant.Outcome{}, retry.Unavailable("the bank", errAsked)
		case 2:
			migration, err := s.pool.Begin(context.Background())
			if err == nil {
				_, err = migration.Exec(context.Background(), "LOCK TABLE troupe.held IN ACCESS EXCLUSIVE MODE")
			}
			if err != nil {
				return participant.Outcome{}, err
			}
			locked <- migration
			return participant.Outcome{}, errAsked
		}
		return count(ctx, tx, c)
	})
	s.start(p)
	s.send(s.command("a", Count{N: 1}))
	migration := <-locked
	defer migration.Rollback(context.Background())
	s.waitCount(1, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'troupe.held'::regclass AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
	s.waitCount(0, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'troupe.held'::regclass AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
	require.NoError(t, migration.Rollback(t.Context()))
	s.waitCount(1, "SELECT count(*) FROM done")
	testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, p.Ready() })
}
