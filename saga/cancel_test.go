package saga_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
)

// cancellable books a flight and a hotel in parallel, waits for an approval, takes the payment, and sends the tickets. A customer or an
// operator may cancel it before the payment.
const cancellable = `{"saga":"trip","version":1,"key":"trip","data":{"trip":"string","ref":"string"},
"steps":[
{"name":"flight","timeout":"10m","command":{"hop":"flight","type":"Book"},"success":[{"event":"Booked","set":{"ref":"event.ref"}}],"failure":[{"event":"Full"}],
"compensation":{"command":{"hop":"flight","type":"Cancel"},"success":[{"event":"Cancelled"}]}},
{"name":"hotel","timeout":"10m","command":{"hop":"hotel","type":"Book"},"success":[{"event":"Booked"}],"failure":[{"event":"Full"}],
"compensation":{"command":{"hop":"hotel","type":"Cancel"},"success":[{"event":"Cancelled"}]}},
{"name":"approval","needs":["flight","hotel"],"timeout":"24h","success":[{"event":"Approved","hop":"desk"}]},
{"name":"payment","needs":["approval"],"command":{"hop":"payment","type":"Capture"},"success":[{"event":"Captured"}],"failure":[{"event":"Refused"}],"timeout":"10m","pivot":true},
{"name":"tickets","needs":["payment"],"command":{"hop":"tickets","type":"Send"},"success":[{"event":"Sent"}],"timeout":"10m","retriable":true}],
"cancel":{"before":"payment","operator":true,
"events":[{"event":"CancelRequested","hop":"customer","when":"!has(event.test) || !event.test","reason":"event.reason"}],
"refused":[{"event":"CancelRefused","failure":true,"input":{"trip":"data.trip"}}]},
"compensated":[{"event":"TripCancelled","failure":true,"input":{"reason":"saga.reason"}}]}`

const (
	tripID = "trip/t-1"
	lockID = `"key":"trip",`
	locked = `"key":"trip","lock":"'all'",`
)

var (
	flightBooked = booked("flight")
	hotelBooked  = sagatest.Success("hotel", "Booked", nil)
	tripApproved = sagatest.Event("desk", "Approved", "t-1", nil)
	wish         = sagatest.Event("customer", "CancelRequested", "t-1", sagatest.Fields{"reason": "ill"})
	flightBack   = sagatest.Success("flight", "Cancelled", nil)
	hotelBack    = sagatest.Success("hotel", "Cancelled", nil)
	cancelFlight = sagatest.Command{Hop: "flight", Type: "Cancel", Operation: "compensate"}
	cancelHotel  = sagatest.Command{Hop: "hotel", Type: "Cancel", Operation: "compensate"}
	tripRefused  = sagatest.Emitted{Type: "CancelRefused", Outcome: "failure", Fields: sagatest.Fields{"trip": "t-1"}}
	byOperator   = saga.Event{Kind: saga.ActCancel, Actor: "ann", Reason: "ticket 4711"}
)

func startCancellable(t testing.TB, replaced ...string) *sagatest.Fixture {
	t.Helper()
	return sagatest.New(t, parse(t, cancellable, replaced...)).WhenStarted("trip", sagatest.Fields{"trip": "t-1"})
}

// In TestACancelCompensatesAsIfAStepWereRefused the hotel, which is booked meanwhile, is waited for and cancelled too.
func TestACancelCompensatesAsIfAStepWereRefused(t *testing.T) {
	t.Parallel()
	f := startCancellable(t).Given(flightBooked)
	f.WhenPublished(wish).ThenStatus(tripID, saga.Compensating).ThenCommands(cancelFlight)
	f.WhenPublished(hotelBooked).ThenCommands(cancelHotel)
	f.WhenPublished(flightBack).ThenStatus(tripID, saga.Compensating)
	f.WhenPublished(hotelBack).ThenEvents(sagatest.Emitted{Type: "TripCancelled", Fields: sagatest.Fields{"reason": "ill"}})
	f.ThenStatus(tripID, saga.Compensated).ThenNoDeadlines()
	require.Equal(t, saga.CancelAccepted, f.State(tripID).Cancel)
	require.Contains(t, f.History(), "CancelAccepted (CancelRequested of customer), SagaCompensating (ill)")
}

func TestACancelOfASagaThatWaitsForAnEventCancelsItsDeadline(t *testing.T) {
	t.Parallel()
	f := startCancellable(t).Given(flightBooked, hotelBooked)
	f.WhenPublished(wish).ThenCommands(cancelHotel, cancelFlight).ThenNoDeadlines()
	f.WhenPublished(tripApproved).ThenNoCommands()
	f.Given(flightBack, hotelBack)
	require.Equal(t, saga.Compensated, f.State(tripID).Status)
}

