package participant_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// TestMessagesOfAnAbortedTransactionAreNotHandled aborts transactions before, between and behind the messages of a partition, whose
// offsets have gaps then. A member that starts later does not wait for an aborted message at the end of the partition.
func TestMessagesOfAnAbortedTransactionAreNotHandled(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	foreign, err := kafka.NewClient(s.brokers, kgo.TransactionalID(s.hop.String()))
	require.NoError(t, err)
	t.Cleanup(foreign.Close)
	write := func(end kgo.TransactionEndTry, key string, n int) {
		t.Helper()
		require.NoError(t, foreign.BeginTransaction())
		require.NoError(t, foreign.ProduceSync(t.Context(), kafka.Record(s.command(key, Count{N: n}))).FirstErr())
		require.NoError(t, foreign.EndTransaction(t.Context(), end))
	}
	write(kgo.TryAbort, "aborted", 1)
	write(kgo.TryCommit, "k", 1)
	p := s.new(onePartition)
	participant.Handle(p, count)
	stop := s.start(p)
	s.waitCount(1, "SELECT count(*) FROM done")
	write(kgo.TryAbort, "aborted", 2)
	write(kgo.TryCommit, "k", 2)
	s.waitCount(2, "SELECT count(*) FROM done")
	stop()
	write(kgo.TryAbort, "aborted", 3)

	again := s.new(onePartition)
	participant.Handle(again, count)
	s.start(again)
	testkit.Wait(t, "a ready member", func() (bool, error) { err := again.Ready(); return err == nil, err })
	write(kgo.TryCommit, "k", 3)
	write(kgo.TryAbort, "aborted", 4)
	s.waitCount(3, "SELECT count(*) FROM done WHERE key = 'k'")
	testkit.Wait(t, "no lag", func() (bool, error) {
		lags, err := kadm.NewClient(s.client).Lag(t.Context(), s.hop.String())
		if err == nil {
			err = lags.Error()
		}
		return err == nil && lags[s.hop.String()].Lag.Total() <= 2, err // the last record and its mark
	})
	s.waitCount(0, "SELECT count(*) FROM done WHERE key <> 'k'")
	s.waitCount(0, "SELECT count(*) FROM troupe.dead_letters")
}
