package payment

import (
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/messages"
)

// react registers the same handlers for the events of other hops.
func (s service) react(f *flow.Service) {
	demo.Reaction[messages.OrderPlaced, messages.ChargePayment, messages.PaymentCharged]{
		From: "order", Handle: s.charge,
		Command: func(o messages.OrderPlaced) messages.ChargePayment {
			return messages.ChargePayment{OrderID: o.OrderID, CustomerID: o.CustomerID, AmountCents: o.AmountCents}
		},
		Complete: func(o messages.OrderPlaced, paid *messages.PaymentCharged) {
			paid.CustomerID, paid.Title, paid.Quantity = o.CustomerID, o.Title, o.Quantity
		},
	}.On(f)
	demo.Reaction[messages.StockRefused, messages.RefundPayment, messages.PaymentRefunded]{
		From: "inventory", Handle: s.refund,
		Command: func(r messages.StockRefused) messages.RefundPayment {
			return messages.RefundPayment{OrderID: r.OrderID}
		},
		Complete: func(r messages.StockRefused, back *messages.PaymentRefunded) {
			back.Reason, back.Compensated = r.Reason, []string{hop}
		},
	}.On(f)
	demo.Reaction[messages.StockReleased, messages.RefundPayment, messages.PaymentRefunded]{
		From: "inventory", Handle: s.refund,
		Command: func(r messages.StockReleased) messages.RefundPayment {
			return messages.RefundPayment{OrderID: r.OrderID}
		},
		Complete: func(r messages.StockReleased, back *messages.PaymentRefunded) {
			back.Reason, back.Compensated = r.Reason, []string{"inventory", hop}
		},
	}.On(f)
}
