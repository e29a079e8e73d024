package saga_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
)

// trip books a flight, a hotel and a car, of which two must succeed, and then takes the payment. The reminder ends with the hotel.
func trip(t testing.TB) *saga.Definition {
	t.Helper()
	book := func(name string) string {
		return fmt.Sprintf(`{"name":%q,"optional":true,"timeout":"10m",
"command":{"hop":%[1]q,"type":"Book"},"success":[{"event":"Booked","set":{"%[1]s_ref":"event.ref"}}],"failure":[{"event":"Full"}],
"compensation":{"command":{"hop":%[1]q,"type":"Cancel"},"success":[{"event":"Cancelled"}]}},`, name)
	}
	return parse(t, `{"saga":"trip","version":1,"key":"trip","data":{"trip":"string","flight_ref":"string","hotel_ref":"string","car_ref":"string"},
"deadlines":[{"name":"remind","after":"1h","until":["hotel"],"emit":[{"event":"Remind"}]}],
"steps":[`+book("flight")+book("hotel")+book("car")+`
{"name":"payment","needs":["flight","hotel","car"],"atLeast":2,"pivot":true,
"command":{"hop":"payment","type":"Capture","input":{"car":"has(data.car_ref) ? data.car_ref : ''"}},
"success":[{"event":"Captured"}],"failure":[{"event":"PaymentRefused"}]}]}`)
}

func startTrip(t testing.TB) *sagatest.Fixture {
	t.Helper()
	return sagatest.New(t, trip(t)).WhenStarted("trip", sagatest.Fields{"trip": "t-1"})
}

func booked(hop string) sagatest.Message {
	return sagatest.Success(hop, "Booked", sagatest.Fields{"ref": hop + "-1"})
}

// late is the answer of a hop to whose step a compensation was sent meanwhile.
func late(hop string) sagatest.Message {
	m := booked(hop)
	m.Operation = "forward"
	return m
}

func full(hop string) sagatest.Message { return sagatest.Failure(hop, "Full", nil) }

func TestASagaGoesOnWithoutAnOptionalStepThatIsRefused(t *testing.T) {
	f := startTrip(t)
	f.WhenPublished(full("car")).ThenStatus("trip/t-1", saga.Running)
	f.Given(booked("flight"))
	f.WhenPublished(booked("hotel")).ThenCommands(sagatest.Command{Type: "Capture", Fields: sagatest.Fields{"car": ""}})
	f.WhenPublished(sagatest.Success("payment", "Captured", nil)).ThenStatus("trip/t-1", saga.Completed).ThenNoDeadlines()
}

func TestAQuorumThatCannotBeReachedSendsTheSagaBack(t *testing.T) {
	f := startTrip(t)
	f.Given(booked("flight"))
	f.WhenPublished(full("hotel")).ThenStatus("trip/t-1", saga.Running)
	f.WhenPublished(full("car")).ThenCommands(sagatest.Command{Hop: "flight", Type: "Cancel"})
	f.WhenPublished(sagatest.Success("flight", "Cancelled", nil)).ThenStatus("trip/t-1", saga.Compensated).ThenNoDeadlines()
	require.Equal(t, "fewer than 2 of flight, hotel, car succeeded", f.State("trip/t-1").Reason)
}

// In TestAQuorumWaitsForTheStepsThatRun the car, which may still succeed, is waited for, and compensated with the flight.
func TestAQuorumWaitsForTheStepsThatRun(t *testing.T) {
	f := startTrip(t)
	f.Given(booked("flight"))
	f.WhenPublished(booked("hotel")).ThenCommands()
	f.WhenPublished(booked("car")).ThenCommands(sagatest.Command{Type: "Capture", Fields: sagatest.Fields{"car": "car-1"}})
	f.WhenPublished(sagatest.Failure("payment", "PaymentRefused", nil))
	f.ThenCommands(sagatest.Command{Hop: "car", Type: "Cancel"}, sagatest.Command{Hop: "hotel", Type: "Cancel"}, sagatest.Command{Hop: "flight", Type: "Cancel"})
}

