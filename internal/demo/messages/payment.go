package messages

// ChargePayment is the command to payment: take the money for an order.
type ChargePayment struct {
	OrderID     string `avro:"order_id"`
	CustomerID  string `avro:"customer_id"`
	AmountCents int64  `avro:"amount_cents"`
}

// PaymentCharged is a success event of payment: the money was taken; 0 for a free order.
type PaymentCharged struct {
	OrderID     string `avro:"order_id"`
	PaymentID   string `avro:"payment_id"`
	AmountCents int64  `avro:"amount_cents"`
	CustomerID  string `avro:"customer_id"` // this and the following fields are for reactions; zero in the answer to a command
	Title       int    `avro:"title"`
	Quantity    int    `avro:"quantity"`
}

// PaymentRefused is the failure event of payment: the business said no.
type PaymentRefused struct {
	OrderID string `avro:"order_id"`
	Reason  string `avro:"reason"`
}

// RefundPayment is the command to payment that compensates ChargePayment: give the money back.
type RefundPayment struct {
	OrderID     string `avro:"order_id"`
	PaymentID   string `avro:"payment_id"`
	AmountCents int64  `avro:"amount_cents"`
}

// PaymentRefunded is a success event of payment: the money was given back.
type PaymentRefunded struct {
	OrderID     string   `avro:"order_id"`
	PaymentID   string   `avro:"payment_id"`
	AmountCents int64    `avro:"amount_cents"`
	Reason      string   `avro:"reason"` // this and the following field are for reactions; zero in the answer to a command
	Compensated []string `avro:"compensated"`
}
