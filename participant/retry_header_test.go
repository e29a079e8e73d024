package participant_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/participant"
)

// wishing returns a command with its sender's settings for retries.
func (s *stage) wishing(key, header string, body Count) envelope.Message {
	m := s.command(key, body)
	m.Extra = []envelope.Header{{Key: participant.HeaderRetry, Value: []byte(header)}}
	return m
}

// TestASendersRetryPolicyCountsForItsCommand checks attempts, waits and time-out; a header that cannot be read changes
// nothing.
func TestASendersRetryPolicyCountsForItsCommand(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, s *stage) {
		var log safeBuffer
		p := s.new(s.batched, func(c *participant.Config) { c.Log = zerolog.New(&log) }) // 4 attempts
		participant.Handle(p, count)
		letters := map[string]struct {
			header, fail string
			attempts     int
			most         int
			text         string
		}{
			"less":      {"attempts=2", "error", 2, 2, "as asked"},
			"once":      {"attempts=1", "error", 1, 1, "as asked"},
			"more":      {"attempts=6;initial=1ms;cap=1ms", "error", 6, 6, "as asked"},
			"waits":     {"attempts=3;initial=300ms;cap=10s;jitter=no", "error", 3, 3, "as asked"},
			"permanent": {"attempts=3", "permanent", 1, 3, "as asked"},
			"shorter":   {"attempts=1;try=50ms", "hang", 1, 1, "ran longer than 50ms:%"},
			"junk":      {"attempts=many", "error", 4, 4, "as asked"},
			"too many":  {"attempts=1001", "error", 4, 4, "as asked"},
		}
		var all []envelope.Message
		for key, l := range letters {
			all = append(all, s.wishing(key, l.header, Count{N: 1, Fail: l.fail}))
		}
		all = append(all, s.command("without", Count{N: 1, Fail: "error"}))
		for n := range 50 {
			all = append(all, s.wishing(fmt.Sprintf("well-%d", n), "what?", Count{N: 1}))
		}
		s.give(all...)
		began := time.Now()
		s.start(p)
		for key, l := range letters {
			s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE convert_from(key, 'UTF8') = $1 AND attempts = $2 AND error LIKE $3",
				key, l.attempts, l.text)
			if s.local {
				require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.local_work WHERE key = $1 AND max_attempts = $2", key, l.most), key)
			}
		}
		s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE convert_from(key, 'UTF8') = 'without' AND attempts = 4")
		s.waitCount(50, "SELECT count(*) FROM done")
		require.Equal(t, 1, s.count(`SELECT count(*) FROM troupe.dead_letters
			WHERE convert_from(key, 'UTF8') = 'waits' AND last_failed_at - first_failed_at >= '900ms'`), "300 ms and 600 ms, none at once")
		lines := strings.Count(log.String(), "header __troupe.retry failed")
		require.Positive(t, lines)
		require.LessOrEqual(t, lines, 1+int(time.Since(began)/(30*time.Second)), "one line in 30 s")
	})
}

// TestASendersTimeOutIsNoLongerThanTheParticipants checks a longer one in the header.
func TestASendersTimeOutIsNoLongerThanTheParticipants(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	p := s.new(onePartition, func(c *participant.Config) { c.Timeout = 2 * time.Second }) // after two more it is wedged
	participant.Handle(p, count)
	s.start(p)
	s.send(s.wishing("a", "attempts=1;try=1h", Count{N: 1, Fail: "hang"}))
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE attempts = 1 AND error LIKE 'ran longer than 2s:%'")
}

// TestASendersAttemptsOutliveARedriveAndRetryTopics checks it, since the header is the message's own.
func TestASendersAttemptsOutliveARedriveAndRetryTopics(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	p := s.new(onePartition)
	participant.Handle(p, count)
	stop := s.start(p)
	m := s.wishing("a", "attempts=3;initial=1ms", Count{N: 1, Fail: "error"})
	s.send(m)
	letters := "SELECT count(*) FROM troupe.dead_letters WHERE attempts = 3 AND redrives = $1"
	s.waitCount(1, letters, 0)
	var headers []byte
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT headers FROM troupe.dead_letters").Scan(&headers))
	own, err := envelope.UnmarshalHeaders(headers)
	require.NoError(t, err)
	again := envelope.Message{Topic: m.Topic, Key: m.Key, Payload: m.Payload}
	require.NoError(t, again.SetHeaders(append(own, envelope.Header{Key: deadletter.HeaderRedrive, Value: []byte("1")})))
	s.send(again)
	s.waitCount(1, letters, 1)
	stop()

	p = s.new(onePartition, func(c *participant.Config) { c.Immediate = 1 })
	participant.Handle(p, count, participant.RetryTopics(time.Second, time.Hour))
	s.start(p)
	s.send(s.wishing("b", "attempts=2", Count{N: 1, Fail: "error"}), s.wishing("c", "attempts=3", Count{N: 1, Fail: "error"}))
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE key = 'b' AND attempts = 2")
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Retry(time.Second))
	require.Equal(t, 1, s.publish(s.hop.Retry(time.Second), 1))
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE key = 'c' AND attempts = 3 AND topic = $1", s.hop.Commands())
}
