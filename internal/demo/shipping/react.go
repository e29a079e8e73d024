package shipping

import (
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/schemas/order"
)

// react registers the same handler for the event of another hop.
func (s service) react(f *flow.Service) {
	demo.Reaction[order.StockReserved, order.ShipOrder, order.OrderShipped]{
		From: "inventory", Does: s.ship,
		Asks: func(r order.StockReserved) order.ShipOrder {
			return order.ShipOrder{OrderID: r.OrderID, CustomerID: r.CustomerID, Title: r.Title, Quantity: r.Quantity}
		},
	}.On(f)
}
