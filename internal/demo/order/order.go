package order

import "time"

// An Order is an order that a customer placed: a row of orders.
type Order struct {
	ID          string
	CustomerID  string
	PlacedAt    time.Time // a date
	Title       int
	Quantity    int
	AmountCents int64
}

// data returns the variables that the order's saga starts with.
func (o Order) data() map[string]any {
	return map[string]any{
		"order_id": o.ID, "customer_id": o.CustomerID, "amount_cents": o.AmountCents, "title": o.Title, "quantity": o.Quantity,
	}
}
