package messages

// ShipOrder is the command to shipping: send an order to its customer.
type ShipOrder struct {
	OrderID    string `avro:"order_id"`
	CustomerID string `avro:"customer_id"`
	Title      int    `avro:"title"` // the number in the catalogue; 32 bits on the wire
	Quantity   int    `avro:"quantity"`
}

// OrderShipped is the success event of shipping: the parcel is on its way.
type OrderShipped struct {
	OrderID    string `avro:"order_id"`
	ShipmentID string `avro:"shipment_id"`
}

// ShippingRefused is the failure event of shipping: it cannot deliver there.
type ShippingRefused struct {
	OrderID string `avro:"order_id"`
	Reason  string `avro:"reason"`
}
