package participant_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
)

// limiter is a handler's service that refuses calls of a key while it is limited, and records the attempts of the calls.
type limiter struct {
	mu      sync.Mutex
	limited map[string]bool
	calls   map[string][]int
}

func newLimiter(keys ...string) *limiter {
	l := &limiter{limited: make(map[string]bool), calls: make(map[string][]int)}
	for _, key := range keys {
		l.limited[key] = true
	}
	return l
}

func (l *limiter) free() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.limited)
}

// attempts returns the attempts of a message's calls.
func (l *limiter) attempts(key string, n int) []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[fmt.Sprint(key, n)]
}

func (l *limiter) handle(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
	key := string(c.Message.Key)
	l.mu.Lock()
	l.calls[fmt.Sprint(key, c.Body.N)] = append(l.calls[fmt.Sprint(key, c.Body.N)], c.Attempt)
	limited := l.limited[key]
	l.mu.Unlock()
	if limited {
		return participant.Outcome{}, retry.RateLimited(errAsked, time.Hour)
	}
	return count(ctx, tx, c)
}

// eachSource runs a test with messages from Kafka and with local work. table is where messages wait for their next try.
func eachSource(t *testing.T, do func(t *testing.T, s *stage, table string)) {
	t.Run("Kafka", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		s.provision(1)
		do(t, s, "troupe.held")
	})
	t.Run("local work", func(t *testing.T) {
		t.Parallel()
		s := newLocalStage(t)
		s.makeLocal()
		do(t, s, "troupe.local_work")
	})
}

func (s *stage) put(key string, n int) {
	s.t.Helper()
	if s.local {
		s.write(key, Count{N: n})
		return
	}
	s.send(s.command(key, Count{N: n}))
}

// limitedRow is the condition on a message that waits for a rate limit.
const limitedRow = " WHERE error_class = 'rate_limited' AND attempts = 0 AND next_try > clock_timestamp() + interval '50 min'"

// A message whose handler is rate limited waits with its key for the time that the service names, more often than it has attempts.
// No attempt is counted, others go on, and the messages behind it are handled in their order.
func TestARateLimitedMessageWaitsWithoutAnAttempt(t *testing.T) {
	t.Parallel()
	eachSource(t, func(t *testing.T, s *stage, table string) {
		l := newLimiter("a", "c")
		var mu sync.Mutex
		var held []participant.Class
		p := s.new(func(c *participant.Config) {
			c.Partitions, c.Batch, c.Retry.Attempts = 1, 10, 2
			c.Hooks.Held = func(d participant.Delivery) {
				mu.Lock()
				defer mu.Unlock()
				held = append(held, d.Class)
			}
			c.Hooks.Failed = func(d participant.Delivery) { t.Errorf("a rate limit counts as attempt %d", d.Attempt) }
		})
		participant.Handle(p, l.handle)
		for n := range 3 {
			s.put("a", n+1)
			s.put("b", n+1)
			s.put("c", n+1)
		}
		s.start(p)
		s.waitCount(3, "SELECT count(*) FROM done WHERE key = 'b'")
		s.waitCount(2, "SELECT count(*) FROM "+table+limitedRow)
		mu.Lock()
		require.Equal(t, participant.RateLimited, held[0])
		mu.Unlock()
		for range 3 {
			calls := len(l.attempts("a", 1)) + len(l.attempts("c", 1))
			s.exec("UPDATE " + table + " SET next_try = clock_timestamp() WHERE error_class = 'rate_limited'")
			s.waitCount(2, "SELECT count(*) FROM "+table+limitedRow)
			require.Equal(t, calls+2, len(l.attempts("a", 1))+len(l.attempts("c", 1)), "one call for each try, alone")
		}
		require.Empty(t, l.attempts("a", 2), "it waits behind the first")
		l.free()
		s.exec("UPDATE " + table + " SET next_try = clock_timestamp() WHERE error_class = 'rate_limited'")
		s.waitCount(6, "SELECT count(*) FROM done WHERE key IN ('a', 'c')")
		for _, attempt := range l.attempts("a", 1) {
			require.Equal(t, 1, attempt)
		}
		require.Zero(t, s.count(`
			SELECT count(*) FROM (SELECT n, lag(n, 1, 0) OVER (PARTITION BY key ORDER BY position) AS before FROM done) AS d
			WHERE n <> before + 1`), "out of order within a key")
		require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
	})
}

