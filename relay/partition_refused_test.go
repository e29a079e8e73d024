package relay_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// One partition of a topic is on a broker that refuses its records, and the other one takes them. The relay waits for UnknownTopic once, and not for
// each transaction: delivered at least once, all transactions together would wait for longer than a test does.
func TestAPartitionThatTheBrokerAlwaysRefusesHoldsNoOtherUp(t *testing.T) {
	t.Parallel()
	for delivery, c := range map[relay.Delivery]struct {
		transactions int
		unknownTopic time.Duration
	}{relay.AtLeastOnce: {60, 5 * time.Second}, relay.ExactlyOnce: {5, time.Second}} {
		t.Run(string(delivery), func(t *testing.T) {
			t.Parallel()
			needsLog(t)
			s, _ := newServer(t, nil)
			cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.DataDir(t.TempDir()), kfake.SeedTopics(2, "ill"))
			require.NoError(t, err)
			t.Cleanup(cluster.Close)
			require.NoError(t, cluster.MoveTopicPartition("ill", 0, 0))
			require.NoError(t, cluster.MoveTopicPartition("ill", 1, 1))
			var healed atomic.Bool
			ids := cluster.TopicInfo("ill").TopicID
			cluster.ControlKey(0, func(request kmsg.Request) (kmsg.Response, error, bool) {
				cluster.KeepControl()
				produce := request.(*kmsg.ProduceRequest)
				if healed.Load() || produce.Topics[0].TopicID != ids || produce.Topics[0].Partitions[0].Partition != 0 {
					return nil, nil, false
				}
				response := produce.ResponseKind().(*kmsg.ProduceResponse)
				answer, partition := kmsg.NewProduceResponseTopic(), kmsg.NewProduceResponseTopicPartition()
				answer.Topic, answer.TopicID = produce.Topics[0].Topic, ids
				partition.ErrorCode = kerr.UnknownServerError.Code
				answer.Partitions = append(answer.Partitions, partition)
				response.Topics = append(response.Topics, answer)
				return response, nil, true
			})
			s.brokers = cluster.ListenAddrs()
			keys := map[int][]string{} // by partition
			of := kgo.StickyKeyPartitioner(nil).ForTopic("ill")
			for n := 0; len(keys[0]) < c.transactions || len(keys[1]) < c.transactions; n++ {
				key := "k" + strconv.Itoa(n)
				p := of.Partition(&kgo.Record{Key: []byte(key)}, 2)
				keys[p] = append(keys[p], key)
			}
			cfg := s.wal()
			cfg.Delivery, cfg.UnknownTopic = delivery, c.unknownTopic
			s.start(cfg)
			s.waitStream()
			sent := 0
			testkit.Wait(t, "each row of the refused partition to wait for its next try", func() (bool, error) {
				if s.count("SELECT count(*) FROM troupe.outbox_failures") < sent || sent == c.transactions {
					return sent == c.transactions, nil
				}
				// each transaction has a row of either partition
				s.exec("INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ('ill', $1, 'T', $3), ('ill', $2, 'T', $3)",
					keys[0][sent], keys[1][sent], strconv.Itoa(sent))
				sent++
				return false, nil
			})
			testkit.Wait(t, "the rows of the partition that takes records", func() (bool, error) { return len(s.committed("ill")) == c.transactions, nil })
			require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status <> 'retrying'"))
			healed.Store(true)
			testkit.Wait(t, "all rows", func() (bool, error) { return len(s.committed("ill")) == 2*c.transactions, nil })
		})
	}
}
