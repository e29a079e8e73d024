package inventory

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/messages"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const title = 7

type warehouse struct {
	t    *testing.T
	pool *pgxpool.Pool
	service
}

// newWarehouse has a stock of 10 of the title.
func newWarehouse(t *testing.T) warehouse {
	t.Helper()
	pool := testkit.Database(t)
	_, err := pool.Exec(t.Context(), schema)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "UPDATE stock SET initial = 10, available = 10 WHERE title = $1", title)
	require.NoError(t, err)
	return warehouse{t: t, pool: pool}
}

func (w warehouse) reserve(id string, title, quantity int) (out participant.Outcome) {
	w.t.Helper()
	require.NoError(w.t, pgx.BeginFunc(w.t.Context(), w.pool, func(tx pgx.Tx) (err error) {
		out, err = w.service.reserve(w.t.Context(), tx, participant.Command[messages.ReserveStock]{
			Body:    messages.ReserveStock{OrderID: id, Title: title, Quantity: quantity},
			Message: envelope.Message{IdempotencyKey: id + "/inventory/forward"},
		})
		return err
	}))
	return out
}

func (w warehouse) release(id string) (out participant.Outcome) {
	w.t.Helper()
	require.NoError(w.t, pgx.BeginFunc(w.t.Context(), w.pool, func(tx pgx.Tx) (err error) {
		out, err = w.service.release(w.t.Context(), tx, participant.Command[messages.ReleaseStock]{
			Body:    messages.ReleaseStock{OrderID: id, ReservationID: "res-" + id},
			Message: envelope.Message{IdempotencyKey: id + "/inventory/compensate"},
		})
		return err
	}))
	return out
}

func (w warehouse) available() (n int) {
	w.t.Helper()
	require.NoError(w.t, w.pool.QueryRow(w.t.Context(), "SELECT available FROM stock WHERE title = $1", title).Scan(&n))
	return n
}

func (w warehouse) reservations() (n int) {
	w.t.Helper()
	require.NoError(w.t, w.pool.QueryRow(w.t.Context(), "SELECT count(*) FROM reservations").Scan(&n))
	return n
}

func reserved(id string, quantity int) participant.Outcome {
	return participant.Succeed(messages.StockReserved{OrderID: id, ReservationID: "res-" + id, Title: title, Quantity: quantity})
}

func released(id string) participant.Outcome {
	return participant.Succeed(messages.StockReleased{OrderID: id, ReservationID: "res-" + id})
}

func refused(id, reason string) participant.Outcome {
	return participant.Refuse(messages.StockRefused{OrderID: id, Reason: reason})
}

func TestOutOfStockIsRefused(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	require.Equal(t, reserved("o-1", 4), w.reserve("o-1", title, 4))
	require.Equal(t, refused("o-2", "out of stock"), w.reserve("o-2", title, 7))
	require.Equal(t, reserved("o-3", 6), w.reserve("o-3", title, 6), "the last ones can be had")
	require.Equal(t, refused("o-4", "out of stock"), w.reserve("o-4", title, 1))
	require.Equal(t, refused("o-5", "out of stock"), w.reserve("o-5", 500, 1), "there is no such title")
	require.Zero(t, w.available())
	require.Equal(t, 2, w.reservations(), "a refusal leaves nothing")

	require.Equal(t, released("o-1"), w.release("o-1"))
	require.Equal(t, reserved("o-6", 4), w.reserve("o-6", title, 4), "released stock can be reserved again")
}

func TestDuplicatesChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	require.Equal(t, reserved("o-1", 4), w.reserve("o-1", title, 4))
	require.Equal(t, reserved("o-1", 4), w.reserve("o-1", title, 4))
	require.Equal(t, 6, w.available())
	require.Equal(t, released("o-1"), w.release("o-1"))
	require.Equal(t, released("o-1"), w.release("o-1"))
	require.Equal(t, 10, w.available())
	require.Equal(t, refused("o-1", "the order was cancelled"), w.reserve("o-1", title, 4))
	require.Equal(t, 10, w.available())
	require.Equal(t, 1, w.reservations())
}

// A compensation that comes before its forward call does nothing, and neither does the forward call after
// it.
func TestAReleaseBeforeItsReservationKeepsItFromBeingMade(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	require.Equal(t, released("o-1"), w.release("o-1"))
	require.Equal(t, refused("o-1", "the order was cancelled"), w.reserve("o-1", title, 4))
	require.Equal(t, 10, w.available())
}

func TestStockIsTakenAndPutBackOnceWhereverThatIsInterrupted(t *testing.T) {
	t.Parallel()
	cfg := testkit.StageConfig{
		Hop: hop, SQL: schema,
		Handlers: func(_ *testkit.Stage, p *participant.Participant) { service{}.register(p) },
	}
	shelf := testkit.Query(`
		SELECT reservation_id, order_id, title, quantity, released_at IS NOT NULL, (SELECT sum(available) FROM stock)
		FROM reservations`)
	reserveOf := func(s *testkit.Stage) envelope.Message {
		return s.Command("o-1", messages.ReserveStock{OrderID: "o-1", Title: title, Quantity: 4})
	}
	t.Run("reserve", func(t *testing.T) {
		t.Parallel()
		testkit.CrashAtEveryStep(t, cfg, reserveOf, shelf)
	})
	t.Run("release", func(t *testing.T) {
		t.Parallel()
		testkit.CrashAtEveryStep(t, cfg, func(s *testkit.Stage) envelope.Message {
			c := reserveOf(s)
			s.Send(c)
			r := testkit.Await[messages.StockReserved](s, c).Body
			return s.Command("o-1", messages.ReleaseStock{OrderID: "o-1", ReservationID: r.ReservationID})
		}, shelf)
	})
}

func TestFailRefuses(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.cfg = demo.Config{Fail: demo.Fail{"inventory": 1}}
	require.Equal(t, refused("o-1", "damaged in the warehouse"), w.reserve("o-1", title, 1))
	require.Equal(t, 10, w.available())
}

func TestEveryStatementFitsTheTables(t *testing.T) {
	t.Parallel()
	conn, err := newWarehouse(t).pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for _, sql := range []string{reserveSQL, releaseSQL, releaseNothingSQL, selectSQL} {
		text, _, err := pgx.NamedArgs{}.RewriteQuery(t.Context(), conn.Conn(), sql, nil)
		require.NoError(t, err)
		_, err = conn.Conn().Prepare(t.Context(), "", text)
		require.NoError(t, err, sql)
	}
	_, err = conn.Exec(t.Context(), schema)
	require.NoError(t, err, "the schema can be applied again")
}