// In TestAnOptionalStepThatTimesOutIsCompensatedAndItsLateAnswerIsNotUsed the hotel answers after its time: the saga has gone on
// without it, so the booking is cancelled and its reference is not stored.
func TestAnOptionalStepThatTimesOutIsCompensatedAndItsLateAnswerIsNotUsed(t *testing.T) {
	f := startTrip(t)
	f.Given(booked("flight"), booked("car"))
	f.WhenTimePasses(10 * time.Minute)
	f.ThenCommands(sagatest.Command{Hop: "hotel", Type: "Cancel"}, sagatest.Command{Type: "Capture"})
	f.WhenPublished(late("hotel")).ThenNoCommands()
	require.NotContains(t, f.State("trip/t-1").Data, "hotel_ref")
	f.WhenPublished(sagatest.Success("payment", "Captured", nil))
	f.ThenStatus("trip/t-1", saga.Running) // it waits until the hotel is cancelled
	f.WhenPublished(sagatest.Success("hotel", "Cancelled", nil)).ThenStatus("trip/t-1", saga.Completed).ThenNoDeadlines()
	require.True(t, f.State("trip/t-1").Steps[1].Tolerated)
}

func TestAnOptionalStepThatItsHopGivesUpIsCompensated(t *testing.T) {
	f := startTrip(t)
	f.WhenPublished(sagatest.Exhausted("car", "the server answers 503")).ThenCommands(sagatest.Command{Hop: "car", Type: "Cancel"})
	f.ThenStatus("trip/t-1", saga.Running)
}

func TestACompensationOfAnOptionalStepThatFailsParksTheSaga(t *testing.T) {
	f := startTrip(t)
	f.Given(booked("flight"), booked("car"))
	f.WhenTimePasses(10 * time.Minute)
	f.WhenPublished(sagatest.Exhausted("hotel", "the server answers 503")).ThenStatus("trip/t-1", saga.Parked)
	f.WhenActs("trip/t-1", action(saga.ActRetry, "hotel")).ThenCommands(sagatest.Command{Hop: "hotel", Type: "Cancel"})
	f.ThenStatus("trip/t-1", saga.Running)
}

// In TestWithoutACompensationALateSuccessOfAnOptionalStepIsKept the gift wrap has no compensation.
func TestWithoutACompensationALateSuccessOfAnOptionalStepIsKept(t *testing.T) {
	d := parse(t, `{"saga":"gift","version":1,"key":"id","data":{"id":"string","paper":"string"},"steps":[
{"name":"wrap","optional":true,"timeout":"1m","irreversible":"paper is cheap",
"command":{"hop":"wrap","type":"Wrap"},"success":[{"event":"Wrapped","set":{"paper":"event.paper"}}],"failure":[{"event":"NoPaper"}]},
{"name":"ship","needs":["wrap"],"command":{"hop":"ship","type":"Ship"},"success":[{"event":"Shipped"}],"failure":[{"event":"NotShipped"}]}]}`)
	for outcome, status := range map[string]saga.Status{"Shipped": saga.Completed, "NotShipped": saga.Compensated} {
		for _, late := range []bool{true, false} {
			f := sagatest.New(t, d).WhenStarted("gift", sagatest.Fields{"id": "g-1"})
			f.WhenTimePasses(time.Minute).ThenCommands(sagatest.Command{Type: "Ship"})
			if late {
				f.WhenPublished(sagatest.Success("wrap", "Wrapped", sagatest.Fields{"paper": "red"}))
				require.Equal(t, "red", f.State("gift/g-1").Data["paper"])
				require.False(t, f.State("gift/g-1").Steps[0].Tolerated)
			}
			answer := sagatest.Success
			if outcome == "NotShipped" {
				answer = sagatest.Failure
			}
			f.WhenPublished(answer("ship", outcome, nil)).ThenStatus("gift/g-1", status)
		}
	}
}

