package order

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

var (
	//go:embed schema.sql
	schema string
	//go:embed sql/insert_order.sql
	insertSQL string
	//go:embed sql/select_order.sql
	selectSQL string
	//go:embed sql/find_key.sql
	findKeySQL string
)

// insertOrder writes an order. It returns false if an order with its id or its idempotency key exists; of two concurrent requests one
// waits for the other.
func insertOrder(ctx context.Context, tx pgx.Tx, o Order, idempotencyKey string) (bool, error) {
	tag, err := tx.Exec(ctx, insertSQL, pgx.NamedArgs{
		"order_id": o.ID, "customer_id": o.CustomerID, "placed_at": o.PlacedAt, "title": o.Title, "quantity": o.Quantity,
		"amount_cents": o.AmountCents, "idempotency_key": orNull(idempotencyKey),
	})
	if err != nil {
		return false, fmt.Errorf("insert order %s: %w", o.ID, err)
	}
	return tag.RowsAffected() == 1, nil
}

// readOrder returns the order. The error of an unknown order wraps pgx.ErrNoRows.
func readOrder(ctx context.Context, tx pgx.Tx, id string) (Order, error) {
	var o Order
	err := tx.QueryRow(ctx, selectSQL, pgx.NamedArgs{"order_id": id}).Scan(
		&o.ID, &o.CustomerID, &o.PlacedAt, &o.Title, &o.Quantity, &o.AmountCents)
	if err != nil {
		return Order{}, fmt.Errorf("read order %s: %w", id, err)
	}
	return o, nil
}

// findKey returns the id of the order that was placed with the idempotency key, or "".
func findKey(ctx context.Context, tx pgx.Tx, idempotencyKey string) (id string, err error) {
	err = tx.QueryRow(ctx, findKeySQL, pgx.NamedArgs{"idempotency_key": idempotencyKey}).Scan(&id)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("find idempotency key: %w", err)
	}
	return id, nil
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
