package order

import (
	"slices"

	"github.com/troupe-go/troupe/envelope"
	messages "github.com/troupe-go/troupe/schemas/order"
)

// A step is one hop's part in an order. Its states follow from its name:
//
//	payment_intent             the command has left; the hop's answer is awaited
//	payment_done               the hop did it
//	payment_refused            the hop refused: what the steps before it did is undone, the latest first
//	payment_compensate_intent  the compensation has left; its answer is awaited
//	payment_compensated        it is undone
type step struct {
	hop        string
	forward    func(Order) any
	compensate func(Order) any // nil where no later step can refuse
}

// The flow. A compensation reads what its step's answer left in the order.
var (
	payment = step{
		hop: "payment",
		forward: func(o Order) any {
			return messages.ChargePayment{OrderID: o.ID, CustomerID: o.CustomerID, AmountCents: o.AmountCents}
		},
		compensate: func(o Order) any {
			return messages.RefundPayment{OrderID: o.ID, PaymentID: o.PaymentID, AmountCents: o.AmountCents}
		},
	}
	inventory = step{
		hop: "inventory",
		forward: func(o Order) any {
			return messages.ReserveStock{OrderID: o.ID, Title: o.Title, Quantity: o.Quantity}
		},
		compensate: func(o Order) any {
			return messages.ReleaseStock{OrderID: o.ID, ReservationID: o.ReservationID}
		},
	}
	shipping = step{
		hop: "shipping",
		forward: func(o Order) any {
			return messages.ShipOrder{OrderID: o.ID, CustomerID: o.CustomerID, Title: o.Title, Quantity: o.Quantity}
		},
	}
	steps = []step{payment, inventory, shipping}
)

// The states before the first step and after the last.
const (
	started   = "started"
	completed = "completed" // status completed
	cancelled = "cancelled" // status compensated
)

func (s step) intent() string           { return s.hop + "_intent" }
func (s step) done() string             { return s.hop + "_done" }
func (s step) refused() string          { return s.hop + "_refused" }
func (s step) compensateIntent() string { return s.hop + "_compensate_intent" }
func (s step) compensated() string      { return s.hop + "_compensated" }

// A message is what the process sends: a command to a hop, or to the customer, in the order hop's own events, the end.
type message struct {
	hop       string
	operation string           // commands: forward or compensate
	outcome   envelope.Outcome // the end: success or failure
	body      any
}

// exhausted is the event that a command, or the answer to it, was tried as often as it may be.
type exhausted struct{ step, operation, reason string }

// advance is the process: what event makes of the order, and the one message that follows from it, if any. It is pure
// and may be called again with anything at any time: an event that the order does not wait for (a duplicate, a late one)
// changes nothing, and an order that waits for an answer sends nothing until that has come.
func advance(o Order, event any) (Order, *message) {
	return proceed(record(o, event))
}

// record takes an answer into an order that waits for it.
func record(o Order, event any) Order {
	switch e := event.(type) {
	case messages.PaymentCharged:
		if o.State == payment.intent() {
			o.PaymentID = e.PaymentID
			o = enter(o, payment.done())
		}
	case messages.StockReserved:
		if o.State == inventory.intent() {
			o.ReservationID = e.ReservationID
			o = enter(o, inventory.done())
		}
	case messages.OrderShipped:
		if o.State == shipping.intent() {
			o.ShipmentID = e.ShipmentID
			o = enter(o, shipping.done())
		}
	case messages.PaymentRefused:
		o = refuse(o, payment, e.Reason)
	case messages.StockRefused:
		o = refuse(o, inventory, e.Reason)
	case messages.ShippingRefused:
		o = refuse(o, shipping, e.Reason)
	case messages.StockReleased:
		if o.State == inventory.compensateIntent() {
			o = enter(o, inventory.compensated())
		}
	case messages.PaymentRefunded:
		if o.State == payment.compensateIntent() {
			o = enter(o, payment.compensated())
		}
	case exhausted:
		o = park(o, e)
	}
	return o
}

func refuse(o Order, s step, reason string) Order {
	if o.State != s.intent() {
		return o
	}
	o.Reason = reason
	return enter(o, s.refused())
}

// park leaves the state as it is. An answer that comes after all, because a person had the dead letter tried again,
// takes the order up where it stopped.
func park(o Order, e exhausted) Order {
	if o.Status != Running || !waits(o, e) {
		return o
	}
	o.Status = Parked
	if o.Reason != "" {
		o.Reason += "; then "
	}
	o.Reason += e.reason
	o.passed = append(slices.Clip(o.passed), moment{o.State, o.Status})
	return o
}

// waits says whether what was given up is what the order waits for.
func waits(o Order, e exhausted) bool {
	for _, s := range steps {
		if s.hop == e.step {
			return o.State == s.intent() && e.operation == envelope.Forward ||
				o.State == s.compensateIntent() && e.operation == envelope.Compensate
		}
	}
	return false
}

// proceed goes from a state in which nothing is awaited to the next one in which something is, or to an end.
func proceed(o Order) (Order, *message) {
	if o.State == started {
		return send(o, steps[0])
	}
	for i, s := range steps {
		switch o.State {
		case s.done():
			if i+1 < len(steps) {
				return send(o, steps[i+1])
			}
			return complete(o)
		case s.refused(), s.compensated():
			if i > 0 {
				return undo(o, steps[i-1])
			}
			return cancel(o)
		}
	}
	return o, nil
}

func send(o Order, s step) (Order, *message) {
	return enter(o, s.intent()), &message{hop: s.hop, operation: envelope.Forward, body: s.forward(o)}
}

func undo(o Order, s step) (Order, *message) {
	return enter(o, s.compensateIntent()), &message{hop: s.hop, operation: envelope.Compensate, body: s.compensate(o)}
}

func complete(o Order) (Order, *message) {
	o.Reason = ""
	return enter(o, completed), &message{hop: own, outcome: envelope.Success, body: messages.OrderCompleted{
		OrderID: o.ID, CustomerID: o.CustomerID, AmountCents: o.AmountCents, ShipmentID: o.ShipmentID,
	}}
}

func cancel(o Order) (Order, *message) {
	undone := []string{}
	if o.ReservationID != "" {
		undone = append(undone, inventory.hop)
	}
	if o.PaymentID != "" {
		undone = append(undone, payment.hop)
	}
	return enter(o, cancelled), &message{hop: own, outcome: envelope.Failure, body: messages.OrderCancelled{
		OrderID: o.ID, CustomerID: o.CustomerID, Reason: o.Reason, Compensated: undone,
	}}
}

func enter(o Order, state string) Order {
	o.State, o.Status = state, Running
	switch state {
	case completed:
		o.Status = Completed
	case cancelled:
		o.Status = Compensated
	}
	o.passed = append(slices.Clip(o.passed), moment{o.State, o.Status})
	return o
}