// After Config.RateLimitedWait since its first failure the message is a dead letter of the class, and its key goes on.
func TestARateLimitedMessageIsADeadLetterAfterItsWait(t *testing.T) {
	t.Parallel()
	eachSource(t, func(t *testing.T, s *stage, table string) {
		l := newLimiter("a")
		p := s.new(func(c *participant.Config) { c.Partitions, c.RateLimitedWait = 1, 100*time.Hour })
		participant.Handle(p, l.handle)
		s.put("a", 1)
		s.put("a", 2)
		s.start(p)
		s.waitCount(1, "SELECT count(*) FROM "+table+limitedRow)
		s.exec("UPDATE " + table + " SET first_failed_at = first_failed_at - interval '99 h 30 min', next_try = clock_timestamp() WHERE error_class = 'rate_limited'")
		s.waitCount(1, "SELECT count(*) FROM "+table+" WHERE error_class = 'rate_limited' AND attempts = 0 AND next_try BETWEEN clock_timestamp() + interval '20 min' AND clock_timestamp() + interval '30 min'")
		s.exec("UPDATE " + table + " SET first_failed_at = first_failed_at - interval '31 min', next_try = clock_timestamp() WHERE error_class = 'rate_limited'")
		s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'rate_limited' AND attempts = 1")
		s.waitCount(1, "SELECT count(*) FROM "+table+limitedRow) // the second message
		if !s.local {
			s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Events())
			require.Equal(t, envelope.Exhausted, s.entries(s.hop.Events())[0].Outcome)
		}
		l.free()
		s.exec("UPDATE " + table + " SET next_try = clock_timestamp() WHERE error_class = 'rate_limited' AND next_try IS NOT NULL")
		s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'a' AND n = 2 AND attempt = 1")
	})
}

// A message on a retry topic that is rate limited is held there, with the attempts that it had.
func TestARateLimitedMessageOnARetryTopicKeepsItsAttempts(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	topic := s.hop.Retry(time.Second)
	l := newLimiter()
	p := s.new(onePartition, func(c *participant.Config) { c.Immediate = -1 })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if c.Attempt == 1 {
			return participant.Outcome{}, errAsked
		}
		return l.handle(ctx, tx, c)
	}, participant.RetryTopics(time.Second))
	l.limited["a"] = true
	s.provision(1)
	s.start(p)
	s.send(s.command("a", Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", topic)
	require.Equal(t, 1, s.publish(topic, 1))
	const held = "SELECT count(*) FROM troupe.held WHERE topic = $1 AND error_class = 'rate_limited' AND attempts = 1"
	s.waitCount(1, held, topic)
	s.exec("UPDATE troupe.held SET next_try = clock_timestamp()")
	s.waitCount(1, held+" AND next_try > clock_timestamp() + interval '50 min'", topic)
	l.free()
	s.exec("UPDATE troupe.held SET next_try = clock_timestamp()")
	s.waitCount(1, "SELECT count(*) FROM done WHERE attempt = 2")
	s.waitCount(0, "SELECT count(*) FROM troupe.held")
	require.Equal(t, []int{2, 2, 2}, l.attempts("a", 1))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
}

// A compensation cancels the held command of its step, whatever time the service has named for that.
func TestACompensationDoesNotWaitForARateLimit(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	l := newLimiter("a")
	p := s.new(onePartition)
	participant.Handle(p, l.handle)
	participant.Handle(p, undo)
	s.provision(1)
	s.start(p)
	first := s.command("a", Count{N: 1})
	first.SagaID, first.SagaStep, first.SagaOperation = "s", "charge", "forward"
	s.send(first)
	s.waitCount(1, "SELECT count(*) FROM troupe.held"+limitedRow)
	back := ofType("Undo", s.command("a", Count{N: 1}))
	back.SagaID, back.SagaStep, back.SagaOperation = "s", "charge", "compensate"
	s.send(back)
	s.waitCount(0, "SELECT count(*) FROM troupe.held")
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = -1")
	require.Zero(t, s.count("SELECT count(*) FROM done WHERE n = 1"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
}

// TestAMessageThatWasHeldKeepsItsFirstFailureOnARetryTopic checks a message that was rate limited, and then failed: the time of
// RateLimitedWait goes on.
func TestAMessageThatWasHeldKeepsItsFirstFailureOnARetryTopic(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	topic := s.hop.Retry(time.Hour)
	l := newLimiter("a")
	p := s.new(onePartition, func(c *participant.Config) { c.Immediate, c.RateLimitedWait = -1, 1000*time.Hour })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if _, err := l.handle(ctx, tx, c); err != nil {
			return participant.Outcome{}, err
		}
		return participant.Outcome{}, errAsked
	}, participant.RetryTopics(time.Hour))
	s.provision(1)
	s.start(p)
	s.send(s.command("a", Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM troupe.held"+limitedRow)
	l.free()
	s.exec("UPDATE troupe.held SET first_failed_at = first_failed_at - interval '99 h', next_try = clock_timestamp()")
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", topic)
	first, err := time.Parse(time.RFC3339Nano, header(s.entries(topic)[0], "__troupe.retry.first.failed"))
	require.NoError(t, err)
	require.Greater(t, time.Since(first), 98*time.Hour)
}
