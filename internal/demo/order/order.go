package order

import "time"

// Status is what an order's state comes to.
type Status string

// An order ends once, as completed or as compensated: everything that had been done for it is undone. One that is
// parked waits for a person.
const (
	Running     Status = "running"
	Completed   Status = "completed"
	Compensated Status = "compensated"
	Parked      Status = "parked"
)

// An Order is a row of orders: what the customer asked for, and how far the flow is.
type Order struct {
	ID          string
	CustomerID  string
	PlacedAt    time.Time // a date
	Title       int
	Quantity    int
	AmountCents int64

	State   string // process.go lists them
	Status  Status
	Version int    // of the row as it was read; each moment adds one
	Reason  string // why it is cancelled or parked

	PaymentID     string // the answers, empty until they came
	ReservationID string
	ShipmentID    string

	passed []moment // since the row was read
}

// A moment is an entry of the order's history.
type moment struct {
	state  string
	status Status
}
