package flow_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// TestAnExpectationThatTheDatabaseLostBeginsWithItsEventAgain: a request wrote the event after which another one is expected,
// and the event was published. Then the database was set back to before the request. The event is read again, and the
// expectation begins.
func TestAnExpectationThatTheDatabaseLostBeginsWithItsEventAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pool := testkit.Database(t)
	w.pools["inventory"] = pool
	client, err := kafka.NewClient(testkit.Kafka(t))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	hop := w.hop("inventory")
	testkit.Topics(t, client, 1, hop.Events(), hop.Commands(), w.hop("payment").Events(), w.hop("shipping").Events())
	var out *outbox.Outbox
	start := func() (stop func()) {
		p, err := participant.New(participant.Config{
			Pool: pool, Brokers: testkit.Kafka(t), Hop: hop, Partitions: 1, Retry: quick, Log: testkit.Logger(t), Kafka: session(),
		})
		require.NoError(t, err)
		reserving(t, &out).Handlers(&testkit.Stage{Hop: topics.MustHop(w.flow, "inventory")}, p)
		return run(t, p)
	}
	w.relay("inventory")
	stop := start()
	const waits = "SELECT count(*) FROM troupe.expectations AS e JOIN troupe.deadlines AS d ON d.scope = e.key WHERE e.after_at IS NOT NULL"
	const read = "SELECT count(*) FROM troupe.leases WHERE watermark = 0 AND topic LIKE '%.inventory.events'"
	wait := func(what, sql string) {
		t.Helper()
		testkit.Wait(t, what, func() (bool, error) { return w.count("inventory", sql) == 1, nil })
	}
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return out.Write(t.Context(), tx, outbox.Entry{Topic: hop.Events(), Key: "o-1", Body: Reserved{7}, Outcome: envelope.Success})
	}))
	wait("the expectation", waits)
	wait("the event to be read", read)
	stop()
	_, err = pool.Exec(t.Context(), `DELETE FROM troupe.expectations; DELETE FROM troupe.deadlines; DELETE FROM troupe.inbox_offsets;
		DELETE FROM troupe.inbox; DELETE FROM troupe.inbox_recent;
		UPDATE troupe.leases SET watermark = -1`)
	require.NoError(t, err)
	start()
	wait("the event to be read again", read)
	require.Equal(t, 1, w.count("inventory", waits))
}
