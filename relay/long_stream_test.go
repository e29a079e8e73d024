package relay_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// A stream begins with a snapshot of the transactions that are published, and the log has the low 32 bits of a transaction's id. After 2^31
// transactions of the server, a new one has bits that the snapshot sees. The test has a snapshot that sees the bits of the next
// transactions instead.
func TestAStreamThatLastsPublishesTransactionsWhoseBitsItsSnapshotSees(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := s.wal()
	r := s.start(cfg)
	s.waitStream()
	s.insert(s.topic, "k", "0")
	s.waitProven()
	require.NoError(t, r.stop())
	s.exec("UPDATE troupe.relay_state SET published = '1000000000:1000000000:'")
	logs := &lines{}
	cfg.Log = logs.logger(t)
	s.start(cfg)
	testkit.Wait(t, "the stream", func() (bool, error) { return strings.Contains(logs.String(), `"message":"streaming"`), nil })
	s.insert(s.topic, "k", "1")
	require.Equal(t, []string{"0", "1"}, values(s.gather(2, s.topic)))
}
