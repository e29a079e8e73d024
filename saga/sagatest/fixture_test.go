package sagatest_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	letterofcredit "github.com/troupe-go/troupe/examples/letter-of-credit"
	travelbooking "github.com/troupe-go/troupe/examples/travel-booking"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
)

func order(t testing.TB) *saga.Definition {
	t.Helper()
	text, err := os.ReadFile("../testdata/order.saga.json")
	require.NoError(t, err)
	d, err := saga.Parse(text)
	require.NoError(t, err)
	return d
}

var anOrder = sagatest.Fields{"order_id": "o-1", "customer_id": "c-1", "amount_cents": 500, "title": 7, "quantity": 1}

// visit returns a saga that starts by one event and waits for another, with a reminder after ten days.
func visit(t testing.TB) *saga.Definition {
	t.Helper()
	d, err := saga.Define(saga.Spec{
		Saga: "visit", Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String, "room": saga.String, "ok": saga.Bool},
		Start: []saga.Start{{Hop: "desk", Event: "Asked", Set: saga.Mapping{"id": "event.id", "room": "event.room"}}},
		Steps: []saga.Step{
			{Name: "check", Success: []saga.Answer{{
				Event: "RoomChecked", Hop: "house", By: &saga.Association{Variable: "room", Field: "room"}, Set: saga.Mapping{"ok": "event.ok"},
			}}},
			{
				Name: "invite", Needs: []string{"check"}, Command: &saga.Command{Hop: "desk", Type: "Invite", Input: saga.Mapping{"id": "data.id"}},
				Success: []saga.Answer{{Event: "Invited"}}, Failure: []saga.Answer{{Event: "Declined"}},
			},
		},
		Deadlines: []saga.Deadline{{
			Name: "reminder", After: saga.Duration(240 * time.Hour), Payload: saga.Mapping{"room": "data.room"},
			Emit: []saga.Emit{{Event: "Reminded", Input: saga.Mapping{"room": "deadline.room"}}}, Until: []string{"check"},
		}},
		Completed: []saga.Emit{{Event: "Visited"}},
	})
	require.NoError(t, err)
	return d
}

func asked(id, room string) sagatest.Message {
	return sagatest.Event("desk", "Asked", id, sagatest.Fields{"id": id, "room": room})
}

func checked(room string) sagatest.Message {
	return sagatest.Event("house", "RoomChecked", room, sagatest.Fields{"room": room, "ok": true})
}

func TestGivenWhenThen(t *testing.T) {
	t.Parallel()
	f := sagatest.New(t, visit(t)).Given(asked("v-1", "r-1"), asked("v-2", "r-2")).ThenActive(2).ThenNoCommands()
	f.WhenPublished(checked("r-2")).
		ThenCommands(sagatest.Command{Saga: "visit/v-2", Type: "Invite", Fields: sagatest.Fields{"id": "v-2"}}).
		ThenNoEvents().ThenData("visit/v-2", sagatest.Fields{"ok": true})
	f.WhenPublished(sagatest.Success("invite", "Invited", nil)).
		ThenNoCommands().ThenEvents(sagatest.Emitted{Type: "Visited", Outcome: "success"}).
		ThenActive(1).ThenStatus("visit/v-2", saga.Completed).ThenStatus("visit/v-1", saga.Running)
	f.WhenPublished(sagatest.Success("invite", "Invited", nil)).ThenNothing().ThenNoEvents()
}

func TestTimeIsVirtual(t *testing.T) {
	t.Parallel()
	f := sagatest.New(t, visit(t)).Given(asked("v-1", "r-1")).ThenScheduled("reminder", 240*time.Hour)
	f.WhenTimePasses(239*time.Hour).ThenDeadlinesMet().ThenScheduled("reminder", time.Hour)
	f.WhenTimePasses(time.Hour).ThenDeadlinesMet("reminder").ThenNoDeadlines().
		ThenEvents(sagatest.Emitted{Type: "Reminded", Fields: sagatest.Fields{"room": "r-1"}})
}

func TestCancelledDeadlinesDoNotCome(t *testing.T) {
	t.Parallel()
	f := sagatest.New(t, visit(t)).Given(asked("v-1", "r-1"))
	f.WhenPublished(checked("r-1")).ThenNoDeadlines()
	f.WhenTimePasses(1000 * time.Hour).ThenDeadlinesMet().ThenNoEvents().ThenActive(1)
}

