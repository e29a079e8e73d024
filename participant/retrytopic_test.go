package participant_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// publish publishes the rows of a topic as a relay does, each several times, as one that crashed would.
func (s *stage) publish(topic string, times int) (n int) {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), "DELETE FROM troupe.outbox WHERE topic = $1 RETURNING "+outboxrow.Columns, topic)
	require.NoError(s.t, err)
	defer rows.Close()
	for ; rows.Next(); n++ {
		var r outboxrow.Row
		require.NoError(s.t, rows.Scan(r.Fields()...))
		m, err := r.Message(outboxrow.Defaults{Source: "payment"})
		require.NoError(s.t, err)
		for range times {
			require.NoError(s.t, s.client.ProduceSync(s.t.Context(), kafka.Record(m)).FirstErr())
		}
	}
	require.NoError(s.t, rows.Err())
	return n
}

// TestRetryTopics checks that a message that fails waits on one topic after the other, that no message waits behind it, and
// that duplicates on the way have one effect, with the attempts of one.
func TestRetryTopics(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	first, second := s.hop.Retry(time.Second), s.hop.Retry(2*time.Second)
	var mu sync.Mutex
	attempts := make(map[string][]int)
	p := s.new(onePartition, func(c *participant.Config) { c.Immediate, c.Batch = 1, 10 })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		mu.Lock()
		attempts[c.Message.ID] = append(attempts[c.Message.ID], c.Attempt)
		mu.Unlock()
		require.Equal(t, s.hop.Commands(), c.Message.Topic)
		if c.Body.Fail == "until the last" && c.Attempt < 4 {
			return participant.Outcome{}, errAsked
		}
		return count(ctx, tx, c)
	}, participant.RetryTopics(time.Second, 2*time.Second))
	s.provision(1)
	s.start(p)
	exhausts, recovers := s.command("a", Count{N: 1, Fail: "error"}), s.command("a", Count{N: 2, Fail: "until the last"})
	exhausts.Extra = []envelope.Header{{Key: "x", Value: []byte{0, 0xff}}}
	unnamed := s.command("a", Count{N: 3, Fail: "until the last"})
	unnamed.ID, unnamed.IdempotencyKey = "", ""
	s.send(exhausts, recovers, unnamed, s.command("a", Count{N: 4}))
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 4")
	began := time.Now()
	s.waitCount(3, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", first)
	require.Equal(t, 3, s.publish(first, 2))
	s.waitCount(6, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", second)
	require.Equal(t, 6, s.publish(second, 2))
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters")
	s.waitCount(3, "SELECT count(*) FROM done")
	require.GreaterOrEqual(t, time.Since(began), 3*time.Second, "never before it is due")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.held"))
	require.Zero(t, s.publish(second, 1)+s.publish(first, 1), "the doubled deliveries had no effect")
	require.Equal(t, 1, s.count(`
		SELECT count(*) FROM troupe.dead_letters
		WHERE attempts = 4 AND topic = $1 AND payload = $2 AND first_failed_at < last_failed_at`, s.hop.Commands(), exhausts.Payload))
	var stored []byte
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT headers FROM troupe.dead_letters").Scan(&stored))
	headers, err := envelope.UnmarshalHeaders(stored)
	require.NoError(t, err)
	require.ElementsMatch(t, exhausts.Headers(), withoutTime(headers), "as they came first")
	mu.Lock()
	defer mu.Unlock()
	for _, id := range []string{exhausts.ID, recovers.ID} {
		require.Equal(t, 4, attempts[id][len(attempts[id])-1])
	}
	testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, p.Ready() })
}

// withoutTime leaves out the header that a relay adds.
func withoutTime(hs []envelope.Header) (rest []envelope.Header) {
	for _, h := range hs {
		if h.Key != ce.HeaderTime {
			rest = append(rest, h)
		}
	}
	return rest
}

// Other is a second type of command on the hop.
type Other struct {
	N int `json:"n"`
}

// TestAMessageBehindAHeldKeyGoesToItsRetryTopic checks one whose handler gave up order, while another handler of the topic did
// not. It leaves troupe.held in the transaction that sends it on, once, and the messages behind it continue.
func TestAMessageBehindAHeldKeyGoesToItsRetryTopic(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition, holdLong, func(c *participant.Config) { c.Immediate = 1 })
	var broken atomic.Bool
	broken.Store(true)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if broken.Load() {
			return participant.Outcome{}, errAsked
		}
		return count(ctx, tx, c)
	})
	var mu sync.Mutex
	var attempts []int
	participant.Handle(p, func(_ context.Context, _ pgx.Tx, c participant.Command[Other]) (participant.Outcome, error) {
		mu.Lock()
		defer mu.Unlock()
		attempts = append(attempts, c.Attempt)
		if c.Attempt < 4 {
			return participant.Outcome{}, errAsked
		}
		return participant.Succeed(Counted{}), nil
	}, participant.RetryTopics(time.Second, 2*time.Second))
	s.provision(1)
	s.start(p)
	second := s.command("a", Count{})
	second.Type, second.Payload = "Other", marshal(Other{N: 2})
	s.send(s.command("a", Count{N: 1}), second, s.command("a", Count{N: 3}))
	s.waitCount(3, "SELECT count(*) FROM troupe.held")
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts = 2") // the immediate one has ended
	broken.Store(false)
	s.due()
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 3")
	s.waitCount(0, "SELECT count(*) FROM troupe.held")
	for _, delay := range []time.Duration{time.Second, 2 * time.Second} {
		s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Retry(delay))
		s.publish(s.hop.Retry(delay), 1)
	}
	s.waitEvents(3)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []int{1, 2, 3, 4}, attempts)
}

