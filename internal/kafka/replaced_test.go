package kafka_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/internal/kafka"
)

// A host that is cut off keeps its connections. The others replace it after broker.session.timeout.ms, and name it no more; the client
// must not wait longer than that, whatever its own limits are.
func TestASilentBrokerThatTheOthersHaveReplacedIsLeft(t *testing.T) {
	const topic = "replaced"
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.DataDir(t.TempDir()), kfake.SeedTopics(1, topic))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	require.NoError(t, cluster.MoveTopicPartition(topic, 0, 0))

	client, err := kafka.NewClient(cluster.ListenAddrs(), kgo.ProduceRequestTimeout(time.Minute), kgo.RequestTimeoutOverhead(time.Minute))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: topic}).FirstErr())

	metadata := kmsg.NewPtrMetadataRequest()
	replaced, err := metadata.RequestWith(t.Context(), client)
	require.NoError(t, err)
	var others []kmsg.MetadataResponseBroker
	for _, b := range replaced.Brokers {
		if b.NodeID != 0 {
			others = append(others, b)
		}
	}
	replaced.Brokers, replaced.ControllerID, replaced.Topics[0].Partitions[0].Leader, replaced.Topics[0].Partitions[0].LeaderEpoch = others, 1, 1, 100

	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return nil, nil, cluster.CurrentNode() == 0 // silence
	})
	sent := make(chan error, 1)
	client.Produce(t.Context(), &kgo.Record{Topic: topic}, func(_ *kgo.Record, err error) { sent <- err })
	require.NoError(t, cluster.MoveTopicPartition(topic, 0, 1))
	cluster.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return replaced, nil, true
	})
	select {
	case err := <-sent:
		require.NoError(t, err)
	case <-time.After(50 * time.Second):
		t.Fatal("the client still waits for the broker that was replaced")
	}
}
