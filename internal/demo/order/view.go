package order

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/demo"
)

var (
	//go:embed sql/select_view.sql
	viewSQL string
	//go:embed sql/select_history.sql
	historySQL string
)

// A view is an order as GET /orders/{id} shows it.
type view struct {
	OrderID       string     `json:"order_id"`
	CustomerID    string     `json:"customer_id"`
	PlacedAt      string     `json:"placed_at"`
	Title         int        `json:"title"`
	Quantity      int        `json:"quantity"`
	Amount        string     `json:"amount"`
	State         string     `json:"state"`
	Status        Status     `json:"status"`
	Version       int        `json:"version"`
	Reason        *string    `json:"reason,omitempty"`
	PaymentID     *string    `json:"payment_id,omitempty"`
	ReservationID *string    `json:"reservation_id,omitempty"`
	ShipmentID    *string    `json:"shipment_id,omitempty"`
	CreatedAt     time.Time  `json:"created_at"`
	EndedAt       *time.Time `json:"ended_at,omitempty"`
	History       []entry    `json:"history"`
}

// An entry is one version of the order: the state it came to, and the event that led there.
type entry struct {
	Version int       `json:"version"`
	State   string    `json:"state"`
	Status  Status    `json:"status"`
	Event   string    `json:"event"`
	At      time.Time `json:"at"`
}

// readView reads order and history as of one moment. The error of an unknown order wraps pgx.ErrNoRows.
func readView(ctx context.Context, pool *pgxpool.Pool, id string) (view, error) {
	var v view
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, pool, snapshot, func(tx pgx.Tx) error {
		var placedAt time.Time
		var cents int64
		err := tx.QueryRow(ctx, viewSQL, pgx.NamedArgs{"order_id": id}).Scan(
			&v.OrderID, &v.CustomerID, &placedAt, &v.Title, &v.Quantity, &cents, &v.State, &v.Status, &v.Version,
			&v.Reason, &v.PaymentID, &v.ReservationID, &v.ShipmentID, &v.CreatedAt, &v.EndedAt)
		if err != nil {
			return err
		}
		v.PlacedAt, v.Amount = placedAt.Format(time.DateOnly), demo.Decimal(cents)
		rows, err := tx.Query(ctx, historySQL, pgx.NamedArgs{"order_id": id})
		if err != nil {
			return err
		}
		v.History, err = pgx.CollectRows(rows, pgx.RowToStructByPos[entry])
		return err
	})
	if err != nil {
		return view{}, fmt.Errorf("read order %s: %w", id, err)
	}
	return v, nil
}
