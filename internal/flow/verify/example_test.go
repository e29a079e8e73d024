package verify_test

import (
	"fmt"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/flow/verify"
)

func ExampleFlow() {
	order := flow.Declaration{
		Hop: "order.order", Starts: []flow.Message{{Topic: "order.order.events", Type: "OrderPlaced"}},
	}
	payment := flow.Declaration{
		Hop: "order.payment", Reactions: []flow.Reaction{{
			On:      flow.Message{Topic: "order.order.events", Type: "OrderPlaced"},
			Success: []flow.Message{{Topic: "order.payment.events", Type: "PaymentCharged", Last: true}},
			Failure: []flow.Message{{Topic: "order.payment.events", Type: "PaymentRefused"}},
		}},
	}
	for _, f := range verify.Flow([]flow.Declaration{order, payment}) {
		fmt.Println(f)
	}
	// Output:
	// error: no-failure-consumer: order.payment reactions[0].failure[0]: no service reacts to PaymentRefused, so that the effects of earlier services remain; let them react and compensate, or mark it last where nothing has to be undone
}

func ExampleFiles() {
	_, found := verify.Files([]verify.File{{Name: "shipping/reactions.json", Text: []byte(`{
  "hop": "order.shipping",
  "reactions": [
    {
      "on": {"topic": "order.inventory.events", "type": "StockReserved"},
      "success": [{"topic": "order.shipping.events", "type": "OrderShipped", "last": true}]
    }
  ]
}`)}})
	for _, f := range found {
		fmt.Printf("%s:%d: %s\n", f.File, f.Line, f.Text)
	}
	// Output:
	// shipping/reactions.json:5: no service sends StockReserved on order.inventory.events, nor anything else; mend the name or the topic, or give it a sender
}
