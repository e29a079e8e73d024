package testkit

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Topics creates the topics that do not exist, with this number of partitions and the broker's defaults, and returns when every
// partition of all of them is served: a broker reports a topic as created before it accepts records for it, and a client that
// gets the answer that a topic is unknown gives up after a second. Existing topics are not changed.
func Topics(t testing.TB, client *kgo.Client, partitions int32, names ...string) {
	t.Helper()
	admin := kadm.NewClient(client)
	made, err := admin.CreateTopics(t.Context(), partitions, -1, nil, names...)
	require.NoError(t, err)
	for _, topic := range made {
		if !errors.Is(topic.Err, kerr.TopicAlreadyExists) {
			require.NoError(t, topic.Err, topic.Topic)
		}
	}
	Wait(t, "a broker that serves the topics", func() (bool, error) {
		ends, err := admin.ListEndOffsets(t.Context(), names...)
		return len(ends) == len(names), errors.Join(err, ends.Error())
	})
}
