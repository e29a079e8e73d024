package inventory

import (
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/schemas/order"
)

// react registers the same handlers for the events of other hops.
func (s service) react(f *flow.Service) {
	demo.Reaction[order.PaymentCharged, order.ReserveStock, order.StockReserved]{
		From: "payment", Does: s.reserve,
		Asks: func(p order.PaymentCharged) order.ReserveStock {
			return order.ReserveStock{OrderID: p.OrderID, Title: p.Title, Quantity: p.Quantity}
		},
		Tells: func(p order.PaymentCharged, reserved *order.StockReserved) { reserved.CustomerID = p.CustomerID },
	}.On(f)
	demo.Reaction[order.ShippingRefused, order.ReleaseStock, order.StockReleased]{
		From: "shipping", Does: s.release,
		Asks: func(r order.ShippingRefused) order.ReleaseStock {
			return order.ReleaseStock{OrderID: r.OrderID, ReservationID: reservationID(r.OrderID)}
		},
		Tells: func(r order.ShippingRefused, released *order.StockReleased) { released.Reason = r.Reason },
	}.On(f)
}
