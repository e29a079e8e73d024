package timeline_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/timeline"
	"github.com/troupe-go/troupe/internal/kafka"
)

// The broker that coordinates the group of the hop does not list it. The timeline says so, and does not conclude that no
// participant has run. A group that the configuration names is read all the same: offsets are found without the list.
func TestAGroupOfAnAbsentBrokerIsNotTakenForMissing(t *testing.T) {
	t.Parallel()
	const topic, group, named = "shop.payment.commands", "shop.payment", "audit"
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.DataDir(t.TempDir()), kfake.SeedTopics(1, topic))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	client, err := kafka.NewClient(cluster.ListenAddrs())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	message := envelope.Message{Topic: topic, Key: []byte("o-1"), Type: "Charge", ID: envelope.NewID(), Payload: []byte("{}")}
	require.NoError(t, client.ProduceSync(t.Context(), kafka.Record(message)).FirstErr())
	for _, of := range []string{group, named} {
		var read kadm.Offsets
		read.AddOffset(topic, 0, 0, -1)
		require.NoError(t, kadm.NewClient(client).CommitAllOffsets(t.Context(), of, read))
	}
	absent := []int32{cluster.CoordinatorFor(group), cluster.CoordinatorFor(named)}
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListGroups}, Nodes: absent, TopLevel: true, Err: kerr.InvalidRequest, Count: -1})

	for _, c := range []struct {
		groups []string
		want   string
	}{
		{nil, "how far its hop has read was not seen"},
		{[]string{named}, "group audit has not reached it"},
	} {
		got, err := timeline.Read(t.Context(), timeline.Config{Brokers: cluster.ListenAddrs(), Flow: "shop", Groups: c.groups}, "o-1")
		require.NoError(t, err)
		require.Len(t, got.Unseen, 1, "%+v", got.Unseen)
		require.Equal(t, "consumer groups", got.Unseen[0].What)
		require.Contains(t, got.Unseen[0].Why, "broker ")
		require.Len(t, texts(got), 1)
		require.Contains(t, texts(got)[0], c.want)
	}
}