func TestACancelThatComesTooLateIsRefusedOnceAndTheSagaGoesOn(t *testing.T) {
	t.Parallel()
	f := startCancellable(t).Given(flightBooked, hotelBooked, tripApproved)
	f.WhenPublished(wish).ThenEvents(tripRefused).ThenStatus(tripID, saga.Running)
	require.Equal(t, saga.CancelRefused, f.State(tripID).Cancel)
	require.Contains(t, f.History(), "CancelRefused (CancelRequested: the pivot payment has begun)")
	f.WhenPublished(wish).ThenNoEvents()
	f.WhenPublished(sagatest.Success("payment", "Captured", nil)).ThenCommands(sagatest.Command{Type: "Send"})
	f.WhenActs(tripID, byOperator).ThenRefused("the cancel comes too late: the pivot payment has begun")
	f.WhenPublished(sagatest.Success("tickets", "Sent", nil)).ThenStatus(tripID, saga.Completed)
}

func TestAnOperatorCancelsWhereTheDefinitionSaysSo(t *testing.T) {
	t.Parallel()
	f := startCancellable(t).Given(flightBooked)
	f.WhenActs(tripID, byOperator).ThenCommands(cancelFlight).ThenStatus(tripID, saga.Compensating)
	require.Equal(t, "ticket 4711", f.State(tripID).Reason)
	f.WhenActs(tripID, byOperator).ThenRefused("it is being compensated already")
	f.WhenPublished(wish).ThenNoCommands()
	f.Given(sagatest.Failure("hotel", "Full", nil), flightBack)
	require.Equal(t, saga.Compensated, f.State(tripID).Status)
	f.WhenActs(tripID, byOperator).ThenRefused("the saga has ended: compensated")

	for _, f := range []*sagatest.Fixture{startTrip(t), startCancellable(t, `"operator":true,`, "")} {
		f.WhenActs(tripID, byOperator).ThenRefused("the definition declares no cancel by an operator")
		require.Equal(t, saga.Running, f.State(tripID).Status)
	}
}

func TestASagaThatWaitsForItsLockIsCancelledAtOnce(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"event", "operator"} {
		f := startCancellable(t, lockID, locked).WhenStarted("trip", sagatest.Fields{"trip": "t-2"}).ThenStatus("trip/t-2", saga.Waiting)
		f.WhenStarted("trip", sagatest.Fields{"trip": "t-3"}).ThenStatus("trip/t-3", saga.Waiting)
		if second := wish; by == "event" {
			second.Key = "t-2"
			f.WhenPublished(second)
		} else {
			f.WhenActs("trip/t-2", byOperator)
		}
		f.ThenStatus("trip/t-2", saga.Compensated).ThenNoCommands().ThenEvents(sagatest.Emitted{Saga: "trip/t-2", Type: "TripCancelled"})
		f.Given(flightBooked, hotelBooked, wish, hotelBack, flightBack)
		f.WhenTimePasses(time.Second).ThenStatus("trip/t-3", saga.Running)
	}
}

func TestACancelThatComesBeforeItsSagaIsAppliedAtTheStart(t *testing.T) {
	t.Parallel()
	f := sagatest.New(t, parse(t, cancellable)).Given(wish)
	f.WhenStarted("trip", sagatest.Fields{"trip": "t-1"}).ThenStatus(tripID, saga.Compensating)
	f.WhenPublished(flightBooked).ThenCommands(cancelFlight)
	f.Given(sagatest.Failure("hotel", "Full", nil), flightBack)
	require.Equal(t, saga.Compensated, f.State(tripID).Status)
}

func TestACancelOfASagaThatHasEndedIsIgnored(t *testing.T) {
	t.Parallel()
	f := startCancellable(t).Given(sagatest.Failure("flight", "Full", nil), sagatest.Failure("hotel", "Full", nil))
	f.WhenPublished(wish).ThenNoEvents().ThenStatus(tripID, saga.Compensated)
	require.Empty(t, f.State(tripID).Cancel)
	require.Contains(t, f.History(), "is ignored: the saga has ended: compensated")
}

func TestACancelWhoseConditionDoesNotHoldIsNone(t *testing.T) {
	t.Parallel()
	f := startCancellable(t)
	trial := sagatest.Event("customer", "CancelRequested", "t-1", sagatest.Fields{"test": true})
	f.WhenPublished(trial).ThenStatus(tripID, saga.Running)
	other := wish
	other.Key = "t-2"
	f.WhenPublished(other).ThenStatus(tripID, saga.Running)
}

