package relay_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
)

// Rows of a topic that the broker refuses may fill every claim. They are tried later, other rows are published, and none is
// parked.
func TestATopicThatTheBrokerAlwaysRefusesHoldsNoOtherUp(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var ill atomic.Bool
	ill.Store(true)
	s.brokers = refusing(t, "ill", func() *kerr.Error {
		if ill.Load() {
			return kerr.UnknownServerError
		}
		return nil
	})
	for n := range 50 {
		s.insert("ill", "k"+strconv.Itoa(n%10), strconv.Itoa(n/10))
	}
	s.insert("ill.free", "free", "0")
	waiting := func(condition string) {
		t.Helper()
		testkit.Wait(t, "the first row of each key to wait for its next try", func() (bool, error) {
			return s.count(`SELECT count(*) FROM troupe.outbox_failures
				WHERE status = 'retrying' AND last_error LIKE '%UNKNOWN_SERVER_ERROR%' AND `+condition) == 10, nil
		})
	}
	cfg := s.config()
	cfg.Batch, cfg.UnknownTopic = 10, time.Second
	r := s.start(cfg)
	waiting("true")
	require.NoError(t, r.stop())

	// However slow the machine is, it claims other rows before the next try of these.
	cfg.UnknownTopic, cfg.Retry = 10*time.Hour, retry.Policy{Initial: time.Hour, Cap: time.Hour, Attempts: 8, NoJitter: true}
	s.start(cfg)
	require.Equal(t, []string{"0"}, values(testkit.Consume(t, s.brokers, "ill.free").WaitN(1)))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'"))
	waiting("next_try > clock_timestamp() + interval '30 minutes'")
	ill.Store(false)
	s.exec("UPDATE troupe.outbox_failures SET next_try = clock_timestamp() WHERE status = 'retrying'")
	records := s.gather(50, "ill")
	for n := range 10 {
		require.Equal(t, []string{"0", "1", "2", "3", "4"}, values(ofKey(records, "k"+strconv.Itoa(n))))
	}
}
