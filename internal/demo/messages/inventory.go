package messages

// ReserveStock is the command to inventory: set stock aside for an order.
type ReserveStock struct {
	OrderID  string `avro:"order_id"`
	Title    int    `avro:"title"` // the number in the catalogue; 32 bits on the wire
	Quantity int    `avro:"quantity"`
}

// StockReserved is a success event of inventory: the stock is set aside.
type StockReserved struct {
	OrderID       string `avro:"order_id"`
	ReservationID string `avro:"reservation_id"`
	Title         int    `avro:"title"`
	Quantity      int    `avro:"quantity"`
	CustomerID    string `avro:"customer_id"` // for reactions; empty in the answer to a command
}

// StockRefused is the failure event of inventory: there is not enough of the title.
type StockRefused struct {
	OrderID string `avro:"order_id"`
	Reason  string `avro:"reason"`
}

// ReleaseStock is the command to inventory that compensates ReserveStock: release the reservation.
type ReleaseStock struct {
	OrderID       string `avro:"order_id"`
	ReservationID string `avro:"reservation_id"`
}

// StockReleased is a success event of inventory: the stock is back.
type StockReleased struct {
	OrderID       string `avro:"order_id"`
	ReservationID string `avro:"reservation_id"`
	Reason        string `avro:"reason"` // for reactions; empty in the answer to a command
}
