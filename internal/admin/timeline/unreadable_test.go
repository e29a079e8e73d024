package timeline_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/timeline"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/testkit"
)

// TestABatchThatUnpacksToTooMuchIsPassedOverAndNamed reads partitions that have such a batch between two messages, and at the end.
func TestABatchThatUnpacksToTooMuchIsPassedOverAndNamed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	events := s.hop("payment").Events()
	s.provision(events, 2)
	bomber, err := kafka.NewClient(testkit.Kafka(t), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(128<<20),
		kgo.MaxBufferedBytes(256<<20), kgo.BrokerMaxWriteBytes(160<<20), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	require.NoError(t, err)
	t.Cleanup(bomber.Close)
	record := func(partition int32, id string, size int) *kgo.Record {
		r := kafka.Record(envelope.Message{
			Topic: events, Key: []byte("o-1"), Type: "Charged", ID: id, CorrelationID: "o-1", Outcome: envelope.Success, Payload: make([]byte, size),
		})
		r.Partition = partition
		return r
	}
	bomb := func(partition int32) {
		require.NoError(t, bomber.ProduceSync(t.Context(), record(partition, "bomb", 80<<20)).FirstErr())
	}
	for partition := range int32(2) {
		s.produce(record(partition, fmt.Sprint("before-", partition), 1))
		bomb(partition)
	}
	s.produce(record(0, "behind-0", 1))

	got := s.read("o-1", func(c *timeline.Config) { c.ScanAll, c.Databases = true, nil })
	var ids []string
	for _, e := range got.Entries {
		ids = append(ids, e.ID)
	}
	require.ElementsMatch(t, []string{"before-0", "before-1", "behind-0"}, ids)
	var unseen []string
	for _, u := range got.Unseen {
		unseen = append(unseen, u.What)
		require.Contains(t, u.Why, "unpacks to more than 64 MiB: it was passed over")
	}
	require.ElementsMatch(t, []string{"topic " + events + "/0 from offset 1 to 1", "topic " + events + "/1 from offset 1 to 1"}, unseen)
}
