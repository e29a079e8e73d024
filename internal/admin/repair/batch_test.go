package repair_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// bomb sends a batch of two messages that unpacks to 80 MB, more than a participant accepts.
func (s *stage) bomb(key string) repair.Place {
	s.t.Helper()
	bomber, err := kafka.NewClient(s.brokers, kgo.ProducerBatchMaxBytes(128<<20), kgo.MaxBufferedBytes(256<<20),
		kgo.BrokerMaxWriteBytes(160<<20), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	require.NoError(s.t, err)
	defer bomber.Close()
	first, second := s.command(key, Charge{N: 100}), s.command(key, Charge{N: 101})
	first.Payload = make([]byte, 80<<20)
	sent := bomber.ProduceSync(s.t.Context(), kafka.Record(first), kafka.Record(second))
	require.NoError(s.t, sent.FirstErr())
	r := sent[0].Record
	return repair.Place{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}
}

// blocking waits until a participant has recorded n batches that are not skipped, and returns the newest.
func (s *stage) blocking(n int) repair.UnreadableBatch {
	s.t.Helper()
	s.waitCount(n, "SELECT count(*) FROM troupe.unreadable_batches WHERE skipped_at IS NULL")
	batches, err := s.desk.Batches(s.t.Context(), 10)
	require.NoError(s.t, err)
	return batches[0]
}

func (s *stage) lag(group string) int64 {
	s.t.Helper()
	lags, err := kadm.NewClient(s.client).Lag(s.t.Context(), group)
	require.NoError(s.t, err)
	return lags[group].Lag.Total()
}

// TestASkippedBatchBlocksItsPartitionNoMore skips one batch while the participant runs and one while it is stopped, each with
// messages of its key before and behind it.
func TestASkippedBatchBlocksItsPartitionNoMore(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	role := grantstest.New(t, s.pool, grants.Participant)
	s.exec("GRANT ALL ON rules, charges TO " + role.Name)
	as := func(c *participant.Config) { c.Pool = role.Pool() }
	operator := s.as(grants.Operator)
	stop := s.participant(as)
	s.send(s.command("a", Charge{N: 1}))
	place := s.bomb("a")
	s.send(s.command("a", Charge{N: 2}))
	found := s.blocking(1)
	require.Equal(t, place, found.Place)
	require.Equal(t, place.Offset+2, found.Next)
	require.Positive(t, found.Bytes)
	require.Less(t, found.Bytes, int64(1<<20))
	require.Nil(t, found.Skipped)
	s.waitCount(1, "SELECT count(*) FROM charges")

	_, err := operator.Skip(t.Context(), place, "", admin.Actor{Name: "ann"})
	require.ErrorContains(t, err, "reason")
	_, err = s.as(grants.Viewer).Skip(t.Context(), place, "", ann)
	require.ErrorContains(t, err, "lacks a right")
	other := place
	other.Offset++
	_, err = operator.Skip(t.Context(), other, "", ann)
	require.ErrorIs(t, err, repair.ErrNotFound)
	skipped, err := operator.Skip(t.Context(), place, "", ann)
	require.NoError(t, err)
	require.NotNil(t, skipped.Skipped)
	_, err = operator.Skip(t.Context(), place, "", ann)
	require.ErrorIs(t, err, repair.ErrNotOpen)
	s.waitCount(2, "SELECT count(*) FROM charges WHERE key = 'a' AND n IN (1, 2)")

	place = s.bomb("a")
	require.Equal(t, place, s.blocking(1).Place)
	stop()
	s.send(s.command("a", Charge{N: 3}))
	_, err = operator.Skip(t.Context(), place, found.Group, ann)
	require.NoError(t, err)
	stop = s.participant(as)
	s.waitCount(3, "SELECT count(*) FROM charges WHERE key = 'a' AND n IN (1, 2, 3)")

	place = s.bomb("a") // with nothing behind it
	require.Equal(t, place, s.blocking(1).Place)
	_, err = operator.Skip(t.Context(), place, "", ann)
	require.NoError(t, err)
	testkit.Wait(t, "no lag", func() (bool, error) { return s.lag(found.Group) == 0, nil })
	stop()

	batches, err := s.desk.Batches(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, batches, 3)
	for _, b := range batches {
		require.Equal(t, "ann", b.Actor)
		require.Equal(t, "ticket 4711", b.Reason)
		require.NotEmpty(t, b.Role)
		require.NotNil(t, b.Skipped)
	}
	require.Equal(t, 3, s.count("SELECT count(*) FROM troupe.repairs WHERE action = 'skip'"))
	require.Equal(t, 3, s.count("SELECT count(*) FROM charges"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
}
