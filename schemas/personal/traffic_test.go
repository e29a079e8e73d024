package personal_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/erasure"
	"github.com/troupe-go/troupe/internal/admin/rebuilds"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/schemas/personal"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// flaky is a store of keys that refuses every fifth lookup.
type flaky struct {
	personal.Keys
	lookups atomic.Int32
}

func (f *flaky) Find(ctx context.Context, subject string) (tink.DeterministicAEAD, error) {
	if f.lookups.Add(1)%5 == 1 {
		return nil, fmt.Errorf("lookup of a key: %w", context.DeadlineExceeded)
	}
	return f.Keys.Find(ctx, subject)
}

// TestAnErasureDuringTraffic: while batches, OnAll and a rebuild read messages about several people, and lookups of keys fail, one person
// is erased. Each message takes effect once in each group, and once more in its rebuild, without a dead letter. In the rebuild, which comes after
// the erasure, the person's fields are empty.
func TestAnErasureDuringTraffic(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const people, each, erased = 3, 20, "c-1"
	flow := testkit.Flow(t)
	shop := topics.MustHop(flow, "shop")
	client, err := kafka.NewClient(testkit.Kafka(t))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	require.NoError(t, kafka.Provision(t.Context(), client, kafka.Topic{Name: shop.Events(), Partitions: 3}))
	s.exec("CREATE TABLE seen (of text, id text, customer text, email text, n serial)")
	const insert = "INSERT INTO seen (of, id, customer, email) VALUES ($1, $2, $3, $4)"
	codec := s.codec(func(c *personal.Config) { c.Keys, c.CacheFor = &flaky{Keys: s.table}, 500*time.Millisecond })
	start := func(name string, on func(*participant.Participant)) {
		p, err := participant.New(participant.Config{
			Pool: s.pool, Brokers: testkit.Kafka(t), Hop: topics.MustHop(flow, name), Codec: codec, Batch: 10, Concurrency: 3,
			Retry: retry.Policy{Initial: 100 * time.Millisecond, Cap: time.Second, Attempts: 1000}, Log: testkit.Logger(t),
		})
		require.NoError(t, err)
		on(p)
		run(t, p)
	}
	start("each", func(p *participant.Participant) {
		participant.On(p, shop, func(ctx context.Context, tx pgx.Tx, e participant.Event[tripBooked]) error {
			_, err := tx.Exec(ctx, insert, "each", e.Message.ID, e.Body.CustomerID, e.Body.Email)
			return err
		})
	})
	start("all", func(p *participant.Participant) {
		participant.OnAll(p, []topics.Hop{shop}, func(ctx context.Context, tx pgx.Tx, ms []participant.Taken) error {
			for i, m := range ms {
				var trip tripBooked
				if err := codec.Decode(m.Message, &trip); err != nil {
					return participant.At(i, err)
				}
				if _, err := tx.Exec(ctx, insert, "all", m.Message.ID, trip.CustomerID, trip.Email); err != nil {
					return err
				}
			}
			return nil
		})
	})
	writer := s.codec()
	send := func(from, to int) {
		for i := from; i < to; i++ {
			customer := fmt.Sprintf("c-%d", i%people)
			m := s.encode(writer, tripBooked{CustomerID: customer, Email: customer + "@secret.example", Cents: int64(i)})
			m.Topic, m.Key, m.ID, m.Source = shop.Events(), fmt.Appendf(nil, "o-%d", i%7), envelope.NewID(), "shop"
			require.NoError(t, client.ProduceSync(t.Context(), kafka.Record(m)).FirstErr())
		}
	}
	handled := func(of string, n int) {
		testkit.Wait(t, fmt.Sprintf("%d messages of %s", n, of), func() (bool, error) {
			var is int
			err := s.pool.QueryRow(t.Context(), "SELECT count(*) FROM seen WHERE of = $1", of).Scan(&is)
			return is >= n, err
		})
	}
	send(0, people*each/2)
	handled("each", 10)
	_, err = erasure.Desk{Pool: s.pool}.Erase(t.Context(), erased, ann)
	require.NoError(t, err)
	send(people*each/2, people*each) // the writer has the key for a minute
	handled("each", people*each)
	handled("all", people*each)
	once := func(times int) {
		t.Helper()
		require.Empty(t, list(t, s.pool, "SELECT concat(of, ' ', id, ' ', count(*)) FROM seen GROUP BY of, id HAVING count(*) <> $1", times))
		require.Empty(t, list(t, s.pool, "SELECT customer || ' ' || email FROM seen WHERE email <> customer || '@secret.example' AND (email <> '' OR customer <> $1)", erased))
		require.Empty(t, list(t, s.pool, "SELECT error FROM troupe.dead_letters"))
		require.Empty(t, list(t, s.pool, "SELECT last_error FROM troupe.held"))
	}
	once(1)
	require.NotEmpty(t, list(t, s.pool, "SELECT id FROM seen WHERE customer = $1 AND email <> ''", erased), "some were read before")

	desk := rebuilds.Desk{Pool: s.pool}
	for _, handler := range []string{"each/shop.TripBooked", "all/all"} {
		plan, err := desk.Plan(t.Context(), client, rebuilds.Spec{Handlers: []string{flow + "." + handler}, From: time.Unix(0, 0)})
		require.NoError(t, err)
		_, err = desk.Start(t.Context(), plan, ann)
		require.NoError(t, err)
	}
	handled("each", 2*people*each)
	handled("all", 2*people*each)
	once(2)
	require.Empty(t, list(t, s.pool, "SELECT id FROM (SELECT *, row_number() OVER (PARTITION BY of, id ORDER BY n) AS k FROM seen) AS s WHERE k = 2 AND customer = $1 AND email <> ''", erased))
}