func TestStartedByACallAndUndone(t *testing.T) {
	t.Parallel()
	f := sagatest.New(t, order(t)).WhenStarted("order", anOrder)
	f.ThenCommands(sagatest.Command{Step: "payment", Operation: "forward"}).ThenScheduled("payment.timeout", 10*time.Minute)
	f.WhenPublished(
		sagatest.Success("payment", "PaymentCharged", sagatest.Fields{"payment_id": "p-1"}),
		sagatest.Success("inventory", "StockReserved", sagatest.Fields{"reservation_id": "r-1"}),
	).ThenCommands(sagatest.Command{Step: "inventory"}, sagatest.Command{Step: "shipping"})
	f.WhenPublished(sagatest.Failure("shipping", "ShippingRefused", sagatest.Fields{"reason": "no road"})).
		ThenCommands(sagatest.Command{Step: "inventory", Operation: "compensate", Type: "ReleaseStock"}).
		ThenStatus("order/o-1", saga.Compensating)
	f.WhenPublished(sagatest.Success("inventory", "StockReleased", nil)).
		ThenCommands(sagatest.Command{Step: "payment", Operation: "compensate", Fields: sagatest.Fields{
			"order_id": "o-1", "payment_id": "p-1", "amount_cents": 500,
		}})
	f.WhenPublished(sagatest.Success("payment", "PaymentRefunded", nil)).ThenEvents(sagatest.Emitted{
		Saga: "order/o-1", Type: "OrderCancelled", Outcome: "failure", Fields: sagatest.Fields{
			"order_id": "o-1", "customer_id": "c-1", "reason": "no road", "compensated": []string{"inventory", "payment"},
		},
	}).ThenStatus("order/o-1", saga.Compensated)
}

func TestAPersonActs(t *testing.T) {
	t.Parallel()
	f := sagatest.New(t, order(t)).WhenStarted("order", anOrder).
		WhenPublished(sagatest.Exhausted("payment", "the bank is away")).ThenStatus("order/o-1", saga.Parked).ThenActive(1)
	f.WhenActs("order/o-1", saga.Event{Kind: saga.ActResolve, Step: "inventory"}).ThenRefused("only a step in doubt can be resolved")
	f.WhenActs("order/o-1", saga.Event{Kind: saga.ActSkip, Step: "payment", Fields: sagatest.Fields{"payment_id": "by hand"}}).
		ThenCommands(sagatest.Command{Step: "inventory"}).ThenData("order/o-1", sagatest.Fields{"payment_id": "by hand"})
}

// failing is a testing.TB whose test may fail, for tests of the fixture's checks.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// said returns the message with which do fails.
func said(t *testing.T, do func(t testing.TB)) string {
	t.Helper()
	f := &failing{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		do(f)
	}()
	<-ended
	require.NotEmpty(t, f.said, "it should have failed")
	return f.said
}