// TestAMessageIsRetriedAgainAfterItsRetryTopicLostIt lets the sender, or a replay of the outbox, send it again under its id.
func TestAMessageIsRetriedAgainAfterItsRetryTopicLostIt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	p := s.new(onePartition, func(c *participant.Config) { c.Immediate = -1 })
	participant.Handle(p, count, participant.RetryTopics(time.Second))
	s.start(p)
	topic := s.hop.Retry(time.Second)
	m := s.command("a", Count{N: 1, Fail: "error"})
	for range 2 {
		s.send(m)
		s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", topic)
		_, err := s.pool.Exec(t.Context(), "DELETE FROM troupe.outbox") // it was published, and the retry topic lost it
		require.NoError(t, err)
	}
	s.send(m)
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", topic)
	s.publish(topic, 1)
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE attempts = 2")
}

// TestAGroupLeavesTheRetriesOfAnotherGroupOfItsHopAlone checks two groups that consume the retry topic, one of which has no
// handler for the messages that the other retries.
func TestAGroupLeavesTheRetriesOfAnotherGroupOfItsHopAlone(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	order := topics.MustHop(s.hop.Flow(), "order")
	s.topic(order.Events())
	p := s.new(onePartition, func(c *participant.Config) { c.Immediate = -1 })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if c.Attempt == 1 {
			return participant.Outcome{}, errAsked
		}
		return count(ctx, tx, c)
	}, participant.RetryTopics(time.Second))
	passed := make(chan participant.Passed, 10)
	other := s.new(onePartition, func(c *participant.Config) {
		c.Group = s.hop.String() + ".projection"
		c.Hooks.Passed = func(p participant.Passed) { passed <- p }
	})
	participant.On(other, order, func(context.Context, pgx.Tx, participant.Event[Counted]) error { return nil }, participant.RetryTopics(time.Second))
	s.start(p)
	s.start(other)
	s.send(s.command("a", Count{N: 1}))
	topic := s.hop.Retry(time.Second)
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", topic)
	s.publish(topic, 1)
	s.waitCount(1, "SELECT count(*) FROM done")
	waitFor(t, "the other group", func() bool { return len(passed) > 0 })
	require.Equal(t, participant.Elsewhere, (<-passed).Reason)
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
}

// TestARetryTopicDoesNotWaitForAClockThatIsAhead checks a fast clock of the relay that wrote the timestamp, or of its broker.
func TestARetryTopicDoesNotWaitForAClockThatIsAhead(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	p := s.new(onePartition, func(c *participant.Config) { c.Immediate = -1 })
	participant.Handle(p, count, participant.RetryTopics(time.Second))
	s.start(p)
	s.send(s.command("a", Count{N: 1, Fail: "error"}))
	topic := s.hop.Retry(time.Second)
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", topic)
	record := kafka.Record(s.entries(topic)[0])
	record.Timestamp = time.Now().Add(50 * time.Minute) // a broker refuses more than an hour
	require.NoError(t, s.client.ProduceSync(t.Context(), record).FirstErr())
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE attempts = 2")
}

// TestARetryTopicKeepsMessagesForLongerThanItsDelay checks also that Run warns of an existing one that does not.
func TestARetryTopicKeepsMessagesForLongerThanItsDelay(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	const made, there = 15 * 24 * time.Hour, 16 * 24 * time.Hour
	week := "604800000"
	_, err := kadm.NewClient(s.client).CreateTopic(t.Context(), 1, 1, map[string]*string{"retention.ms": &week}, s.hop.Retry(there))
	require.NoError(t, err)
	retention := func(topic string) (kept time.Duration) { // Apache Kafka does not list a topic at once that it has created
		t.Helper()
		testkit.Wait(t, "the retention of "+topic, func() (bool, error) {
			all, err := kafka.Retention(t.Context(), s.client, topic)
			kept = all[topic]
			return kept != 0, err
		})
		return kept
	}
	require.Equal(t, 7*24*time.Hour, retention(s.hop.Retry(there)))
	var log safeBuffer
	p := s.new(onePartition, func(c *participant.Config) { c.Log = zerolog.New(&log) })
	participant.Handle(p, count, participant.RetryTopics(made, there))
	s.start(p)
	testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, p.Ready() })
	require.Equal(t, 22*24*time.Hour, retention(s.hop.Retry(made)))
	var warned []string
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "the retry topic keeps messages for less than their delay") {
			warned = append(warned, line)
		}
	}
	require.Len(t, warned, 1)
	require.Contains(t, warned[0], s.hop.Retry(there))
}

// TestAMessageThatIsTooLargeForItsRetryTopicIsADeadLetter checks one that no relay could send with the headers of a retry.
func TestAMessageThatIsTooLargeForItsRetryTopicIsADeadLetter(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	p := s.new(onePartition, func(c *participant.Config) { c.Immediate = -1 })
	participant.Handle(p, count, participant.RetryTopics(time.Second))
	headers := s.command("a", Count{N: 1, Fail: "error"})
	for range envelope.MaxHeaders - len(headers.Headers()) {
		headers.Extra = append(headers.Extra, envelope.Header{Key: "x", Value: []byte("1")})
	}
	payload := s.command("b", Count{N: 2, Fail: "error"})
	payload.Payload = append(payload.Payload, strings.Repeat(" ", 1_000_000)...)
	s.send(headers, payload)
	s.start(p)
	s.waitCount(2, "SELECT count(*) FROM troupe.dead_letters WHERE error LIKE '%as asked%'")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Retry(time.Second)))
}

func TestRetryTopicsAreChecked(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, delays := range [][]time.Duration{nil, {0}, {1500 * time.Millisecond}, {-time.Second}} {
		p := s.new()
		participant.Handle(p, count, participant.RetryTopics(delays...))
		require.ErrorContains(t, p.Run(t.Context()), "retry topic", delays)
	}
}
