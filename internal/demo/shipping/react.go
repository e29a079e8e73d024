package shipping

import (
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/messages"
)

// react registers the same handler for the event of another hop.
func (s service) react(f *flow.Service) {
	demo.Reaction[messages.StockReserved, messages.ShipOrder, messages.OrderShipped]{
		From: "inventory", Handle: s.ship,
		Command: func(r messages.StockReserved) messages.ShipOrder {
			return messages.ShipOrder{OrderID: r.OrderID, CustomerID: r.CustomerID, Title: r.Title, Quantity: r.Quantity}
		},
	}.On(f)
}
