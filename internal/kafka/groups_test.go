package kafka_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/testkit"
)

// newCluster returns three brokers, with a group on each.
func newCluster(t *testing.T) (*kfake.Cluster, *kgo.Client, map[int32]string) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.DataDir(t.TempDir()), kfake.SeedTopics(1, "t"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	client, err := kafka.NewClient(cluster.ListenAddrs())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	groups := make(map[int32]string)
	for n := range 100 {
		name := "g" + string(rune('a'+n%26)) + string(rune('a'+n/26))
		if at := cluster.CoordinatorFor(name); groups[at] == "" {
			groups[at] = name
		}
	}
	require.Len(t, groups, 3)
	for _, group := range groups {
		var offsets kadm.Offsets
		offsets.AddOffset("t", 0, 0, -1)
		require.NoError(t, kadm.NewClient(client).CommitAllOffsets(t.Context(), group, offsets))
	}
	return cluster, client, groups
}

func TestGroupsOfABrokerThatIsAbsentAreMissingAndTheOthersAreNot(t *testing.T) {
	t.Parallel()
	cluster, client, groups := newCluster(t)
	listed, err := kafka.Groups(t.Context(), client, time.Minute)
	require.NoError(t, err)
	require.Len(t, listed, 3)

	// A broker that refuses, and one that does not answer.
	for _, silent := range []bool{false, true} {
		limit := time.Minute
		if silent {
			limit = 2 * time.Second
			release := make(chan struct{})
			t.Cleanup(func() { close(release) })
			cluster.ControlKey(int16(kmsg.ListGroups), func(kmsg.Request) (kmsg.Response, error, bool) {
				cluster.KeepControl()
				if cluster.CurrentNode() == 1 {
					cluster.SleepControl(func() { <-release })
				}
				return nil, nil, false
			})
		} else {
			refused := cluster.Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.ListGroups}, Nodes: []int32{1}, TopLevel: true, Err: kerr.InvalidRequest, Count: -1,
			})
			defer refused.Remove()
		}
		listed, err = kafka.Groups(t.Context(), client, limit)
		require.ErrorIs(t, err, kafka.ErrIncomplete)
		require.ErrorContains(t, err, "broker 1: ")
		require.ElementsMatch(t, []string{groups[0], groups[2]}, listed.Groups())
	}
}

func TestTheTopicsOfAGroupsMembersAreFound(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]kgo.Opt{
		"classic": nil, "KIP-848": {kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			brokers := testkit.Kafka(t)
			client, err := kafka.NewClient(brokers)
			require.NoError(t, err)
			t.Cleanup(client.Close)
			group, topic := testkit.Flow(t), testkit.Flow(t)
			testkit.Topics(t, client, 1, topic)
			member, err := kafka.NewClient(brokers, append(opts, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic))...)
			require.NoError(t, err)
			t.Cleanup(member.Close)
			testkit.Wait(t, "the member's topic", func() (bool, error) {
				found, err := kafka.GroupTopics(t.Context(), client, group)
				return slices.Equal(found, []string{topic}), err
			})
		})
	}
}
