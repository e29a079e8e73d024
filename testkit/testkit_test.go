package testkit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestDatabaseIsMigratedAndTheTestsOwn(t *testing.T) {
	t.Parallel()
	names := make(map[string]bool)
	for range 3 {
		pool := testkit.Database(t)
		var name string
		var migrated bool
		const query = "SELECT current_database(), to_regclass('troupe.outbox') IS NOT NULL"
		require.NoError(t, pool.QueryRow(t.Context(), query).Scan(&name, &migrated))
		require.True(t, migrated)
		names[name] = true
		conn, err := pgx.Connect(t.Context(), testkit.DatabaseURL(t, pool))
		require.NoError(t, err)
		require.Equal(t, name, conn.Config().Database)
		require.NoError(t, conn.Close(t.Context()))
	}
	require.Len(t, names, 3)
}

func TestDatabaseIsDroppedAtCleanup(t *testing.T) {
	t.Parallel()
	var name string
	t.Run("user", func(t *testing.T) {
		address := testkit.EmptyDatabase(t)
		conn, err := pgx.Connect(t.Context(), address)
		require.NoError(t, err)
		name = conn.Config().Database
		// left open: the drop terminates it
	})
	conn, err := pgx.Connect(t.Context(), testkit.Postgres(t).URL(""))
	require.NoError(t, err)
	var exists bool
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&exists))
	require.False(t, exists)
	require.NoError(t, conn.Close(t.Context()))
}

func TestFlowIsRemovedFromTheBrokerAtCleanup(t *testing.T) {
	t.Parallel()
	brokers := testkit.Kafka(t)
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	admin := kadm.NewClient(cl)
	var flow string
	t.Run("user", func(t *testing.T) {
		flow = testkit.Flow(t)
		topic := flow + ".payment.commands"
		testkit.Topics(t, cl, 3, topic)
		var offsets kadm.Offsets
		offsets.AddOffset(topic, 0, 0, -1)
		require.NoError(t, admin.CommitAllOffsets(t.Context(), flow+".payment", offsets))
	})
	testkit.Wait(t, "flow gone", func() (bool, error) {
		topics, err := admin.ListTopics(t.Context())
		if err != nil {
			return false, err
		}
		groups, err := admin.ListGroups(t.Context())
		_, left := groups[flow+".payment"]
		return !topics.Has(flow+".payment.commands") && !left, err
	})
}

func TestConsumerCollectsFromTopicsMadeLater(t *testing.T) {
	t.Parallel()
	brokers, topic := testkit.Kafka(t), testkit.Flow(t)+".payment.events"
	consumer := testkit.Consume(t, brokers, topic)
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	testkit.Topics(t, cl, 3, topic)
	for _, value := range []string{"a", "b", "c"} {
		require.NoError(t, cl.ProduceSync(t.Context(), kgo.KeySliceRecord([]byte("key"), []byte(value))).FirstErr())
	}
	var values []string
	for _, r := range consumer.WaitN(3) {
		values = append(values, string(r.Value))
	}
	require.Equal(t, []string{"a", "b", "c"}, values)
	require.Len(t, consumer.Records(), 3)
}

func TestRegistryKeepsSchemas(t *testing.T) {
	t.Parallel()
	cl, err := sr.NewClient(sr.URLs(testkit.Registry(t)))
	require.NoError(t, err)
	subject := testkit.Flow(t) + "-value"
	made, err := cl.CreateSchema(t.Context(), subject, sr.Schema{Schema: `{"type":"string"}`, Type: sr.TypeAvro})
	require.NoError(t, err)
	found, err := cl.SchemaByID(t.Context(), made.ID)
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"string"}`, found.Schema)
	versions, err := cl.SubjectVersions(t.Context(), subject)
	require.NoError(t, err)
	require.Equal(t, []int{1}, versions)
}

func TestWaitAsksUntilTrue(t *testing.T) {
	t.Parallel()
	asked := 0
	testkit.Wait(t, "third answer", func() (bool, error) {
		asked++
		if asked == 2 {
			return true, errors.New("an error is a no")
		}
		return asked == 3, nil
	})
	require.Equal(t, 3, asked)
}

func TestLoggerIsSilentAfterItsTest(t *testing.T) {
	t.Parallel()
	log := testkit.Logger(t)
	t.Run("ended", func(t *testing.T) { log = testkit.Logger(t) })
	log.Info().Msg("would panic in testing.T.Log")
}

func BenchmarkDatabase(b *testing.B) {
	for b.Loop() {
		require.NoError(b, testkit.Database(b).Ping(context.Background()))
	}
}
