package relay_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// Rows that are restored from a dump of another cluster have transaction ids of that cluster, which this one may have assigned to
// transactions that a stream has published.
func TestRestoredRowsArePublishedUnderPollAfterAStream(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 2} {
		s := newStage(t)
		cfg := s.wal()
		r := s.start(cfg)
		s.waitStream()
		s.insert(s.topic, "k", "0")
		s.waitProven()
		require.NoError(t, r.stop())
		cfg = s.config()
		cfg.Source, cfg.Shards = relay.Poll, shards
		r = s.start(cfg)
		s.insert(s.topic, "k", "1")
		s.exec("INSERT INTO troupe.outbox (xid, topic, key, type, payload) VALUES ('3', $1, 'k', 'T', '2')", s.topic)
		testkit.Wait(t, "the restored row", func() (bool, error) { return slices.Contains(texts(s.committed(s.topic)), "2"), nil })
		require.NoError(t, r.stop())
	}
}