func TestAnOptionalEventThatDoesNotComeInTimeIsToleratedAndEndsItsReminder(t *testing.T) {
	d := parse(t, `{"saga":"gift","version":1,"key":"id","data":{"id":"string"},
"deadlines":[{"name":"remind","after":"2h","until":["card"],"emit":[{"event":"Remind"}]}],
"steps":[{"name":"card","optional":true,"timeout":"1h","success":[{"event":"CardWritten","hop":"desk"}]},
{"name":"ship","needs":["card"],"command":{"hop":"ship","type":"Ship"},"success":[{"event":"Shipped"}]}]}`)
	f := sagatest.New(t, d).WhenStarted("gift", sagatest.Fields{"id": "g-1"})
	f.WhenTimePasses(time.Hour).ThenCommands(sagatest.Command{Type: "Ship"}).ThenNoDeadlines()
}

func TestAStepThatTheSagaWentOnWithoutIsNotActedOn(t *testing.T) {
	f := startTrip(t)
	f.Given(full("car"))
	for _, kind := range []saga.Kind{saga.ActRetry, saga.ActSkip, saga.ActResolve} {
		_, fx := saga.Decide(trip(t), f.State("trip/t-1"), action(kind, "car"), noon)
		require.Equal(t, "step car is optional, and the saga has gone on without it", fx.Refused)
	}
}

// In TestAnEndWaitsForTheCompensationOfAnOptionalStep an end and a deadline that complete the saga wait until the hotel is
// cancelled, for its cancellation may fail.
func TestAnEndWaitsForTheCompensationOfAnOptionalStep(t *testing.T) {
	for name, with := range map[string]string{
		"an end":     `"ends":[{"when":"data.enough","then":"complete"}],`,
		"a deadline": `"deadlines":[{"name":"over","after":"2m","then":"complete"}],`,
	} {
		t.Run(name, func(t *testing.T) {
			d := parse(t, `{"saga":"gift","version":1,"key":"id","data":{"id":"string","enough":"bool"},`+with+`"steps":[
{"name":"hotel","optional":true,"timeout":"1m","command":{"hop":"hotel","type":"Book"},"success":[{"event":"Booked"}],
"compensation":{"command":{"hop":"hotel","type":"Cancel"},"success":[{"event":"Cancelled"}]}},
{"name":"more","success":[{"event":"Enough","hop":"desk","set":{"enough":"event.enough"}}]},
{"name":"never","needs":["more"],"success":[{"event":"Never","hop":"desk"}]}]}`)
			f := sagatest.New(t, d).WhenStarted("gift", sagatest.Fields{"id": "g-1"})
			f.WhenTimePasses(time.Minute).ThenCommands(sagatest.Command{Type: "Cancel"})
			f.WhenPublished(sagatest.Event("desk", "Enough", "g-1", sagatest.Fields{"enough": true}))
			f.WhenTimePasses(time.Hour).ThenStatus("gift/g-1", saga.Running)
			f.WhenPublished(sagatest.Success("hotel", "Cancelled", nil)).ThenStatus("gift/g-1", saga.Completed).ThenNoDeadlines()
		})
	}
}

// In TestAPivotThatIsDoneWhileTheSagaGoesBackKeepsItForward the compensation of an optional step, sent before, does not count as
// one that was sent because the saga goes back.
func TestAPivotThatIsDoneWhileTheSagaGoesBackKeepsItForward(t *testing.T) {
	f := startTrip(t)
	f.Given(booked("flight"), booked("car"))
	f.WhenTimePasses(10*time.Minute).ThenCommands(sagatest.Command{Hop: "hotel", Type: "Cancel"}, sagatest.Command{Type: "Capture"})
	f.WhenActs("trip/t-1", action(saga.ActCompensate, "")).ThenStatus("trip/t-1", saga.Compensating)
	f.WhenPublished(sagatest.Success("payment", "Captured", nil)).ThenStatus("trip/t-1", saga.Running)
	f.WhenPublished(sagatest.Success("hotel", "Cancelled", nil)).ThenStatus("trip/t-1", saga.Completed)
}

