package verify_test

import (
	"fmt"
	"time"

	"github.com/troupe-go/troupe/internal/saga/verify"
	"github.com/troupe-go/troupe/saga"
)

func ExampleDefinition() {
	d, err := saga.Define(saga.Spec{
		Saga: "order", Version: 1, Key: "order_id", Data: map[string]saga.Type{"order_id": saga.String},
		Steps: []saga.Step{{
			Name:    "payment",
			Command: &saga.Command{Hop: "payment", Type: "ChargePayment"},
			Success: []saga.Answer{{Event: "PaymentCharged"}},
			Failure: []saga.Answer{{Event: "PaymentRefused"}},
			Timeout: saga.Duration(30 * time.Second),
			Retry: &saga.Retry{
				Attempts: 3, Initial: saga.Duration(500 * time.Millisecond), Cap: saga.Duration(time.Minute), Try: saga.Duration(10 * time.Second),
			},
		}},
	})
	if err != nil {
		panic(err)
	}
	for _, f := range verify.Definition(d, verify.Options{}) {
		fmt.Println(f)
	}
	// Output:
	// error: timeout-below-retries: steps[0].timeout: payment has 30s, and its 3 tries of 10s with their waits may take 31.5s; allow at least that, or try less
}

func ExampleJSON() {
	text := []byte(`{
  "saga": "order",
  "version": 1,
  "key": "order_id",
  "data": {"order_id": "string"},
  "steps": [
    {
      "name": "payment",
      "command": {"hop": "payment", "type": "ChargePayment"},
      "success": [{"event": "PaymentCharged"}],
      "retriable": true
    }
  ]
}`)
	_, found := verify.JSON(text, verify.Options{})
	for _, f := range found {
		fmt.Printf("line %d: %s: %s\n", f.Line, f.Rule, f.Text)
	}
	// Output:
	// line 7: no-timeout: payment may wait for ever: give it a time-out, or the saga
}

func ExampleTogether() {
	define := func(timeout time.Duration) *saga.Definition {
		d, err := saga.Define(saga.Spec{
			Saga: "order", Version: 1, Key: "order_id", Data: map[string]saga.Type{"order_id": saga.String}, Timeout: saga.Duration(timeout),
		})
		if err != nil {
			panic(err)
		}
		return d
	}
	for _, found := range verify.Together([]*saga.Definition{define(time.Hour), define(time.Minute)}) {
		fmt.Println(found)
	}
	// Output:
	// []
	// [error: same-version: version: order v1 is another definition elsewhere; count the version up]
}
