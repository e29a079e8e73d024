package watch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/flow/watch"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/testkit"
)

// bomb sends a batch of one message that unpacks to 80 MB, more than a watcher accepts, to the partition of a key.
func (s *stage) bomb(hop, key string) repair.Place {
	s.t.Helper()
	bomber, err := kafka.NewClient(s.brokers, kgo.ProducerBatchMaxBytes(128<<20), kgo.MaxBufferedBytes(256<<20),
		kgo.BrokerMaxWriteBytes(160<<20), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	require.NoError(s.t, err)
	defer bomber.Close()
	sent := bomber.ProduceSync(s.t.Context(), &kgo.Record{Topic: s.flow + "." + hop + ".events", Key: []byte(key), Value: make([]byte, 80<<20)})
	require.NoError(s.t, sent.FirstErr())
	return repair.Place{Topic: sent[0].Record.Topic, Partition: sent[0].Record.Partition, Offset: sent[0].Record.Offset}
}

func (s *stage) deleteBefore(at repair.Place) {
	s.t.Helper()
	var to kadm.Offsets
	to.AddOffset(at.Topic, at.Partition, at.Offset, -1)
	deleted, err := kadm.NewClient(s.client).DeleteRecords(s.t.Context(), to)
	require.NoError(s.t, err)
	require.NoError(s.t, deleted.Error())
}

// stored waits until n messages are stored.
func (s *stage) stored(n int) {
	s.t.Helper()
	testkit.Wait(s.t, "messages to be stored", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.watch_messages") == n, nil
	})
}

// TestASkippedBatchBlocksNoWatcher skips one batch while the watcher runs and one while it is stopped, and has one deleted from its
// topic. The messages of other partitions are stored meanwhile, and nothing is judged.
func TestASkippedBatchBlocksNoWatcher(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	as := func(c *watch.Config) { c.Pool = grantstest.New(t, s.pool, grants.Watch).Pool() }
	desk, err := repair.New(repair.Config{Pool: grantstest.New(t, s.pool, grants.Operator).Pool()})
	require.NoError(t, err)
	by := admin.Actor{Name: "ann", Reason: "ticket 4711"}
	group := "watch/" + s.flow
	recorded := func(place repair.Place) {
		t.Helper()
		testkit.Wait(t, "the batch to be recorded", func() (bool, error) {
			b, err := desk.Batch(t.Context(), place, group)
			if err == nil {
				require.Equal(t, place.Offset+1, b.Next)
				require.Positive(t, b.Bytes)
				require.Less(t, b.Bytes, int64(1<<20))
			}
			return err == nil, err
		})
	}
	judged := func() time.Time { return s.desk().SeenAt() }

	s.send(order("o-1")[:1]...)
	place := s.bomb("order", "o-1")
	s.send(order("o-1")[1:]...)
	s.send(said{hop: "order", typ: "Placed", key: "o-1", id: "o-1-behind", ago: time.Minute, outcome: "success"})
	w := s.watch(as)
	recorded(place)
	s.stored(4) // all but the one behind the batch
	require.Zero(t, judged(), "an answer may be behind the batch")
	_, err = desk.Skip(t.Context(), place, "", by)
	require.NoError(t, err)
	s.judged()
	s.stored(5)

	place = s.bomb("payment", "o-1")
	recorded(place)
	w.stop()
	before := judged()
	_, err = desk.Skip(t.Context(), place, group, by) // the last message of its partition
	require.NoError(t, err)
	w = s.watch(as)
	s.judged()
	require.True(t, judged().After(before))
	s.stored(5)

	place = s.bomb("shipping", "o-1")
	recorded(place)
	s.send(said{hop: "shipping", typ: "Shipped", key: "o-1", id: "o-1-last", cause: "o-1-3", ago: time.Minute, outcome: "success"})
	place.Offset++
	s.deleteBefore(place)
	s.judged()
	s.stored(6)
	w.stop()

	batches, err := desk.Batches(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, batches, 3)
	skipped := 0
	for _, b := range batches {
		require.Equal(t, group, b.Group)
		if b.Skipped != nil {
			skipped++
			require.Equal(t, "ann", b.Actor)
			require.Equal(t, "ticket 4711", b.Reason)
		}
	}
	require.Equal(t, 2, skipped)
}
