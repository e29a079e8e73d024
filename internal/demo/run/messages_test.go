package run

import (
	"context"
	"fmt"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/testkit"
)

func newClient(t *testing.T) *kgo.Client {
	client, err := kafka.NewClient(testkit.Kafka(t))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func send(t *testing.T, client *kgo.Client, topic, key, id string) {
	m := envelope.Message{
		Topic: topic, Key: []byte(key), Payload: []byte("x"), ID: id, Type: "troupe.order.OrderShipped", CausationID: "why",
	}
	require.NoError(t, client.ProduceSync(t.Context(), kafka.Record(m)).FirstErr())
}

func TestTheFlowsTopicsAreReadFromTheirBeginningToTheirEnd(t *testing.T) {
	flow, client := testkit.Flow(t), newClient(t)
	commands, events := flow+".payment.commands", flow+".payment.events"
	testkit.Topics(t, client, 3, commands, events, flow+".payment.dlq", flow+".order.events", flow+"x.payment.commands")
	none, err := readMessages(t.Context(), testkit.Kafka(t), client, flow)
	require.NoError(t, err)
	require.Empty(t, none)
	for n := range 50 {
		send(t, client, commands, fmt.Sprint("o-", n%7), fmt.Sprint("c-", n))
		send(t, client, events, fmt.Sprint("o-", n%7), fmt.Sprint("e-", n))
	}
	send(t, client, events, "o-1", "e-1") // again
	send(t, client, flow+".payment.dlq", "o-1", "d")
	send(t, client, flow+"x.payment.commands", "o-1", "another flow's")

	all, err := readMessages(t.Context(), testkit.Kafka(t), client, flow)
	require.NoError(t, err)
	require.Len(t, all, 101)
	latest := make(map[string]int)
	for _, m := range all {
		require.Equal(t, "OrderShipped", m.typ)
		require.Equal(t, "why", m.cause)
		require.False(t, m.written.IsZero())
		var n int
		_, err := fmt.Sscanf(m.id[2:], "%d", &n)
		require.NoError(t, err)
		if n != 1 {
			require.Greater(t, n, latest[m.topic+m.key]-1, "in order")
		}
		latest[m.topic+m.key] = n
	}
}

func TestUnreadMessagesOfGroupsAreCounted(t *testing.T) {
	flow, client := testkit.Flow(t), newClient(t)
	testkit.Topics(t, client, 3, flow+".payment.commands")
	for n := range 10 {
		send(t, client, flow+".payment.commands", "o", fmt.Sprint(n))
	}
	none, err := readUnread(t.Context(), client, flow)
	require.NoError(t, err)
	require.Empty(t, none)
	consume(t, flow, 4)
	unread, err := readUnread(t.Context(), client, flow)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"payment": 6}, unread)
}

// A wait for the end of a flow goes on while a broker is absent, and a flow is removed as far as the other brokers have it.
func TestGroupsOfAnAbsentBrokerDoNotEndTheDemo(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.DataDir(t.TempDir()), kfake.SeedTopics(1, "shop.t"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	client, err := kafka.NewClient(cluster.ListenAddrs())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	on := make(map[int32]string) // a group on each broker
	for n := 0; len(on) < 3; n++ {
		group := fmt.Sprintf("shop.g%d", n)
		on[cluster.CoordinatorFor(group)] = group
	}
	for _, group := range on {
		var read kadm.Offsets
		read.AddOffset("shop.t", 0, 0, -1)
		require.NoError(t, kadm.NewClient(client).CommitAllOffsets(t.Context(), group, read))
	}
	absent := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListGroups}, Nodes: []int32{1}, TopLevel: true, Err: kerr.InvalidRequest, Count: -1})
	unread, err := readUnread(t.Context(), client, "shop")
	require.ErrorIs(t, err, kafka.ErrIncomplete)
	require.Len(t, unread, 2)
	require.ErrorIs(t, removeFlow(t.Context(), client, "shop"), kafka.ErrIncomplete)
	absent.Remove()
	left, err := kafka.Groups(t.Context(), client, groupsLimit)
	require.NoError(t, err)
	require.Equal(t, []string{on[1]}, left.Groups())
}

// consume commits that n of the flow's messages to payment were read.
func consume(t *testing.T, flow string, n int, opts ...kgo.Opt) {
	member, err := kafka.NewClient(testkit.Kafka(t), append(opts,
		kgo.ConsumerGroup(flow+".payment"), kgo.ConsumeTopics(flow+".payment.commands"), kgo.DisableAutoCommit())...)
	require.NoError(t, err)
	defer member.Close()
	for read := 0; read < n; {
		fetches := member.PollRecords(t.Context(), n-read)
		require.NoError(t, fetches.Err())
		read += fetches.NumRecords()
		require.NoError(t, member.CommitRecords(t.Context(), fetches.Records()...))
	}
}

func TestAFlowIsRemovedWithItsStaticMembersAndNoOtherFlow(t *testing.T) {
	flow, client := testkit.Flow(t), newClient(t)
	testkit.Topics(t, client, 3, flow+".payment.commands", flow+".payment.dlq", flow+"x.payment.commands")
	send(t, client, flow+".payment.commands", "o", "1")
	consume(t, flow, 1, kgo.InstanceID("payment")) // does not leave the group when it ends
	require.NoError(t, removeFlow(t.Context(), client, flow))
	admin := kadm.NewClient(client)
	groups, err := admin.ListGroups(t.Context())
	require.NoError(t, err)
	require.NotContains(t, groups.Groups(), flow+".payment")
	testkit.Wait(t, "topics gone", func() (bool, error) { // the client caches them for a moment
		topics, err := admin.ListTopics(t.Context())
		return len(ofFlow(topics.Names(), flow)) == 0 && topics.Has(flow+"x.payment.commands"), err
	})
	require.NoError(t, removeFlow(t.Context(), client, flow), "again")
}

func TestTheDuplicatorSendsRecordsAgainUnchanged(t *testing.T) {
	flow, client := testkit.Flow(t), newClient(t)
	topic := flow + ".payment.commands"
	testkit.Topics(t, client, 3, topic)
	d, err := newDuplicator(testkit.Kafka(t), []string{topic}, 1, zerolog.Nop())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.run(ctx) }()
	for n := range 200 {
		send(t, client, topic, fmt.Sprint("o-", n), fmt.Sprint("id-", n))
	}
	testkit.Wait(t, "copies", func() (bool, error) { return d.copied.Load() >= 5, nil })
	stop()
	require.NoError(t, <-ended)

	seen := testkit.Consume(t, testkit.Kafka(t), topic).WaitN(200 + int(d.copied.Load()))
	first := make(map[string]*kgo.Record)
	copies := 0
	for _, r := range seen {
		id := newMessage(r).id
		of, again := first[id]
		if !again {
			first[id] = r
			continue
		}
		copies++
		require.Equal(t, of.Partition, r.Partition)
		require.Equal(t, of.Key, r.Key)
		require.Equal(t, of.Value, r.Value)
		require.Equal(t, of.Headers, r.Headers)
	}
	require.Len(t, first, 200)
	require.EqualValues(t, d.copied.Load(), copies, "no copy of a copy")
}
