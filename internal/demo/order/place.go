package order

import (
	"context"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
)

// placeOrder writes a new order and begins its flow in one transaction; nothing of the flow has run when it returns. It does not
// change an order that was placed before: the same order again gives no error, another one a problem.
func (s *service) placeOrder(ctx context.Context, tx pgx.Tx, o Order, idempotencyKey string) error {
	inserted, err := insertOrder(ctx, tx, o, idempotencyKey)
	if err != nil {
		return err
	}
	if inserted {
		return s.begin(ctx, tx, o)
	}
	earlier, refusal := o.ID, problem{
		Status: http.StatusConflict, Field: "order_id",
		Detail: fmt.Sprintf("there is another order %q", o.ID),
	}
	if idempotencyKey != "" {
		id, err := findKey(ctx, tx, idempotencyKey)
		if err != nil {
			return err
		}
		if id != "" {
			earlier, refusal = id, problem{
				Status: http.StatusUnprocessableEntity, Field: "Idempotency-Key",
				Detail: fmt.Sprintf("another order was placed under the key %q", idempotencyKey),
			}
		}
	}
	placed, err := readOrder(ctx, tx, earlier)
	if err != nil {
		return err
	}
	if !same(placed, o) {
		return refusal
	}
	return nil
}

// same reports whether a and b are the same order.
func same(a, b Order) bool {
	return a.ID == b.ID && a.CustomerID == b.CustomerID && a.PlacedAt.Equal(b.PlacedAt) &&
		a.Quantity == b.Quantity && a.AmountCents == b.AmountCents
}