func TestAFailedAssertionPrintsTheActualMessages(t *testing.T) {
	t.Parallel()
	started := func(t testing.TB) *sagatest.Fixture {
		return sagatest.New(t, visit(t)).WhenPublished(asked("v-1", "r-1"))
	}
	for want, do := range map[string]func(f *sagatest.Fixture){
		"  - Invite": func(f *sagatest.Fixture) { f.ThenCommands(sagatest.Command{Type: "Invite"}) },
		"    visit/v-1 step invite forward to desk Invite {\"id\":\"v-1\"}\n  - Dance": func(f *sagatest.Fixture) {
			f.WhenPublished(checked("r-1")).ThenCommands(sagatest.Command{Type: "Invite"}, sagatest.Command{Type: "Dance"})
		},
		`  - step invite {"id":"v-2"}
  + visit/v-1 step invite forward to desk Invite {"id":"v-1"}`: func(f *sagatest.Fixture) {
			f.WhenPublished(checked("r-1")).ThenCommands(sagatest.Command{Step: "invite", Fields: sagatest.Fields{"id": "v-2"}})
		},
		"  + visit/v-1 Reminded success": func(f *sagatest.Fixture) { f.WhenTimePasses(240 * time.Hour).ThenNoEvents() },
		"  - Visited":                    func(f *sagatest.Fixture) { f.ThenEvents(sagatest.Emitted{Type: "Visited"}) },
		"  - reminder":                   func(f *sagatest.Fixture) { f.ThenDeadlinesMet("reminder") },
		"want the deadline reminder in 1h, there are to come:\n  visit/v-1: reminder in 240h": func(f *sagatest.Fixture) {
			f.ThenScheduled("reminder", time.Hour)
		},
		"want no deadline to come: reminder of visit/v-1 is due in 240h": func(f *sagatest.Fixture) { f.ThenNoDeadlines() },
		"want 2 active sagas, there are 1:\n  visit/v-1 is running":      func(f *sagatest.Fixture) { f.ThenActive(2) },
		"visit/v-1 is running, want parked":                              func(f *sagatest.Fixture) { f.ThenStatus("visit/v-1", saga.Parked) },
		"there is no saga visit/v-9":                                     func(f *sagatest.Fixture) { f.ThenStatus("visit/v-9", saga.Parked) },
		"nothing should have changed, but there changed visit/v-1":       func(f *sagatest.Fixture) { f.ThenNothing() },
		`  - room = {"":"r-2"}`: func(f *sagatest.Fixture) {
			f.ThenData("visit/v-1", sagatest.Fields{"room": "r-2"})
		},
		`should be refused with "no": it was done`: func(f *sagatest.Fixture) {
			f.WhenActs("visit/v-1", saga.Event{Kind: saga.ActAbandon}).ThenRefused("no")
		},
		"no command of step invite was sent that it could answer": func(f *sagatest.Fixture) {
			f.WhenPublished(sagatest.Success("invite", "Invited", nil))
		},
		"variable room is string: it cannot be 7": func(f *sagatest.Fixture) {
			bad := asked("v-2", "")
			bad.Fields["room"] = 7
			f.WhenPublished(bad)
		},
		"time does not go back: -1s":     func(f *sagatest.Fixture) { f.WhenTimePasses(-time.Second) },
		"saga nothing: there is no saga": func(f *sagatest.Fixture) { f.WhenStarted("nothing", nil) },
	} {
		text := said(t, func(t testing.TB) { do(started(t)) })
		require.Contains(t, text, want)
		require.Contains(t, text, "what happened:\n        0s  message from desk Asked key v-1", "the history")
		require.Contains(t, text, "visit/v-1: started ─► running SagaStarted, StepStarted check")
	}
	bad := func(t testing.TB) { sagatest.New(t, visit(t), visit(t)) }
	require.Contains(t, said(t, bad), "two definitions of saga visit")
}

// TestExploreComesToAll plays random histories of four definitions. Two sagas of one definition share locks and stashed events, which
// package explore does not search.
func TestExploreComesToAll(t *testing.T) {
	t.Parallel()
	approvals, err := letterofcredit.Definitions()
	require.NoError(t, err)
	trip, err := travelbooking.Definition()
	require.NoError(t, err)
	for _, defs := range [][]*saga.Definition{{order(t)}, {visit(t)}, approvals, {trip}} {
		reached := sagatest.Explore(t, 300, 7, defs...)
		for _, d := range defs {
			for _, st := range d.Spec().Steps {
				of := d.Spec().Saga + "/" + st.Name + "/"
				require.True(t, reached[of+string(saga.Done)], of)
				require.True(t, reached[of+string(saga.Undone)] || st.Compensation == nil || st.Optional, of)
				require.True(t, reached[of+string(saga.Refused)] || len(st.Failure) == 0 || st.Optional, of)
			}
		}
	}
}

func TestExploreFindsASagaThatCannotEnd(t *testing.T) {
	t.Parallel()
	spec := visit(t).Spec()
	spec.Steps[0].Success[0].When = "1 > 2"
	d, err := saga.Define(spec)
	require.NoError(t, err)
	text := said(t, func(t testing.TB) { sagatest.Explore(t, 50, 7, d) })
	require.Contains(t, text, "all is answered, but not every saga has ended or is parked: visit/k-")
	require.Contains(t, text, "of seed 7)")
}
