package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
)

func order(t testing.TB) *saga.Definition {
	t.Helper()
	d, err := saga.Parse(definition)
	require.NoError(t, err)
	return d
}

func TestTheDefinitionIsProved(t *testing.T) {
	t.Parallel()
	sagatest.Verify(t, order(t))
}

// The first step of order.saga.json, in Go. Here the compiler and Define know what the messages are.
func payments() saga.Step {
	codec := envelope.JSONCodec{}
	return saga.Step{
		Name: "payment",
		Command: saga.CommandOf[ChargePayment](codec, "payment", saga.Mapping{
			"order_id": "data.order_id", "cents": "data.cents",
		}),
		Success: []saga.Answer{saga.AnswerOf[PaymentCharged](codec, saga.Answer{Set: saga.Mapping{"payment_id": "event.payment_id"}})},
		Failure: []saga.Answer{saga.AnswerOf[PaymentRefused](codec, saga.Answer{Reason: "event.reason"})},
		Timeout: saga.Duration(2 * time.Minute),
		Retry: &saga.Retry{
			Attempts: 5, Initial: saga.Duration(500 * time.Millisecond),
			Cap: saga.Duration(10 * time.Second), Try: saga.Duration(10 * time.Second),
		},
		Compensation: &saga.Compensation{
			Command: saga.CommandOf[RefundPayment](codec, "payment", saga.Mapping{"order_id": "data.order_id"}),
			Success: []saga.Answer{saga.AnswerOf[PaymentRefunded](codec, saga.Answer{})},
		},
	}
}

func TestGoAndJSONAreOneTree(t *testing.T) {
	t.Parallel()
	spec := order(t).Spec()
	spec.Steps = append([]saga.Step{payments()}, spec.Steps[1:]...)
	d, err := saga.Define(spec)
	require.NoError(t, err)
	require.Equal(t, order(t).Hash(), d.Hash())
}

var anOrder = sagatest.Fields{"order_id": "o-1", "book": 1, "copies": 2, "cents": 3000, "address": "Moon"}

func TestARefusedShipmentIsUndoneInReverse(t *testing.T) {
	f := sagatest.New(t, order(t))
	f.WhenStarted("order", anOrder).ThenCommands(sagatest.Command{Type: "ChargePayment"})
	f.Given(sagatest.Success("payment", "PaymentCharged", sagatest.Fields{"payment_id": "p-1"}))
	f.Given(sagatest.Success("inventory", "StockReserved", nil))
	f.WhenPublished(sagatest.Failure("shipping", "ShippingRefused", sagatest.Fields{"reason": "no carrier to the Moon"}))
	f.ThenCommands(sagatest.Command{Type: "ReleaseStock"})
	f.WhenPublished(sagatest.Success("inventory", "StockReleased", nil))
	f.ThenCommands(sagatest.Command{Type: "RefundPayment", Fields: sagatest.Fields{"order_id": "o-1"}})
	f.WhenPublished(sagatest.Success("payment", "PaymentRefunded", nil))
	f.ThenEvents(sagatest.Emitted{Type: "OrderCancelled", Outcome: "failure"}).ThenActive(0).ThenNoDeadlines()
}

func TestASilentInventoryIsInDoubtAndUndone(t *testing.T) {
	f := sagatest.New(t, order(t))
	f.WhenStarted("order", anOrder)
	f.WhenPublished(sagatest.Success("payment", "PaymentCharged", sagatest.Fields{"payment_id": "p-1"}))
	f.ThenScheduled("inventory.timeout", 10*time.Minute)
	f.WhenTimePasses(10 * time.Minute).ThenCommands(sagatest.Command{Type: "ReleaseStock"})
}
