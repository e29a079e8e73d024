package participant_test

import (
	"context"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
)

// atOnce makes messages of unknown types poison at once.
func atOnce(c *participant.Config) { c.UnknownTypeWait = -1 }

// onePartition makes all keys share one worker.
func onePartition(c *participant.Config) { c.Partitions = 1 }

func TestAHeldKeyWaitsInOrderWhileOthersGoOn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var mu sync.Mutex
	broken := true
	p := s.new(onePartition, func(c *participant.Config) { c.Retry.Attempts = 1000 })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		mu.Lock()
		defer mu.Unlock()
		if c.Body.Fail == "until mended" && broken {
			return participant.Outcome{}, errAsked
		}
		return count(ctx, tx, c)
	})
	s.provision(1)
	stop := s.start(p)
	s.send(s.command("a", Count{N: 1, Fail: "until mended"}), s.command("b", Count{N: 1}),
		s.command("a", Count{N: 2}), s.command("b", Count{N: 2}), s.command("a", Count{N: 3, Fail: "until mended"}))
	s.waitCount(2, "SELECT count(*) FROM done WHERE key = 'b'")
	s.waitCount(3, "SELECT count(*) FROM troupe.held")
	require.Zero(t, s.count("SELECT count(*) FROM done WHERE key = 'a'"))
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.held WHERE attempts = 0 AND next_try IS NULL"))
	stop() // the next member finds the held messages

	mu.Lock()
	broken = false
	mu.Unlock()
	next := s.new(onePartition)
	participant.Handle(next, count)
	s.start(next)
	s.send(s.command("a", Count{N: 4}))
	s.waitCount(0, "SELECT count(*) FROM troupe.held")
	s.waitCount(4, "SELECT count(*) FROM done WHERE key = 'a'")
	require.Zero(t, s.count(`
		SELECT count(*) FROM (SELECT n, lag(n, 1, 0) OVER (PARTITION BY key ORDER BY position) AS before FROM done) AS d
		WHERE n <> before + 1`), "out of order within a key")
	require.Positive(t, s.count("SELECT max(attempt) FROM done WHERE key = 'a' AND n = 1"))
}

// TestNextTryIsHonoured checks for two tries at once, then none before the back-off is over, by the database's clock.
func TestNextTryIsHonoured(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var mu sync.Mutex
	var at []time.Time
	var waits []float64 // seconds, as stored after each failure
	p := s.new(onePartition, func(c *participant.Config) {
		c.Retry = retry.Policy{Initial: 300 * time.Millisecond, NoJitter: true, Attempts: 4}
		c.Immediate = 1
		c.Hooks.Failed = func(participant.Delivery) {
			const wait = "SELECT extract(epoch FROM next_try - last_failed_at)::float8 FROM troupe.held"
			seconds := -1.0
			_ = s.pool.QueryRow(context.Background(), wait).Scan(&seconds)
			mu.Lock()
			defer mu.Unlock()
			waits = append(waits, seconds)
		}
	})
	participant.Handle(p, func(context.Context, pgx.Tx, participant.Command[Count]) (participant.Outcome, error) {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, time.Now())
		return participant.Outcome{}, errAsked
	})
	s.start(p)
	s.send(s.command("a", Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters")
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, at, 4, "exactly as many runs as attempts")
	require.InDeltaSlice(t, []float64{0, 0.3, 0.6}, waits, 0.1)
	require.GreaterOrEqual(t, at[2].Sub(at[1]), 300*time.Millisecond)
	require.GreaterOrEqual(t, at[3].Sub(at[2]), 600*time.Millisecond)
}

func TestAMessageWithoutAKeyHoldsOnlyItself(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition, func(c *participant.Config) { c.Retry.Attempts = 1000 })
	participant.Handle(p, count)
	s.provision(1)
	s.start(p)
	keyless := func(n int, fail string) envelope.Message {
		m := s.command("", Count{N: n, Fail: fail})
		m.Key, m.Subject = nil, ""
		return m
	}
	s.send(keyless(1, "error"), keyless(2, ""), keyless(3, "error"), keyless(4, ""))
	s.waitCount(2, "SELECT count(*) FROM done")
	s.waitCount(2, "SELECT count(*) FROM troupe.held WHERE attempts > 1")
	require.Equal(t, 2, s.count("SELECT total FROM counters"))
}

