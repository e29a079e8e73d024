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

// A view is the response of GET /orders/{id}.
type view struct {
	OrderID       string     `json:"order_id"`
	CustomerID    string     `json:"customer_id"`
	PlacedAt      string     `json:"placed_at"`
	Title         int        `json:"title"`
	Quantity      int        `json:"quantity"`
	Amount        string     `json:"amount"`
	SagaID        string     `json:"saga_id,omitempty"` // empty in a choreography, like the version and the history
	State         string     `json:"state"`             // the running steps, or the end
	Status        string     `json:"status"`            // the saga's
	Version       int        `json:"version"`
	Reason        *string    `json:"reason,omitempty"` // why the order is compensated or parked
	PaymentID     *string    `json:"payment_id,omitempty"`
	ReservationID *string    `json:"reservation_id,omitempty"`
	ShipmentID    *string    `json:"shipment_id,omitempty"`
	CreatedAt     time.Time  `json:"created_at"`
	EndedAt       *time.Time `json:"ended_at,omitempty"`
	History       []entry    `json:"history"`
}

// An entry is one event in the saga's history.
type entry struct {
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	What    string    `json:"what"` // StepStarted, StepCompleted, …
	Step    string    `json:"step,omitempty"`
	Why     string    `json:"why,omitempty"`
}

// readView reads order and saga in one snapshot. The error of an unknown order wraps pgx.ErrNoRows.
func readView(ctx context.Context, pool *pgxpool.Pool, id string) (view, error) {
	v := view{OrderID: id}
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, pool, snapshot, func(tx pgx.Tx) error {
		var placedAt time.Time
		var cents int64
		err := tx.QueryRow(ctx, viewSQL, pgx.NamedArgs{"order_id": id}).Scan(
			&v.CustomerID, &placedAt, &v.Title, &v.Quantity, &cents, &v.SagaID, &v.State, &v.Status, &v.Version, &v.Reason,
			&v.PaymentID, &v.ReservationID, &v.ShipmentID, &v.CreatedAt, &v.EndedAt)
		if err != nil {
			return err
		}
		v.PlacedAt, v.Amount = placedAt.Format(time.DateOnly), demo.Decimal(cents)
		rows, err := tx.Query(ctx, historySQL, pgx.NamedArgs{"saga_id": v.SagaID})
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
