package testkit_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/testkit"
)

// TestTopicsWaitsUntilTheyAreServed uses a broker that knows a topic before it serves its partitions, as Apache Kafka does.
func TestTopicsWaitsUntilTheyAreServed(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	defer cluster.Close()
	var asked atomic.Int32
	cluster.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if asked.Add(1) > 3 {
			return nil, nil, false
		}
		response := r.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, topic := range r.(*kmsg.ListOffsetsRequest).Topics {
			of := kmsg.NewListOffsetsResponseTopic()
			of.Topic = topic.Topic
			for _, p := range topic.Partitions {
				not := kmsg.NewListOffsetsResponseTopicPartition()
				not.Partition, not.ErrorCode = p.Partition, kerr.UnknownTopicOrPartition.Code
				of.Partitions = append(of.Partitions, not)
			}
			response.Topics = append(response.Topics, of)
		}
		return response, nil, true
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	require.NoError(t, err)
	defer client.Close()

	testkit.Topics(t, client, 2, "a", "b")
	require.GreaterOrEqual(t, asked.Load(), int32(4), "the fourth answer is the first without an error")
	testkit.Topics(t, client, 5, "b", "c")
	found, err := kadm.NewClient(client).ListTopics(t.Context(), "a", "b", "c")
	require.NoError(t, err)
	require.Equal(t, []int{2, 2, 5}, []int{len(found["a"].Partitions), len(found["b"].Partitions), len(found["c"].Partitions)},
		"an existing topic does not change")
}
