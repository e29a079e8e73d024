package order

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// newService is the service without its way to Kafka: what it sends stays in the outbox, as JSON.
func newService(t *testing.T) *service {
	t.Helper()
	pool := testkit.Database(t)
	_, err := pool.Exec(t.Context(), schema)
	require.NoError(t, err)
	out, err := outbox.New(outbox.Config{Source: own})
	require.NoError(t, err)
	return &service{cfg: demo.Config{Flow: "order"}, pool: pool, out: out, log: testkit.Logger(t)}
}

func newOrder(id string) Order {
	o := begin()
	o.ID, o.PlacedAt, o.Title = id, time.Date(1997, 1, 31, 0, 0, 0, 0, time.UTC), title(id)
	return o
}

func (s *service) mustPlace(t *testing.T, o Order) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error { return s.place(t.Context(), tx, o, "") }))
}

func (s *service) mustTake(t *testing.T, id string, events ...any) {
	t.Helper()
	for _, e := range events {
		require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			return s.take(t.Context(), tx, id, e, "event")
		}))
	}
}

// sent is an entry of the outbox, as far as these tests ask.
type sent struct {
	Topic, Key, Type        string
	Outcome, IdempotencyKey string
	Step, Operation         string
}

func readOutbox(t *testing.T, pool *pgxpool.Pool) []sent {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		SELECT topic, key, type, coalesce(headers->>'ce_outcome', ''), coalesce(headers->>'ce_idempotencykey', ''),
		       coalesce(headers->>'ce_sagastep', ''), coalesce(headers->>'ce_sagaoperation', '')
		FROM troupe.outbox ORDER BY position`)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[sent])
	require.NoError(t, err)
	return all
}

func (s *service) mustRead(t *testing.T, id string) (o Order) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) (err error) {
		o, err = read(t.Context(), tx, id)
		return err
	}))
	return o
}