// In TestAParkedSagaIsCancelled the hop of the hotel has given up: its dead letter may still be redriven, so the hotel is cancelled too.
func TestAParkedSagaIsCancelled(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"event", "operator"} {
		f := startCancellable(t).Given(flightBooked, sagatest.Exhausted("hotel", "bug"))
		if by == "event" {
			f.WhenPublished(wish)
		} else {
			f.WhenActs(tripID, byOperator)
		}
		f.ThenCommands(cancelHotel, cancelFlight).ThenStatus(tripID, saga.Compensating)
	}
}

// In TestASagaThatAnOperatorMustResumeIsCancelledWhenItIsResumed a deadline has parked the saga: an event cancels it, but only an
// operator resumes it.
func TestASagaThatAnOperatorMustResumeIsCancelledWhenItIsResumed(t *testing.T) {
	t.Parallel()
	park := []string{`"cancel":`, `"deadlines":[{"name":"look","after":"1h","then":"park"}],"cancel":`}
	f := startCancellable(t, park...).Given(flightBooked, hotelBooked)
	f.WhenTimePasses(time.Hour).ThenStatus(tripID, saga.Parked)
	f.WhenPublished(wish).ThenStatus(tripID, saga.Parked).ThenNoCommands()
	require.Equal(t, saga.CancelAccepted, f.State(tripID).Cancel)
	f.WhenActs(tripID, saga.Event{Kind: saga.ActResume, Actor: "ann", Reason: "looked"}).ThenCommands(cancelHotel, cancelFlight)

	f = startCancellable(t, park...).Given(flightBooked, hotelBooked)
	f.WhenTimePasses(time.Hour)
	f.WhenActs(tripID, byOperator).ThenCommands(cancelHotel, cancelFlight).ThenStatus(tripID, saga.Compensating)
}

// A step that is skipped closes the cancel as one that begins: the steps behind it may begin at once.
func TestNoCancelIsAcceptedOnceItsStepWasSkipped(t *testing.T) {
	t.Parallel()
	f := startCancellable(t, `"before":"payment"`, `"before":"approval"`, `"name":"approval",`, `"name":"approval","when":"data.ref == ''",`,
		`"needs":["approval"]`, `"needs":["approval","flight"],"join":"merge"`, `"pivot":true`, `"irreversible":"the bank pays back"`)
	f.Given(flightBooked, hotelBooked)
	f.WhenPublished(wish).ThenEvents(tripRefused).ThenStatus(tripID, saga.Running)
	require.Contains(t, f.History(), "step approval was skipped")
}

func TestWithoutAPivotASagaIsCancelledUntilItEnds(t *testing.T) {
	t.Parallel()
	f := startCancellable(t, `"before":"payment",`, "", `"pivot":true`, `"irreversible":"the bank pays back"`,
		`"refused":[{"event":"CancelRefused","failure":true,"input":{"trip":"data.trip"}}]`, `"refused":[]`)
	f.Given(flightBooked, hotelBooked, tripApproved, sagatest.Success("payment", "Captured", nil))
	f.WhenPublished(wish).ThenStatus(tripID, saga.Compensating).ThenNoCommands()
	f.WhenPublished(sagatest.Success("tickets", "Sent", nil)).ThenCommands(cancelHotel, cancelFlight)
}

// While the saga goes back, a pivot that runs may still be done. Then the saga goes forward, so a cancel is refused.
func TestACancelIsRefusedWhileAPivotRunsThoughTheSagaGoesBack(t *testing.T) {
	t.Parallel()
	f := startCancellable(t, lockID, `"key":"trip","timeout":"1h",`).Given(flightBooked, hotelBooked)
	f.WhenTimePasses(55 * time.Minute)
	f.Given(tripApproved)
	f.WhenTimePasses(5*time.Minute).ThenStatus(tripID, saga.Compensating)
	f.WhenPublished(wish).ThenEvents(tripRefused).ThenStatus(tripID, saga.Compensating)
	f.WhenPublished(sagatest.Success("payment", "Captured", nil)).ThenStatus(tripID, saga.Running)
}

// A cancel whose condition fails, and one whose refusal cannot be built, change nothing: the event becomes a dead letter.
func TestACancelThatCannotBeDecidedIsADeadLetter(t *testing.T) {
	t.Parallel()
	d := parse(t, cancellable, `!has(event.test) || !event.test`, "event.n > 1")
	begun := saga.Event{Kind: saga.Started, Fields: map[string]any{"trip": "t-1"}}
	cancel := saga.Event{Kind: saga.Observed, Hop: "customer", Type: "CancelRequested", Fields: map[string]any{}}
	s, fx := history(t, d, begun, cancel)
	require.Contains(t, fx.Refused, "cancel: CancelRequested: when:")
	require.Equal(t, saga.Running, s.Status)

	d = parse(t, cancellable, `"input":{"trip":"data.trip"}`, `"input":{"ref":"data.ref"}`, `"set":{"ref":"event.ref"}`, `"when":"true"`)
	answered := func(step, typ string) saga.Event { return answer(step, "forward", "success", typ, nil) }
	approved := saga.Event{Kind: saga.Observed, Hop: "desk", Type: "Approved"}
	s, fx = history(t, d, begun, answered("flight", "Booked"), answered("hotel", "Booked"), approved, cancel)
	require.Contains(t, fx.Refused, "CancelRequested comes too late, and the event that refuses it cannot be built: ref:")
	require.Empty(t, s.Cancel)
	require.Equal(t, saga.Running, s.Status)
}

