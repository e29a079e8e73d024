package inventory

import (
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/messages"
)

// react registers the same handlers for the events of other hops.
func (s service) react(f *flow.Service) {
	demo.Reaction[messages.PaymentCharged, messages.ReserveStock, messages.StockReserved]{
		From: "payment", Handle: s.reserve,
		Command: func(p messages.PaymentCharged) messages.ReserveStock {
			return messages.ReserveStock{OrderID: p.OrderID, Title: p.Title, Quantity: p.Quantity}
		},
		Complete: func(p messages.PaymentCharged, reserved *messages.StockReserved) { reserved.CustomerID = p.CustomerID },
	}.On(f)
	demo.Reaction[messages.ShippingRefused, messages.ReleaseStock, messages.StockReleased]{
		From: "shipping", Handle: s.release,
		Command: func(r messages.ShippingRefused) messages.ReleaseStock {
			return messages.ReleaseStock{OrderID: r.OrderID, ReservationID: reservationID(r.OrderID)}
		},
		Complete: func(r messages.ShippingRefused, released *messages.StockReleased) { released.Reason = r.Reason },
	}.On(f)
}
