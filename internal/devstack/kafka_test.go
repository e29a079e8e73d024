package devstack_test

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/devstack"
)

func TestKafkaListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	for _, addr := range startKafka(t, devstack.KafkaConfig{}).Addrs() {
		host, _, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		require.True(t, net.ParseIP(host).IsLoopback())
	}
}

func TestKafkaMakesNoTopicByItsBeingUsed(t *testing.T) {
	t.Parallel()
	cl := kafkaClient(t, startKafka(t, devstack.KafkaConfig{}), kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(1))
	err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "absent"}).FirstErr()
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
}

func TestKafkaKeepsTheFolderItWasGiven(t *testing.T) {
	t.Parallel()
	cfg := devstack.KafkaConfig{DataDir: filepath.Join(t.TempDir(), "kafka"), Partitions: 3}
	k, err := devstack.StartKafka(t.Context(), cfg)
	require.NoError(t, err)
	cl := kafkaClient(t, k)
	_, err = kadm.NewClient(cl).CreateTopic(t.Context(), -1, 1, nil, "kept")
	require.NoError(t, err)
	require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: "kept", Value: []byte("here")}).FirstErr())
	require.NoError(t, k.Close())

	cl = kafkaClient(t, startKafka(t, cfg), kgo.ConsumeTopics("kept"))
	fetches := cl.PollFetches(t.Context())
	require.NoError(t, fetches.Err())
	require.Equal(t, "here", string(fetches.Records()[0].Value))
	topics, err := kadm.NewClient(cl).ListTopics(t.Context(), "kept")
	require.NoError(t, err)
	require.Len(t, topics["kept"].Partitions, 3)
}

func startKafka(t *testing.T, cfg devstack.KafkaConfig) *devstack.Kafka {
	t.Helper()
	k, err := devstack.StartKafka(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.Close()) })
	return k
}

func kafkaClient(t *testing.T, k *devstack.Kafka, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(k.Addrs()...))...)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}