func TestAnOptionalQuorumSkipsNothingThatFollows(t *testing.T) {
	d := parse(t, `{"saga":"gift","version":1,"key":"id","data":{"id":"string"},"steps":[
{"name":"a","optional":true,"command":{"hop":"a","type":"A"},"success":[{"event":"ADone"}],"irreversible":"no"},
{"name":"both","needs":["a"],"atLeast":1,"optional":true,"command":{"hop":"b","type":"B"},"success":[{"event":"BDone"}],"irreversible":"no"},
{"name":"c","needs":["both"],"command":{"hop":"c","type":"C"},"success":[{"event":"CDone"}],"irreversible":"no"}]}`)
	f := sagatest.New(t, d).WhenStarted("gift", sagatest.Fields{"id": "g-1"})
	f.WhenPublished(sagatest.Failure("a", "No", nil)).ThenCommands(sagatest.Command{Type: "C"})
}

func TestAQuorumThatIsMissedBehindThePivotIsLeftToAPerson(t *testing.T) {
	d := parse(t, `{"saga":"gift","version":1,"key":"id","data":{"id":"string"},"steps":[
{"name":"pay","pivot":true,"command":{"hop":"pay","type":"Pay"},"success":[{"event":"Paid"}]},
{"name":"a","needs":["pay"],"optional":true,"command":{"hop":"a","type":"A"},"success":[{"event":"ADone"}],"irreversible":"no"},
{"name":"b","needs":["a"],"atLeast":1,"command":{"hop":"b","type":"B"},"success":[{"event":"BDone"}],"irreversible":"no"}]}`)
	f := sagatest.New(t, d).WhenStarted("gift", sagatest.Fields{"id": "g-1"})
	f.WhenPublished(sagatest.Success("pay", "Paid", nil))
	f.WhenPublished(sagatest.Failure("a", "No", nil)).ThenStatus("gift/g-1", saga.Parked)
	_, fx := saga.Decide(d, f.State("gift/g-1"), action(saga.ActRetry, "b"), noon)
	require.Contains(t, fx.Refused, "skip it")
	f.WhenActs("gift/g-1", action(saga.ActSkip, "b")).ThenStatus("gift/g-1", saga.Completed)
}

func TestAnOptionalStepOrAQuorumThatCannotWorkIsRefused(t *testing.T) {
	send := `"command":{"hop":"a","type":"A"},"success":[{"event":"ADone"}],`
	for _, c := range []struct{ steps, wrong string }{
		{`{"name":"a","optional":true}`, `"a" waits for nothing, and cannot fail`},
		{`{"name":"a",` + send + `"optional":true,"pivot":true}`, `"a" is the pivot, which the saga cannot go on without`},
		{`{"name":"a",` + send + `"optional":true,"exhausted":"compensate"}`, `remove exhausted`},
		{`{"name":"a",` + send + `"atLeast":1}`, "1: want 1 to 0"},
		{`{"name":"a",` + send + `"irreversible":"no"},{"name":"b","needs":["a"],"atLeast":-1}`, "-1: want 1 to 1"},
		{`{"name":"a",` + send + `"irreversible":"no"},{"name":"b","needs":["a"],"atLeast":1,"join":"first"}`, `"b" has a join: want one of the two`},
	} {
		_, err := saga.Parse([]byte(`{"saga":"x","version":1,"key":"id","data":{"id":"string"},"steps":[` + c.steps + `]}`))
		var mistakes saga.Mistakes
		require.True(t, errors.As(err, &mistakes), "%s: %v", c.steps, err)
		require.Contains(t, err.Error(), c.wrong)
	}
}

func TestASagaDoesNotMoveToWhereAStepItWentOnWithoutIsNeeded(t *testing.T) {
	f := startTrip(t)
	f.Given(full("car"))
	spec := trip(t).Spec()
	spec.Version, spec.Steps = 2, append([]saga.Step(nil), spec.Steps...)
	spec.Steps[2].Optional = false
	to, err := saga.Define(spec)
	require.NoError(t, err)
	_, err = saga.Migrate(trip(t), to, f.State("trip/t-1"))
	require.ErrorContains(t, err, "step car has failed, and is not optional any more")
}
