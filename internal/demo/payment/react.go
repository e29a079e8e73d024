package payment

import (
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/schemas/order"
)

// react registers the same handlers for the events of other hops.
func (s service) react(f *flow.Service) {
	demo.Reaction[order.OrderPlaced, order.ChargePayment, order.PaymentCharged]{
		From: "order", Does: s.charge,
		Asks: func(o order.OrderPlaced) order.ChargePayment {
			return order.ChargePayment{OrderID: o.OrderID, CustomerID: o.CustomerID, AmountCents: o.AmountCents}
		},
		Tells: func(o order.OrderPlaced, paid *order.PaymentCharged) {
			paid.CustomerID, paid.Title, paid.Quantity = o.CustomerID, o.Title, o.Quantity
		},
	}.On(f)
	demo.Reaction[order.StockRefused, order.RefundPayment, order.PaymentRefunded]{
		From: "inventory", Does: s.refund,
		Asks: func(r order.StockRefused) order.RefundPayment { return order.RefundPayment{OrderID: r.OrderID} },
		Tells: func(r order.StockRefused, back *order.PaymentRefunded) {
			back.Reason, back.Compensated = r.Reason, []string{hop}
		},
	}.On(f)
	demo.Reaction[order.StockReleased, order.RefundPayment, order.PaymentRefunded]{
		From: "inventory", Does: s.refund,
		Asks: func(r order.StockReleased) order.RefundPayment { return order.RefundPayment{OrderID: r.OrderID} },
		Tells: func(r order.StockReleased, back *order.PaymentRefunded) {
			back.Reason, back.Compensated = r.Reason, []string{"inventory", hop}
		},
	}.On(f)
}