func TestAMovedSagaIsCancelledAsItsNewDefinitionSays(t *testing.T) {
	t.Parallel()
	without, with := parse(t, cancellable, `"cancel":`, `"deadlines":[],"ends":[],"cancel":`, `"operator":true,`, ""), parse(t, cancellable)
	begun := saga.Event{Kind: saga.Started, Fields: map[string]any{"trip": "t-1"}}
	s, _ := history(t, without, begun)
	_, fx := saga.Decide(without, s, byOperator, time.Now())
	require.NotEmpty(t, fx.Refused)
	s, err := saga.Migrate(without, with, s)
	require.NoError(t, err)
	s, fx = saga.Decide(with, s, byOperator, time.Now())
	require.Empty(t, fx.Refused)
	require.Equal(t, saga.CancelAccepted, s.Cancel)
	s, err = saga.Migrate(with, without, s) // an accepted cancel stays accepted
	require.NoError(t, err)
	require.Equal(t, saga.CancelAccepted, s.Cancel)
	require.True(t, s.Back)

	reads := parse(t, cancellable, `"set":{"ref":"event.ref"}`, `"set":{"ref":"event.ref","more":"event.more"}`, `"ref":"string"`, `"ref":"string","more":"string"`,
		`"input":{"trip":"data.trip"}`, `"input":{"more":"data.more"}`)
	s, _ = history(t, with, begun, answer("flight", "forward", "success", "Booked", map[string]any{"ref": "f"}))
	_, err = saga.Migrate(with, reads, s)
	require.ErrorContains(t, err, "cancel reads data.more, which has no value and is set by step flight, which was done before it moved")
}

func TestMistakesInACancelNameTheirLines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ was, is, want string }{
		{`"before":"payment",`, "\n\"before\":\"pay\",", `line 11: cancel.before: there is no step "pay"`},
		{`"operator":true,`, "\n\"colour\":true,", `unknown field "colour"`},
		{`"hop":"customer",`, "", "cancel.events[0].hop: want the hop whose event it is"},
		{`"event":"CancelRequested","hop":"customer"`, `"event":"Approved","hop":"desk"`, "line 11: cancel.events[0]: step approval expects Approved of desk"},
		{`"event":"CancelRequested","hop":"customer"`, `"event":"Booked","hop":"hotel"`, "line 11: cancel.events[0]: step hotel expects Booked of hotel"},
		{`"reason":"event.reason"}`, `"reason":"event.reason","set":{"ref":"event.ref"}}`, "cancel.events[0].set: a cancel sets no variables"},
		{`"reason":"event.reason"}`, `"by":{"variable":"ref","field":"ref"}}`, "cancel.events[0].by: a cancel finds its saga by the key only"},
		{`"reason":"event.reason"}`, `"reason":"data.nothing"}`, "line 11: cancel.events[0].reason:"},
		{`{"trip":"data.trip"}`, `{"trip":"data.tripp"}`, "line 12: cancel.refused[0].input.trip:"},
		{`"steps":[`, `"start":[{"hop":"customer","event":"CancelRequested","set":{"trip":"event.trip"}}],"steps":[`,
			"cancel.events[0]: CancelRequested of customer starts the saga"},
	} {
		text := strings.NewReplacer(c.was, c.is).Replace(cancellable)
		_, err := saga.Parse([]byte(text))
		require.ErrorContains(t, err, c.want)
	}
	for _, c := range []struct{ cancel, want string }{
		{`{}`, "cancel: nothing can cancel the saga: want events or operator"},
		{`{"operator":true,"refused":[{"event":"No"}]}`, "cancel.refused: only an event is refused with an event: want events"},
		{`{"events":[{"event":"E","hop":"customer"}],"refused":[{"event":"No"}]}`, "cancel.refused: no cancel comes too late: there is no pivot, and no before"},
	} {
		_, err := saga.Parse([]byte(`{"saga":"s","version":1,"key":"id","data":{"id":"string"},"cancel":` + c.cancel + `}`))
		require.ErrorContains(t, err, c.want)
	}
}
