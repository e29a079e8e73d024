package saga_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
)

// chargeThenShip starts a saga with a payment whose success sets payment_id, and whose refusal sets code.
func chargeThenShip(t *testing.T, timeout string) *sagatest.Fixture {
	d, err := saga.Parse([]byte(strings.Replace(`{
 "saga":"order","version":1,"key":"id","data":{"id":"string","payment_id":"string","code":"int"},
 "steps":[
  {"name":"payment","command":{"hop":"payment","type":"Charge"},TIMEOUT
   "success":[{"event":"Charged","set":{"payment_id":"event.payment_id"}}],"failure":[{"event":"Refused","set":{"code":"event.code"}}],
   "compensation":{"command":{"hop":"payment","type":"Refund"},"success":[{"event":"Refunded"}]}},
  {"name":"shipping","needs":["payment"],"command":{"hop":"shipping","type":"Ship","input":{"payment":"data.payment_id"}},
   "success":[{"event":"Shipped"}],"failure":[{"event":"ShipRefused"}],"timeout":"10m","pivot":true}
 ]}`, "TIMEOUT", timeout, 1)))
	require.NoError(t, err)
	return sagatest.New(t, d).WhenStarted("order", sagatest.Fields{"id": "o-1"})
}

func action(k saga.Kind, step string) saga.Event {
	return saga.Event{Kind: k, Step: step, Actor: "ann", Reason: "looked it up", Happened: true}
}

func TestAnAnswerThatCannotBeStoredLeavesItsStepToAPerson(t *testing.T) {
	renamed := sagatest.Success("payment", "Charged", sagatest.Fields{"paymentId": "p-1"})
	for _, timeout := range []string{"", `"timeout":"10m",`} {
		parked := func(m sagatest.Message) *sagatest.Fixture {
			f := chargeThenShip(t, timeout).WhenPublished(m)
			f.ThenStatus("order/o-1", saga.Parked)
			require.Equal(t, saga.GivenUp, f.State("order/o-1").Steps[0].Phase)
			f.WhenTimePasses(time.Hour)
			f.ThenStatus("order/o-1", saga.Parked)
			return f
		}
		t.Run("retry"+timeout, func(t *testing.T) {
			f := parked(renamed).WhenActs("order/o-1", action(saga.ActRetry, "payment"))
			f.ThenCommands(sagatest.Command{Type: "Charge"})
			f.WhenPublished(sagatest.Success("payment", "Charged", sagatest.Fields{"payment_id": "p-1"}))
			f.ThenCommands(sagatest.Command{Type: "Ship"})
		})
		for _, k := range []saga.Kind{saga.ActSkip, saga.ActResolve} {
			t.Run(string(k)+timeout, func(t *testing.T) {
				e := action(k, "payment")
				e.Fields = map[string]any{"payment_id": "p-1"}
				f := parked(renamed).WhenActs("order/o-1", e)
				f.ThenCommands(sagatest.Command{Type: "Ship", Fields: sagatest.Fields{"payment": "p-1"}})
			})
		}
		t.Run("compensate"+timeout, func(t *testing.T) {
			f := parked(renamed).WhenActs("order/o-1", action(saga.ActCompensate, ""))
			f.ThenCommands(sagatest.Command{Type: "Refund"})
			f.WhenPublished(sagatest.Success("payment", "Refunded", nil)).ThenStatus("order/o-1", saga.Compensated)
		})
		t.Run("a refusal"+timeout, func(t *testing.T) {
			f := parked(sagatest.Failure("payment", "Refused", sagatest.Fields{"code": "none"}))
			e := action(saga.ActResolve, "payment")
			e.Happened = false
			f.WhenActs("order/o-1", e).ThenStatus("order/o-1", saga.Compensated)
		})
	}
}

func TestAnAwaitedEventThatCannotBeStoredLeavesItsStepToAPerson(t *testing.T) {
	d, err := saga.Parse([]byte(`{
 "saga":"order","version":1,"key":"id","timeout":"100h","data":{"id":"string","n":"int"},
 "steps":[
  {"name":"ok","success":[{"event":"Approved","hop":"desk","set":{"n":"event.n"}}]},
  {"name":"b","needs":["ok"],"command":{"hop":"b","type":"B"},"success":[{"event":"BDone"}],"failure":[{"event":"BNo"}],"timeout":"3h","pivot":true}
 ]}`))
	require.NoError(t, err)
	parked := func() *sagatest.Fixture {
		f := sagatest.New(t, d).WhenStarted("order", sagatest.Fields{"id": "o-1"})
		f.WhenPublished(sagatest.Event("desk", "Approved", "o-1", sagatest.Fields{"n": "7"}))
		f.ThenStatus("order/o-1", saga.Parked)
		return f
	}
	e := action(saga.ActSkip, "ok")
	e.Fields = map[string]any{"n": 7}
	parked().WhenActs("order/o-1", e).ThenCommands(sagatest.Command{Type: "B"})
	parked().WhenActs("order/o-1", action(saga.ActCompensate, "")).ThenStatus("order/o-1", saga.Compensated)
	approved := func(n any) sagatest.Message {
		return sagatest.Event("desk", "Approved", "o-1", sagatest.Fields{"n": n})
	}
	f := parked().WhenPublished(approved("8")).ThenStatus("order/o-1", saga.Parked)
	f.WhenPublished(approved(8)).ThenCommands(sagatest.Command{Type: "B"}).ThenData("order/o-1", sagatest.Fields{"id": "o-1", "n": 8})
}

// TestAPersonDecidesOnAnUnusableEventIfThePivotIsDone has a refusal that cannot be stored while the pivot runs. An operator compensates the
// saga, and then the pivot is done: the saga goes forward, and the refused step is not taken for one that is done.
func TestAPersonDecidesOnAnUnusableEventIfThePivotIsDone(t *testing.T) {
	d := parse(t, `{
 "saga":"order","version":1,"key":"id","data":{"id":"string","code":"int"},
 "steps":[
  {"name":"approval","success":[{"event":"Approved","hop":"desk"}],"failure":[{"event":"Declined","hop":"desk","set":{"code":"event.code"}}]},
  {"name":"payment","command":{"hop":"payment","type":"Charge"},"success":[{"event":"Charged"}],"failure":[{"event":"Refused"}],"pivot":true},
  {"name":"shipping","needs":["approval","payment"],"command":{"hop":"shipping","type":"Ship"},"success":[{"event":"Shipped"}],"retriable":true}
 ]}`)
	compensating := func() *sagatest.Fixture {
		f := sagatest.New(t, d).WhenStarted("order", sagatest.Fields{"id": "o-1"})
		f.WhenPublished(sagatest.Event("desk", "Declined", "o-1", sagatest.Fields{"code": "too much"})).ThenStatus("order/o-1", saga.Parked)
		return f.WhenActs("order/o-1", action(saga.ActCompensate, "")).ThenStatus("order/o-1", saga.Compensating)
	}
	compensating().WhenPublished(sagatest.Failure("payment", "Refused", nil)).ThenStatus("order/o-1", saga.Compensated)
	f := compensating().WhenPublished(sagatest.Success("payment", "Charged", nil)).ThenStatus("order/o-1", saga.Parked)
	f.ThenNoCommands()
	f.WhenActs("order/o-1", action(saga.ActSkip, "approval")).ThenCommands(sagatest.Command{Type: "Ship"})
}
