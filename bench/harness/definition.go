package harness

import _ "embed"

// OrderSaga is the definition of the order flow's saga: payment, inventory, shipping.
//
//go:embed order.saga.json
var OrderSaga []byte
