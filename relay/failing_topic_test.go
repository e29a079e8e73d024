package relay_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/troupe-go/troupe/testkit"
)

// Rows of a topic that the broker takes nothing of may fill every claim. They are tried later, others go out, and none is
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
		s.insert("ill", "k"+strconv.Itoa(n%25), strconv.Itoa(n/25))
	}
	s.insert("ill.free", "free", "0")
	cfg := s.config()
	cfg.Batch, cfg.UnknownTopic = 10, time.Second
	s.start(cfg)
	require.Equal(t, []string{"0"}, values(testkit.Consume(t, s.brokers, "ill.free").WaitN(1)))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox_trouble WHERE status = 'parked'"))
	require.NotZero(t, s.count("SELECT count(*) FROM troupe.outbox_trouble WHERE last_error LIKE '%UNKNOWN_SERVER_ERROR%'"))
	ill.Store(false)
	of := make(map[string][]string)
	for _, r := range testkit.Consume(t, s.brokers, "ill").WaitN(50) {
		of[string(r.Key)] = append(of[string(r.Key)], string(r.Value))
	}
	require.Len(t, of, 25)
	for key, values := range of {
		require.Equal(t, []string{"0", "1"}, values, key)
	}
}
