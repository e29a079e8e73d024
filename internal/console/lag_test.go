package console

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/testkit"
)

func TestTheOverviewTellsHowFarGroupsAreBehind(t *testing.T) {
	t.Parallel()
	brokers, flow := testkit.Kafka(t), testkit.Flow(t)
	topic, group := flow+".payment.commands", flow+".payment"
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.AllowAutoTopicCreation())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	admin := kadm.NewClient(client)
	_, err = admin.CreateTopic(t.Context(), 1, 1, nil, topic)
	require.NoError(t, err)
	testkit.Wait(t, "three messages to be there", func() (bool, error) {
		for range 3 {
			if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr(); err != nil {
				return false, err
			}
		}
		return true, nil
	})
	ends, err := admin.ListEndOffsets(t.Context(), topic)
	require.NoError(t, err)
	end, _ := ends.Lookup(topic, 0)
	var read kadm.Offsets
	read.AddOffset(topic, 0, end.Offset-2, -1)
	testkit.Wait(t, "the group to have a coordinator", func() (bool, error) {
		return true, admin.CommitAllOffsets(t.Context(), group, read)
	})
	d := newDesk(t, func(c *Config) { c.Brokers, c.Flow = brokers, flow })
	testkit.Wait(t, "the lag", func() (bool, error) { // within the limit of three seconds, on a busy machine
		lag := facts[overviewFacts](d, "/").Lag
		return lag != nil && lag.Error == "" && len(lag.Groups) == 1 && lag.Groups[0] == groupLag{group, topic, "Empty", 2, 0}, nil
	})
	require.Contains(t, d.html("/"), "Consumers")
}

// A broker that accepts connections and never responds delays the page by no more than its limit, and no other part of it.
func TestABrokerThatDoesNotAnswerIsSaidOnTheOverview(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	d := newDesk(t, func(c *Config) { c.Brokers, c.Flow = []string{silent.Addr().String()}, "shop" })
	d.letters()
	o := facts[overviewFacts](d, "/")
	require.NotEmpty(t, o.Lag.Error)
	require.Equal(t, 4, o.Databases[0].DeadLetters)
	require.Contains(t, d.html("/"), "do not answer")
	require.Nil(t, facts[overviewFacts](newDesk(t), "/").Lag, "no lag without brokers")
}

// Each broker lists the groups that it coordinates. The groups of an absent broker are missing, and the page names the broker.
func TestTheOverviewShowsTheLagsOfTheBrokersThatAnswer(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.DataDir(t.TempDir()), kfake.SeedTopics(1, "shop.a.commands"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	on := make(map[int32]string) // a group on each broker
	for n := 0; len(on) < 3; n++ {
		group := fmt.Sprintf("shop.g%d", n)
		on[cluster.CoordinatorFor(group)] = group
	}
	for _, group := range on {
		var read kadm.Offsets
		read.AddOffset("shop.a.commands", 0, 0, -1)
		require.NoError(t, kadm.NewClient(client).CommitAllOffsets(t.Context(), group, read))
	}
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListGroups}, Nodes: []int32{1}, TopLevel: true, Err: kerr.InvalidRequest, Count: -1})
	d := newDesk(t, func(c *Config) { c.Brokers, c.Flow = cluster.ListenAddrs(), "shop" })
	var lag *lagFacts
	testkit.Wait(t, "the lags", func() (bool, error) { // within the limit, on a busy machine
		lag = facts[overviewFacts](d, "/").Lag
		return len(lag.Groups) > 0, nil
	})
	var groups []string
	for _, of := range lag.Groups {
		groups = append(groups, of.Group)
	}
	require.ElementsMatch(t, []string{on[0], on[2]}, groups)
	require.Contains(t, lag.Error, "broker 1: ")
	require.Contains(t, d.html("/"), "Not every lag is known")

	// The leader of the topic is absent too.
	cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "shop.a.commands", Err: kerr.UnknownServerError, Count: -1,
	})
	testkit.Wait(t, "the lags", func() (bool, error) {
		lag = facts[overviewFacts](d, "/").Lag
		return len(lag.Groups) > 0, nil
	})
	require.Equal(t, 1, lag.Groups[0].Unknown)
	require.Contains(t, d.html("/"), "1 partition unknown")
}
