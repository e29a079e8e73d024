package relay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
)

// A row that the broker refuses again and again may be due in every claim of the sweep that precedes a stream.
func TestASweepEndsBesideARowThatIsAlwaysDue(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	s.brokers = refusing(t, "ill", func() *kerr.Error { return kerr.UnknownServerError })
	s.insert("ill", "k", "0")
	cfg := s.wal()
	cfg.Retry = retry.Policy{Initial: time.Nanosecond, Cap: time.Nanosecond, NoJitter: true}
	cfg.UnknownTopic = time.Nanosecond
	s.start(cfg)
	testkit.Wait(t, "the row to be tried again", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.outbox_failures WHERE attempts > 1") == 1, nil
	})
	s.waitStream()
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.relay_leases WHERE source = $1", string(relay.WAL)))
}
