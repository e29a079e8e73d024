package relay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/relay"
)

// One broker that does not answer stalls the rows of every topic while the client waits for it.
func TestABrokerThatDoesNotAnswerIsLeftAfterEightSeconds(t *testing.T) {
	t.Parallel()
	cfg := newStage(t).config()
	limit := func() time.Duration {
		r, err := relay.New(cfg)
		require.NoError(t, err)
		client, err := r.Client()
		require.NoError(t, err)
		defer client.Close()
		return client.OptValue(kgo.ProduceRequestTimeout).(time.Duration) + client.OptValue(kgo.RequestTimeoutOverhead).(time.Duration)
	}
	require.Equal(t, 8*time.Second, limit())
	cfg.Kafka = []kgo.Opt{kgo.ProduceRequestTimeout(20 * time.Second)}
	require.Equal(t, 23*time.Second, limit(), "the configuration's own options win")
}
