package explore_test

import (
	"context"
	"fmt"
	"os"

	"github.com/troupe-go/troupe/internal/explore"
	"github.com/troupe-go/troupe/saga"
)

func ExampleExplore() {
	text, err := os.ReadFile("testdata/refunds.saga.json") // the payment's refund is sent to another hop
	if err != nil {
		panic(err)
	}
	d, err := saga.Parse(text)
	if err != nil {
		panic(err)
	}
	r, err := explore.Explore(context.Background(), d, explore.Config{})
	if err != nil {
		panic(err)
	}
	fmt.Println(r.Complete)
	for _, s := range r.Counterexample.Steps {
		fmt.Println(s.From+":", s.Text)
	}
	fmt.Println(r.Counterexample.Problem)
	// Output:
	// false
	// saga: starts {"amount_cents":1,"customer_id":"customer_id-1","order_id":"order_id-1","quantity":1,"title":1}
	// clock: the deadline payment.timeout fires
	// refunds: RefundPayment (payment/compensate): runs, with nothing to undo, answers PaymentRefunded
	// payment: ChargePayment (payment/forward): takes effect, answers PaymentCharged
	// refunds: PaymentRefunded (payment/compensate, success)
	// the saga is compensated, and step payment has taken effect and is not undone
}
