package shipping

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/schemas/order"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

type depot struct {
	t    *testing.T
	pool *pgxpool.Pool
	service
}

func newDepot(t *testing.T) depot {
	t.Helper()
	pool := testkit.Database(t)
	_, err := pool.Exec(t.Context(), schema)
	require.NoError(t, err)
	return depot{t: t, pool: pool}
}

func (d depot) ship(id, customer string) (out participant.Outcome) {
	d.t.Helper()
	require.NoError(d.t, pgx.BeginFunc(d.t.Context(), d.pool, func(tx pgx.Tx) (err error) {
		out, err = d.service.ship(d.t.Context(), tx, participant.Command[order.ShipOrder]{
			Body:    order.ShipOrder{OrderID: id, CustomerID: customer, Title: 7, Quantity: 2},
			Message: envelope.Message{IdempotencyKey: id + "/shipping/forward"},
		})
		return err
	}))
	return out
}

func (d depot) shipments() (n int) {
	d.t.Helper()
	require.NoError(d.t, d.pool.QueryRow(d.t.Context(), "SELECT count(*) FROM shipments").Scan(&n))
	return n
}

func shipped(id string) participant.Outcome {
	return participant.Succeed(order.OrderShipped{OrderID: id, ShipmentID: "shp-" + id})
}

func refused(id, reason string) participant.Outcome {
	return participant.Refuse(order.ShippingRefused{OrderID: id, Reason: reason})
}

func TestWhereNothingCanBeDeliveredIsRefused(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	_, err := d.pool.Exec(t.Context(), "INSERT INTO undeliverable VALUES ('c-2', 'no road')")
	require.NoError(t, err)
	require.Equal(t, shipped("o-1"), d.ship("o-1", "c-1"))
	require.Equal(t, refused("o-2", "cannot deliver: no road"), d.ship("o-2", "c-2"))
	require.Equal(t, 1, d.shipments())
}

func TestADuplicateIsSentOnce(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	require.Equal(t, shipped("o-1"), d.ship("o-1", "c-1"))
	require.Equal(t, shipped("o-1"), d.ship("o-1", "c-1"))
	require.Equal(t, 1, d.shipments())
}

func TestFailRefuses(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	d.cfg = demo.Config{Fail: demo.Fail{"shipping": 1}}
	require.Equal(t, refused("o-1", "lost on the way"), d.ship("o-1", "c-1"))
	require.Zero(t, d.shipments())
}
