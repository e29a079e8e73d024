package travelbooking_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	travelbooking "github.com/troupe-go/troupe/examples/travel-booking"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
)

func definition(t testing.TB) *saga.Definition {
	t.Helper()
	d, err := travelbooking.Definition()
	require.NoError(t, err)
	return d
}

func planned(t testing.TB) *sagatest.Fixture {
	t.Helper()
	return sagatest.New(t, definition(t)).WhenStarted("trip", sagatest.Fields{"trip": "t-1", "cents": 90_000})
}

var (
	flight    = sagatest.Success("flight", "FlightBooked", sagatest.Fields{"ref": "f-1"})
	hotel     = sagatest.Success("hotel", "HotelBooked", sagatest.Fields{"ref": "h-1"})
	hotelFull = sagatest.Failure("hotel", "HotelFull", nil)
	noCar     = sagatest.Failure("car", "NoCar", nil)
	approved  = sagatest.Event("desk", "TripApproved", "t-1", nil)
	captured  = sagatest.Success("payment", "PaymentCaptured", nil)
)

func TestTheDefinitionHasNoFinding(t *testing.T) {
	t.Parallel()
	sagatest.Verify(t, definition(t))
}

func TestTwoOfThreeBookingsAreEnough(t *testing.T) {
	t.Parallel()
	f := planned(t).Given(flight, hotel)
	f.WhenPublished(noCar).ThenScheduled("approval.timeout", 24*time.Hour).ThenScheduled("remind", 12*time.Hour)
	f.WhenPublished(approved).ThenCommands(sagatest.Command{Type: "CapturePayment", Fields: sagatest.Fields{"trip": "t-1", "cents": 90_000}})
	f.WhenPublished(captured).ThenCommands(sagatest.Command{Type: "Insure"})
	f.WhenPublished(sagatest.Failure("insurance", "NotInsured", nil))
	f.ThenEvents(sagatest.Emitted{Type: "TripBooked", Outcome: "success", Fields: sagatest.Fields{
		"trip": "t-1", "flight": "f-1", "hotel": "h-1", "car": "", "insurance": "",
	}}).ThenNoDeadlines()
}

func TestWithOneBookingTheTripIsCancelled(t *testing.T) {
	t.Parallel()
	f := planned(t).Given(flight, hotelFull)
	f.WhenPublished(noCar).ThenCommands(sagatest.Command{Type: "CancelFlight"})
	f.WhenPublished(sagatest.Success("flight", "FlightCancelled", nil))
	f.ThenEvents(sagatest.Emitted{Type: "TripCancelled", Outcome: "failure", Fields: sagatest.Fields{
		"trip": "t-1", "reason": "fewer than 2 of flight, hotel, car succeeded",
	}}).ThenActive(0)
}

func TestABookingThatComesTooLateIsCancelledAndTheTripGoesOn(t *testing.T) {
	t.Parallel()
	f := planned(t).Given(flight, hotel)
	f.WhenTimePasses(10*time.Minute).ThenCommands(sagatest.Command{Type: "ReturnCar"}).ThenStatus("trip/t-1", saga.Running)
	late := sagatest.Success("car", "CarBooked", sagatest.Fields{"ref": "c-1"})
	late.Operation = "forward"
	f.WhenPublished(late).ThenNoCommands()
	f.WhenPublished(sagatest.Success("car", "CarReturned", nil))
	require.NotContains(t, f.State("trip/t-1").Data, "car_ref")
}

func TestACustomerCancelsTheTripBeforeThePayment(t *testing.T) {
	t.Parallel()
	ill := sagatest.Event("customer", "CancelRequested", "t-1", sagatest.Fields{"reason": "ill"})
	f := planned(t).Given(flight, hotel, noCar)
	f.WhenPublished(ill).ThenCommands(sagatest.Command{Type: "CancelHotel"}, sagatest.Command{Type: "CancelFlight"}).ThenNoDeadlines()
	f.Given(sagatest.Success("hotel", "HotelCancelled", nil))
	f.WhenPublished(sagatest.Success("flight", "FlightCancelled", nil))
	f.ThenEvents(sagatest.Emitted{Type: "TripCancelled", Outcome: "failure", Fields: sagatest.Fields{"trip": "t-1", "reason": "ill"}})

	f = planned(t).Given(flight, hotel, noCar, approved)
	f.WhenPublished(ill).ThenEvents(sagatest.Emitted{Type: "CancelRefused", Outcome: "failure"}).ThenNoCommands()
	f.WhenActs("trip/t-1", saga.Event{Kind: saga.ActCancel, Actor: "ann", Reason: "ill"}).ThenRefused("the pivot payment has begun")
	f.WhenPublished(captured).ThenCommands(sagatest.Command{Type: "Insure"})
}

func TestAfterTwelveHoursThereIsAReminderAndAfterADayTheTripIsCancelled(t *testing.T) {
	t.Parallel()
	f := planned(t).Given(flight, hotel, noCar)
	f.WhenTimePasses(12 * time.Hour).ThenEvents(sagatest.Emitted{Type: "ApprovalReminder"})
	f.WhenTimePasses(12*time.Hour).ThenCommands(sagatest.Command{Type: "CancelHotel"}, sagatest.Command{Type: "CancelFlight"})
}

// In TestOncePaidTheTripIsKept the insurer does not answer: it is asked to cancel, and the trip is booked.
func TestOncePaidTheTripIsKept(t *testing.T) {
	t.Parallel()
	f := planned(t).Given(flight, hotel, noCar, approved, captured)
	f.WhenTimePasses(10*time.Minute).ThenCommands(sagatest.Command{Type: "CancelInsurance"}).ThenStatus("trip/t-1", saga.Running)
	f.WhenPublished(sagatest.Success("insurance", "InsuranceCancelled", nil)).ThenStatus("trip/t-1", saga.Completed)
}

// An operator approves the trip instead of the desk's service, once, or declines it with a reason.
func TestAnOperatorApprovesTheTripOnceAndInTime(t *testing.T) {
	t.Parallel()
	answer := func(event string, fields sagatest.Fields) saga.Event {
		return saga.Event{Kind: saga.ActAnswer, Step: "approval", Type: event, Fields: fields, Actor: "ann", Reason: "ticket 7"}
	}
	f := planned(t).Given(flight, hotel, noCar)
	f.WhenActs("trip/t-1", answer("TripDeclined", nil)).ThenRefused("reason: want a value of type string")
	f.WhenActs("trip/t-1", answer("TripApproved", nil)).ThenCommands(sagatest.Command{Type: "CapturePayment"})
	f.WhenActs("trip/t-1", answer("TripDeclined", sagatest.Fields{"reason": "too late"})).ThenRefused("answered before, with TripApproved")
	f.WhenPublished(approved).ThenNoCommands()

	f = planned(t).Given(flight, hotel, noCar)
	f.WhenActs("trip/t-1", answer("TripDeclined", sagatest.Fields{"reason": "too expensive"}))
	f.ThenCommands(sagatest.Command{Type: "CancelHotel"}, sagatest.Command{Type: "CancelFlight"})
	f.Given(sagatest.Success("hotel", "HotelCancelled", nil)).WhenPublished(sagatest.Success("flight", "FlightCancelled", nil))
	f.ThenEvents(sagatest.Emitted{Type: "TripCancelled", Outcome: "failure", Fields: sagatest.Fields{"trip": "t-1", "reason": "too expensive"}})

	f = planned(t).Given(flight, hotel, noCar)
	f.WhenTimePasses(24 * time.Hour)
	f.WhenActs("trip/t-1", answer("TripApproved", nil)).ThenRefused("no answer to step approval came in time")
}
