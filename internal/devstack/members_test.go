package devstack_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/internal/devstack"
)

// A member whose connection breaks while it waits for its join is a member of the next generation; it must not stay one.
func TestAMemberThatDiesInARebalanceLeavesItsGroup(t *testing.T) {
	t.Parallel()
	k := startKafka(t, devstack.KafkaConfig{})
	cl := kafkaClient(t, k)
	_, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, nil, "work")
	require.NoError(t, err)
	for i := range 8 { // by chance kfake may also have answered the request
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			dieInARebalance(t, k, cl, fmt.Sprint("group-", i))
		})
	}
}

func dieInARebalance(t *testing.T, k *devstack.Kafka, cl *kgo.Client, group string) {
	waitForGroup := func(what string, is func(kadm.DescribedGroup) bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		for {
			groups, err := kadm.NewClient(cl).DescribeGroups(ctx, group)
			require.NoError(t, err, "waiting for %s", what)
			if is(groups[group]) {
				return
			}
		}
	}
	// A member that is alive: its next heartbeat reports the rebalance, some time after the other member has gone.
	lives := kafkaClient(t, k, kgo.ConsumerGroup(group), kgo.ConsumeTopics("work"), kgo.SessionTimeout(time.Minute),
		kgo.RebalanceTimeout(50*time.Second), kgo.HeartbeatInterval(900*time.Millisecond))
	go func() {
		for !lives.PollFetches(t.Context()).IsClientClosed() && t.Context().Err() == nil {
		}
	}()
	waitForGroup("a member", func(g kadm.DescribedGroup) bool { return g.State == "Stable" && len(g.Members) == 1 })

	dies, err := kgo.NewClient(kgo.SeedBrokers(k.Addrs()...))
	require.NoError(t, err)
	describe, err := kadm.NewClient(cl).DescribeGroups(t.Context(), group)
	require.NoError(t, err)
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.ProtocolType = group, "consumer"
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 3000, 2500 // the session must not end between the two requests below
	meta, ok := describe[group].Members[0].Join.AsConsumer()
	require.True(t, ok)
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = describe[group].Protocol, meta.AppendTo(nil)
	join.Protocols = append(join.Protocols, protocol)
	first, err := join.RequestWith(t.Context(), dies)
	require.NoError(t, err)
	require.NotEmpty(t, first.MemberID)
	join.MemberID = first.MemberID
	waits := make(chan error, 1)
	go func() {
		_, err := join.RequestWith(t.Context(), dies)
		waits <- err
	}()
	waitForGroup("a second member", func(g kadm.DescribedGroup) bool { return len(g.Members) == 2 })
	dies.Close()
	require.Error(t, <-waits)

	// With one partition the first member has nothing to revoke, which would cause another rebalance, and remove the other
	// member.
	waitForGroup("a generation of both", func(g kadm.DescribedGroup) bool { return g.State == "Stable" })
	waitForGroup("it to be gone", func(g kadm.DescribedGroup) bool { return g.State == "Stable" && len(g.Members) == 1 })
}
