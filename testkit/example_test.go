package testkit_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/testkit"
)

// Example shows the body of a test: a migrated database, topics of its own, and the records that were published.
func Example() {
	_ = func(t *testing.T) {
		pool := testkit.Database(t)
		brokers, topic := testkit.Kafka(t), testkit.Flow(t)+".payment.events"
		seen := testkit.Consume(t, brokers, topic)

		cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
		require.NoError(t, err)
		t.Cleanup(cl.Close)
		testkit.Topics(t, cl, 1, topic)
		require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("charged")}).FirstErr())

		require.Equal(t, "charged", string(seen.WaitN(1)[0].Value))
		testkit.Wait(t, "no other session", func() (bool, error) {
			var alone bool
			const query = "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database()"
			err := pool.QueryRow(t.Context(), query).Scan(&alone)
			return alone, err
		})
	}
}
