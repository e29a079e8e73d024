// Package messages contains the messages of the order flow: order → payment → inventory → shipping. Commands ask a hop to act;
// each answers with a success event or with a refusal. Without a coordinator there are no commands: each hop reacts to
// the events of others, which then say what the next one needs to know.
//
// The .avsc files are the contract and carry the documentation of every field; the structs are what Go code uses. The
// order's id is the key of every message. Amounts are cents.
package messages

import (
	"embed"

	"github.com/troupe-go/troupe/schemas"
)

//go:embed *.avsc
var files embed.FS

// Types binds every message of the flow to its schema.
func Types() []schemas.Type {
	return []schemas.Type{
		bind[ChargePayment]("ChargePayment"),
		bind[PaymentCharged]("PaymentCharged"),
		bind[PaymentRefused]("PaymentRefused"),
		bind[RefundPayment]("RefundPayment"),
		bind[PaymentRefunded]("PaymentRefunded"),
		bind[ReserveStock]("ReserveStock"),
		bind[StockReserved]("StockReserved"),
		bind[StockRefused]("StockRefused"),
		bind[ReleaseStock]("ReleaseStock"),
		bind[StockReleased]("StockReleased"),
		bind[ShipOrder]("ShipOrder"),
		bind[OrderShipped]("OrderShipped"),
		bind[ShippingRefused]("ShippingRefused"),
		bind[OrderPlaced]("OrderPlaced"),
		bind[OrderCompleted]("OrderCompleted"),
		bind[OrderCancelled]("OrderCancelled"),
		bind[OrderLate]("OrderLate"),
	}
}

// bind takes the file of that name. A missing one gives an empty schema, which schemas.New refuses.
func bind[T any](name string) schemas.Type {
	avsc, _ := files.ReadFile(name + ".avsc")
	return schemas.Bind[T](string(avsc))
}

// OrderPlaced is the event of order that begins a flow without a coordinator. It has the order's data, and the events that follow it
// copy the fields that later services need, so that no service queries another.
type OrderPlaced struct {
	OrderID     string `avro:"order_id"`
	CustomerID  string `avro:"customer_id"`
	AmountCents int64  `avro:"amount_cents"`
	Title       int    `avro:"title"` // the number in the catalogue; 32 bits on the wire
	Quantity    int    `avro:"quantity"`
}

// OrderLate is the event of order that says that such a flow has not ended in time. It may still end.
type OrderLate struct {
	OrderID string `avro:"order_id"`
	Reason  string `avro:"reason"`
}

// OrderCompleted is the event of order that notifies the customer: paid and sent.
type OrderCompleted struct {
	OrderID     string `avro:"order_id"`
	CustomerID  string `avro:"customer_id"`
	AmountCents int64  `avro:"amount_cents"`
	ShipmentID  string `avro:"shipment_id"`
}

// OrderCancelled is the event of order that notifies the customer: all steps that were done are compensated.
type OrderCancelled struct {
	OrderID     string   `avro:"order_id"`
	CustomerID  string   `avro:"customer_id"`
	Reason      string   `avro:"reason"`
	Compensated []string `avro:"compensated"` // the hops undone, in the order in which that happened
}