// TestHeldAndDeliveredAgain checks that a waiting message is not stored twice, nor run out of turn.
func TestHeldAndDeliveredAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	slow := func(c *participant.Config) {
		c.Retry, c.Immediate = retry.Policy{Initial: time.Hour, Cap: time.Hour, NoJitter: true}, -1
	}
	p := s.new(onePartition, slow)
	participant.Handle(p, count)
	s.provision(1)
	stop := s.start(p)
	waits := s.command("a", Count{N: 2})
	s.send(s.command("a", Count{N: 1, Fail: "error"}), waits)
	s.waitCount(2, "SELECT count(*) FROM troupe.held")
	stop()
	s.rewind()
	p = s.new(onePartition, slow)
	participant.Handle(p, count)
	stop = s.start(p)
	s.send(s.command("b", Count{N: 1}), waits) // and once more under another offset
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'b'")
	s.waitCount(3, "SELECT count(*) FROM troupe.held")
	require.Equal(t, 1, s.count("SELECT sum(attempts) FROM troupe.held"))

	stop()
	_, err := s.pool.Exec(t.Context(), "UPDATE troupe.held SET next_try = now(), attempts = 7 WHERE attempts > 0")
	require.NoError(t, err)
	p = s.new(onePartition, slow)
	participant.Handle(p, count)
	s.start(p)
	s.waitCount(0, "SELECT count(*) FROM troupe.held")
	require.Equal(t, 1, s.count("SELECT count(*) FROM done WHERE key = 'a'"), "the second delivery is a duplicate")
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters WHERE attempts = 8"))
}

// TestTheTurnOfAHeldKeyComesBehindOneThatWaits checks one batch with a message for a key that is held, then another key's turn,
// which is no message.
func TestTheTurnOfAHeldKeyComesBehindOneThatWaits(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	running, release := make(chan struct{}), make(chan struct{})
	p := s.new(onePartition, func(c *participant.Config) {
		c.Batch, c.Concurrency, c.Immediate = 100, 1, -1
		c.Retry, c.Timeout = retry.Policy{Initial: time.Hour, Cap: time.Hour, NoJitter: true, Attempts: 2}, 10*time.Minute
	})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		switch {
		case string(c.Message.Key) == "blocks":
			close(running)
			<-release
		case c.Body.Fail == "once" && c.Attempt == 1:
			return participant.Outcome{}, errAsked
		}
		return count(ctx, tx, c)
	})
	s.provision(1)
	s.start(p)
	s.send(s.command("a", Count{N: 1, Fail: "once"}), s.command("b", Count{N: 1, Fail: "once"}))
	s.waitCount(2, "SELECT count(*) FROM troupe.held")
	waitFor(t, "nothing runs", func() bool { return p.Backlog() == 0 })
	s.send(s.command("blocks", Count{N: 1}))
	<-running
	s.send(s.command("a", Count{N: 2}))
	waitFor(t, "a waits", func() bool { return p.Backlog() == 2 })
	_, err := s.pool.Exec(t.Context(), "UPDATE troupe.held SET next_try = now() WHERE key = 'b'")
	require.NoError(t, err)
	waitFor(t, "b has its turn", func() bool { return p.Backlog() == 3 })
	close(release)
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'b'")
	s.waitCount(2, "SELECT count(*) FROM troupe.held WHERE key = 'a'")
}

// TestHeldMessagesOfAPartitionThatIsGoneAreLogged checks a topic that was deleted and created with fewer partitions.
func TestHeldMessagesOfAPartitionThatIsGoneAreLogged(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	p := s.new(onePartition, holdLong)
	participant.Handle(p, count)
	stop := s.start(p)
	s.send(s.command("a", Count{N: 1, Fail: "error"}))
	s.waitCount(1, "SELECT count(*) FROM troupe.held")
	stop()
	_, err := s.pool.Exec(t.Context(), "UPDATE troupe.held SET partition = 3") // as of a topic that had four
	require.NoError(t, err)
	var log safeBuffer
	p = s.new(onePartition, func(c *participant.Config) { c.Log = zerolog.New(&log) })
	participant.Handle(p, count)
	s.start(p)
	waitFor(t, "the log", func() bool {
		return strings.Contains(log.String(), "messages are held of a partition that the topic does not have any more")
	})
	require.Equal(t, []participant.Stranded{{Topic: s.hop.Commands(), Partition: 3, Messages: 1}}, p.Stats().Stranded)
}

// TestAnyNumberOfAttemptsMayBeSet: a message is tried without end where Attempts is the highest number of Go, and stops no other.
func TestAnyNumberOfAttemptsMayBeSet(t *testing.T) {
	t.Parallel()
	for name, local := range map[string]bool{"Kafka": false, "local work": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			p := s.new(onePartition, func(c *participant.Config) {
				c.Retry.Attempts = math.MaxInt
				if c.Local = local; local {
					c.Brokers = nil
				}
			})
			participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
				if c.Body.Fail != "" && c.Attempt < 5 {
					return participant.Outcome{}, errAsked
				}
				return count(ctx, tx, participant.Command[Count]{Body: Count{N: c.Body.N}, Message: c.Message, Attempt: c.Attempt})
			})
			if local {
				s.makeLocal()
				s.write("a", Count{N: 1, Fail: "first"}, Count{N: 2})
				s.write("b", Count{N: 1})
			} else {
				s.provision(1)
				s.send(s.command("a", Count{N: 1, Fail: "first"}), s.command("a", Count{N: 2}), s.command("b", Count{N: 1}))
			}
			s.start(p)
			s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'b'")
			s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'a' AND n = 1 AND attempt = 5")
			s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'a' AND n = 2")
		})
	}
}
