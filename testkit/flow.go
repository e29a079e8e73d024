package testkit

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const removeLimit = 4 * time.Minute

// Flow returns a new name of a flow, for this test only, such as t-3f9a2c01d4e7. The test's Cleanup removes the topics and groups
// whose names begin with it from the test's broker. A group that still has members stays, with a line in the test's log.
func Flow(t testing.TB) string {
	flow := "t-" + randomHex(6)
	t.Cleanup(func() {
		if broker.isOpen() {
			removeFlow(t, flow)
		}
	})
	return flow
}

func removeFlow(t testing.TB, flow string) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(Kafka(t)...))
	require.NoError(t, err)
	defer cl.Close()
	admin := kadm.NewClient(cl)
	ctx, cancel := context.WithTimeout(context.Background(), removeLimit)
	defer cancel()

	groups, err := admin.ListGroups(ctx)
	require.NoError(t, err)
	if names := withPrefix(groups.Groups(), flow); len(names) > 0 {
		deleted, err := admin.DeleteGroups(ctx, names...)
		require.NoError(t, err)
		for _, group := range deleted.Sorted() {
			if group.Err != nil {
				t.Logf("group %s stays: %v", group.Group, group.Err)
			}
		}
	}
	topics, err := admin.ListTopics(ctx)
	require.NoError(t, err)
	if names := withPrefix(topics.Names(), flow); len(names) > 0 {
		deleted, err := admin.DeleteTopics(ctx, names...)
		require.NoError(t, err)
		for _, topic := range deleted.Sorted() {
			if !errors.Is(topic.Err, kerr.UnknownTopicOrPartition) { // the test has deleted it, and the list was older
				require.NoError(t, topic.Err, topic.Topic)
			}
		}
	}
}

func withPrefix(names []string, prefix string) []string {
	var with []string
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			with = append(with, name)
		}
	}
	return with
}
