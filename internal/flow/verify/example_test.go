package verify_test

import (
	"fmt"

	"github.com/troupe-go/troupe/flow/reactions"
	"github.com/troupe-go/troupe/internal/flow/verify"
)

func ExampleFlow() {
	order := reactions.Service{
		Hop: "order.order", Starts: []reactions.Message{{Topic: "order.order.events", Type: "OrderPlaced"}},
	}
	payment := reactions.Service{
		Hop: "order.payment", Reactions: []reactions.Reaction{{
			On:      reactions.Message{Topic: "order.order.events", Type: "OrderPlaced"},
			Success: []reactions.Message{{Topic: "order.payment.events", Type: "PaymentCharged", Last: true}},
			Failure: []reactions.Message{{Topic: "order.payment.events", Type: "PaymentRefused"}},
		}},
	}
	for _, f := range verify.Flow([]reactions.Service{order, payment}) {
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
