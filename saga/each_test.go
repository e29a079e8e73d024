package saga_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
)

const flightID = "flight/f-1"

// flight pays, books a seat for each passenger, two at once, and then issues the tickets. each has further fields of the step
// seat.
func flight(t testing.TB, each string) *saga.Definition {
	t.Helper()
	return parse(t, `{"saga":"flight","version":1,"key":"id","data":{"id":"string","passengers":"any","seats":"any"},
"steps":[
{"name":"pay","command":{"hop":"pay","type":"Pay"},"success":[{"event":"Paid"}],"failure":[{"event":"PayRefused"}],
"compensation":{"command":{"hop":"pay","type":"Refund"},"success":[{"event":"Refunded"}]}},
{"name":"seat","needs":["pay"],`+each+`"forEach":{"list":"data.passengers","as":"passenger","max":4,"parallel":2},
"command":{"hop":"seats","type":"BookSeat","input":{"name":"passenger.name","place":"index"}},
"success":[{"event":"SeatBooked","set":{"seats":"event.seat"}}],"failure":[{"event":"SeatRefused","reason":"'no seat for ' + passenger.name"}],
"compensation":{"command":{"hop":"seats","type":"ReleaseSeat","input":{"name":"passenger.name","seat":"data.seats[index]"}},
"success":[{"event":"SeatReleased"}]}},
{"name":"ticket","needs":["seat"],"pivot":true,"command":{"hop":"tickets","type":"Issue","input":{"seats":"data.seats"}},
"success":[{"event":"Issued"}],"failure":[{"event":"IssueRefused"}]}]}`)
}

func startFlight(t testing.TB, each string, names ...string) *sagatest.Fixture {
	t.Helper()
	passengers := []any{}
	for _, name := range names {
		passengers = append(passengers, map[string]any{"name": name})
	}
	f := sagatest.New(t, flight(t, each)).WhenStarted("flight", sagatest.Fields{"id": "f-1", "passengers": passengers})
	return f.WhenPublished(sagatest.Success("pay", "Paid", nil))
}

func seat(item int, place string) sagatest.Message {
	return sagatest.Success(fmt.Sprintf("seat[%d]", item), "SeatBooked", sagatest.Fields{"seat": place})
}

func book(item int, name string) sagatest.Command {
	return sagatest.Command{
		Step: fmt.Sprintf("seat[%d]", item), Operation: "forward", Type: "BookSeat", Fields: sagatest.Fields{"name": name, "place": item},
	}
}

func release(item int, name string, place any) sagatest.Command {
	return sagatest.Command{
		Step: fmt.Sprintf("seat[%d]", item), Operation: "compensate", Type: "ReleaseSeat", Fields: sagatest.Fields{"name": name, "seat": place},
	}
}

func released(item int) sagatest.Message {
	return sagatest.Success(fmt.Sprintf("seat[%d]", item), "SeatReleased", nil)
}

func phases(s saga.State) string {
	var all []string
	for _, ss := range s.Steps {
		all = append(all, ss.Name+":"+string(ss.Phase))
	}
	return strings.Join(all, " ")
}

func TestAStepRunsForEachElementAndCollectsInTheOrderOfTheList(t *testing.T) {
	f := startFlight(t, "", "Ada", "Bob", "Cyd")
	f.ThenCommands(book(0, "Ada"), book(1, "Bob"))
	f.WhenPublished(seat(1, "1B")).ThenCommands(book(2, "Cyd"))
	f.WhenPublished(seat(2, "1C")).ThenCommands()
	f.WhenPublished(seat(0, "1A")).ThenCommands(sagatest.Command{Type: "Issue", Fields: sagatest.Fields{"seats": []any{"1A", "1B", "1C"}}})
	f.WhenPublished(sagatest.Success("ticket", "Issued", nil)).ThenStatus(flightID, saga.Completed)
	require.Equal(t, "pay:done seat:done ticket:done seat[0]:done seat[1]:done seat[2]:done", phases(f.State(flightID)))
}

func TestAnEmptyListIsDoneAtOnce(t *testing.T) {
	f := startFlight(t, "")
	f.ThenCommands(sagatest.Command{Type: "Issue", Fields: sagatest.Fields{"seats": []any{}}})
	f.WhenPublished(sagatest.Failure("ticket", "IssueRefused", nil)).ThenCommands(sagatest.Command{Type: "Refund"})
	f.WhenPublished(sagatest.Success("pay", "Refunded", nil)).ThenStatus(flightID, saga.Compensated)
	require.Equal(t, "pay:compensated seat:done ticket:refused", phases(f.State(flightID)))
}

func TestAnItemThatIsRefusedSendsTheSagaBackAndTheItemsThatAreDoneAreUndone(t *testing.T) {
	f := startFlight(t, "", "Ada", "Bob", "Cyd", "Dan")
	f.Given(seat(0, "1A"))
	f.WhenPublished(sagatest.Failure("seat[1]", "SeatRefused", nil))
	f.ThenCommands(release(0, "Ada", "1A")).ThenStatus(flightID, saga.Compensating)
	f.WhenPublished(seat(2, "1C")).ThenCommands(release(2, "Cyd", "1C"))
	f.WhenPublished(released(2)).ThenCommands()
	f.WhenPublished(released(0)).ThenCommands(sagatest.Command{Type: "Refund"})
	f.WhenPublished(sagatest.Success("pay", "Refunded", nil)).ThenStatus(flightID, saga.Compensated).ThenNoDeadlines()
	s := f.State(flightID)
	require.Equal(t, "pay:compensated seat:compensated ticket:skipped seat[0]:compensated seat[1]:refused seat[2]:compensated seat[3]:skipped", phases(s))
	require.Equal(t, "no seat for Bob", s.Reason)
}

func TestAStepBehindTheItemsSendsAllOfThemBack(t *testing.T) {
	f := startFlight(t, "", "Ada", "Bob")
	f.Given(seat(1, "1B"), seat(0, "1A"))
	f.WhenPublished(sagatest.Failure("ticket", "IssueRefused", nil)).ThenCommands(release(1, "Bob", "1B"), release(0, "Ada", "1A"))
	f.WhenPublished(released(1)).ThenCommands()
	f.WhenPublished(released(0)).ThenCommands(sagatest.Command{Type: "Refund"})
}

func TestAListThatIsTooLongParksTheSagaBeforeAnItemBegins(t *testing.T) {
	f := startFlight(t, "", "a", "b", "c", "d", "e")
	f.ThenCommands().ThenStatus(flightID, saga.Parked)
	require.Contains(t, f.State(flightID).Reason, `seat: forEach: "data.passengers" has 5 elements, and max is 4: set the variable to a shorter list`)
	f.WhenActs(flightID, saga.Event{Kind: saga.ActSet, Fields: sagatest.Fields{"passengers": []any{map[string]any{"name": "Ada"}}}})
	f.WhenActs(flightID, saga.Event{Kind: saga.ActResume}).ThenCommands(book(0, "Ada"))
}

func TestAValueThatIsNoListParksTheSaga(t *testing.T) {
	for _, value := range []any{nil, "Ada", map[string]any{"name": "Ada"}, 3} {
		f := sagatest.New(t, flight(t, "")).WhenStarted("flight", sagatest.Fields{"id": "f-1", "passengers": value})
		f.WhenPublished(sagatest.Success("pay", "Paid", nil)).ThenStatus(flightID, saga.Parked)
		require.Contains(t, f.State(flightID).Reason, `"data.passengers": the value is not a list`)
	}
}

func TestTheListIsReadOnceWhenTheStepBegins(t *testing.T) {
	f := startFlight(t, "", "Ada", "Bob", "Cyd")
	f.WhenActs(flightID, saga.Event{Kind: saga.ActSet, Fields: sagatest.Fields{"passengers": []any{}}})
	f.WhenPublished(seat(0, "1A")).ThenCommands(book(2, "Cyd"))
}

func TestRepeatedAndLateAnswersOfAnItemAreIgnored(t *testing.T) {
	f := startFlight(t, "", "Ada", "Bob", "Cyd")
	f.Given(seat(0, "1A"))
	f.WhenPublished(seat(0, "9Z")).ThenNothing()
	_, fx := saga.Decide(flight(t, ""), f.State(flightID), saga.Event{
		Kind: saga.Answered, Step: "seat", Operation: "forward", Outcome: "success", Hop: "seats", Type: "SeatBooked",
	}, noon)
	require.Equal(t, "step seat has items, and the answer SeatBooked names none of them", fx.Ignored)
	require.Equal(t, []any{"1A", nil, nil}, f.State(flightID).Data["seats"])
}

func TestAnItemThatIsNotAnsweredInTimeIsInDoubtAndIsUndone(t *testing.T) {
	f := startFlight(t, `"timeout":"10m",`, "Ada", "Bob", "Cyd")
	f.WhenTimePasses(5 * time.Minute)
	f.Given(seat(0, "1A")) // the time-out of the third item counts from its own begin
	f.WhenTimePasses(5 * time.Minute)
	f.ThenStatus(flightID, saga.Compensating)
	require.Equal(t, "seat[1]: no answer within 10m", f.State(flightID).Reason)
	f.WhenPublished(seat(2, "1C")).ThenCommands(release(2, "Cyd", "1C"))
	late := seat(1, "1B")
	late.Operation = "forward"
	f.WhenPublished(late) // its compensation is sent already, and its late answer sets the value
	require.Equal(t, []any{"1A", "1B", "1C"}, f.State(flightID).Data["seats"])
	f.WhenPublished(released(0), released(1), released(2)).ThenCommands(sagatest.Command{Type: "Refund"})
}

func TestAnOptionalItemIsLeftOut(t *testing.T) {
	f := startFlight(t, `"optional":true,"timeout":"10m",`, "Ada", "Bob", "Cyd")
	f.Given(seat(0, "1A"))
	f.WhenPublished(sagatest.Failure("seat[1]", "SeatRefused", nil)).ThenStatus(flightID, saga.Running)
	f.WhenTimePasses(10 * time.Minute)
	f.ThenCommands(release(2, "Cyd", nil), sagatest.Command{Type: "Issue", Fields: sagatest.Fields{"seats": []any{"1A", nil, nil}}})
	f.WhenPublished(sagatest.Success("ticket", "Issued", nil)).ThenStatus(flightID, saga.Running)
	f.WhenPublished(released(2)).ThenStatus(flightID, saga.Completed)
}

func TestACancelWaitsForTheItemsThatRun(t *testing.T) {
	f := startFlight(t, "", "Ada", "Bob", "Cyd")
	f.WhenActs(flightID, saga.Event{Kind: saga.ActCompensate}).ThenCommands()
	f.WhenPublished(seat(1, "1B")).ThenCommands(release(1, "Bob", "1B"))
	f.WhenPublished(sagatest.Failure("seat[0]", "SeatRefused", nil), released(1)).ThenCommands(sagatest.Command{Type: "Refund"})
}

func TestAnOperatorActsOnOneItem(t *testing.T) {
	f := startFlight(t, "", "Ada", "Bob", "Cyd")
	f.WhenPublished(sagatest.Exhausted("seat[1]", "out of tries")).ThenStatus(flightID, saga.Parked)
	f.WhenPublished(seat(0, "1A")).ThenCommands() // a parked saga begins nothing
	f.WhenActs(flightID, saga.Event{Kind: saga.ActRetry, Step: "seat"}).ThenRefused("step seat has 3 items: name one of them, such as seat[0]")
	f.WhenActs(flightID, saga.Event{Kind: saga.ActRetry, Step: "seat[3]"}).ThenRefused(`there is no step "seat[3]"`)
	f.WhenActs(flightID, saga.Event{Kind: saga.ActRetry, Step: "seat[1]"}).ThenCommands(book(1, "Bob"), book(2, "Cyd"))
	f.WhenPublished(sagatest.Exhausted("seat[1]", "out of tries")).ThenStatus(flightID, saga.Parked)
	f.WhenActs(flightID, saga.Event{Kind: saga.ActSkip, Step: "seat[1]", Fields: sagatest.Fields{"seats": "by hand"}}).ThenStatus(flightID, saga.Running)
	f.WhenPublished(seat(2, "1C")).ThenCommands(sagatest.Command{Type: "Issue", Fields: sagatest.Fields{"seats": []any{"1A", "by hand", "1C"}}})
}

func TestAnItemsCompensationThatFailsIsResolvedByItself(t *testing.T) {
	f := startFlight(t, "", "Ada", "Bob")
	f.Given(seat(0, "1A"), sagatest.Failure("seat[1]", "SeatRefused", nil))
	f.WhenPublished(sagatest.Failure("seat[0]", "Refused", nil)).ThenStatus(flightID, saga.Parked)
	f.WhenActs(flightID, saga.Event{Kind: saga.ActResolve, Step: "seat[0]", Happened: true}).ThenCommands(sagatest.Command{Type: "Refund"})
}

func TestAVariableThatIsNoListAnyMoreParksTheItem(t *testing.T) {
	f := startFlight(t, "", "Ada", "Bob")
	f.WhenActs(flightID, saga.Event{Kind: saga.ActSet, Fields: sagatest.Fields{"seats": "none"}})
	f.WhenPublished(seat(0, "1A")).ThenStatus(flightID, saga.Parked)
	require.Contains(t, f.State(flightID).Reason, "variable seats is not a list of 2 values, one for each item of step seat: set it to such a list")
	f.WhenActs(flightID, saga.Event{Kind: saga.ActSet, Fields: sagatest.Fields{"seats": []any{nil, nil}}})
	f.WhenActs(flightID, saga.Event{Kind: saga.ActSkip, Step: "seat[0]", Fields: sagatest.Fields{"seats": "1A"}})
	f.WhenPublished(seat(1, "1B")).ThenCommands(sagatest.Command{Type: "Issue", Fields: sagatest.Fields{"seats": []any{"1A", "1B"}}})
}

func TestASuccessOfAnItemWhoseBeginIsLost(t *testing.T) {
	d := flight(t, "")
	took := saga.Event{Kind: saga.Answered, Step: "seat[1]", Operation: "forward", Outcome: "success", Hop: "seats", Type: "SeatBooked", Fields: map[string]any{"seat": "1B"}}
	start := func(n int) saga.State {
		passengers := make([]any, n)
		for i := range passengers {
			passengers[i] = map[string]any{"name": "Ada"}
		}
		s, fx := saga.Decide(d, saga.State{}, saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "f-1", "passengers": passengers}}, noon)
		require.Empty(t, fx.Refused)
		return s
	}
	early := start(2)
	_, fx := saga.Decide(d, early, took, noon)
	require.True(t, fx.Early, fx.Ignored)
	back, _ := saga.Decide(d, early, saga.Event{Kind: saga.ActCompensate}, noon)
	require.Equal(t, "pay:intent seat:skipped ticket:skipped", phases(back))
	done, fx := saga.Decide(d, back, took, noon)
	require.Len(t, fx.Commands, 1, fx)
	require.Equal(t, map[string]any{"name": "Ada", "seat": "1B"}, fx.Commands[0].Fields)
	require.Equal(t, "pay:intent seat:skipped ticket:skipped seat[0]:skipped seat[1]:compensate_intent", phases(done))

	short, _ := saga.Decide(d, start(1), saga.Event{Kind: saga.ActCompensate}, noon)
	_, fx = saga.Decide(d, short, took, noon)
	require.Contains(t, fx.Refused, "seat[1] took effect at hop seats, and the saga has no such item: the list has 1 elements")
	running, _ := saga.Decide(d, start(1), saga.Event{Kind: saga.Answered, Step: "pay", Operation: "forward", Outcome: "success", Hop: "pay", Type: "Paid"}, noon)
	_, fx = saga.Decide(d, running, took, noon)
	require.Contains(t, fx.Refused, "seat[1] took effect at hop seats, and the saga has no such item: step seat is intent and has 1 items")
}

func TestASagaIsMovedWithItsItems(t *testing.T) {
	f := startFlight(t, "", "Ada", "Bob", "Cyd")
	from := flight(t, "")
	to := parse(t, strings.Replace(strings.Replace(string(from.JSON()), `"parallel": 2`, `"parallel": 1`, 1), `"max": 4`, `"max": 2`, 1))
	s, err := saga.Migrate(from, to, f.State(flightID))
	require.NoError(t, err)
	require.Equal(t, phases(f.State(flightID)), phases(s))
	answer := func(item int) saga.Event {
		return saga.Event{
			Kind: saga.Answered, Step: fmt.Sprintf("seat[%d]", item), Operation: "forward", Outcome: "success", Hop: "seats", Type: "SeatBooked",
			Fields: map[string]any{"seat": "1A"},
		}
	}
	s, fx := saga.Decide(to, s, answer(0), noon)
	require.Empty(t, fx.Commands, "one item runs")
	_, fx = saga.Decide(to, s, answer(1), noon)
	require.Len(t, fx.Commands, 1)

	once := parse(t, strings.NewReplacer("passenger.name", "'x'", "data.seats[index]", "''", `"place": "index"`, `"place": "1"`).Replace(
		cutForEach(string(from.JSON()))))
	_, err = saga.Migrate(from, once, f.State(flightID))
	require.ErrorContains(t, err, "step seat is intent, and has a forEach in only one of the two")
}

// TestAnElementWithoutAValueThatItsCommandReadsParksTheSaga: the list is fixed by then, so that another version must test the element.
func TestAnElementWithoutAValueThatItsCommandReadsParksTheSaga(t *testing.T) {
	from := flight(t, "")
	f := sagatest.New(t, from).WhenStarted("flight", sagatest.Fields{"id": "f-1", "passengers": []any{map[string]any{"name": "Ada"}, map[string]any{}}})
	f.WhenPublished(sagatest.Success("pay", "Paid", nil)).ThenCommands(book(0, "Ada")).ThenStatus(flightID, saga.Parked)
	require.Contains(t, f.State(flightID).Reason, "passenger.name is not set")
	back, _ := saga.Decide(from, f.State(flightID), saga.Event{Kind: saga.ActCompensate}, noon)
	require.Equal(t, "pay:done seat:intent ticket:skipped seat[0]:intent seat[1]:skipped", phases(back))
	to := parse(t, strings.ReplaceAll(string(from.JSON()), `"name": "passenger.name"`, `"name": "has(passenger.name) ? passenger.name : 'N. N.'"`))
	s, err := saga.Migrate(from, to, f.State(flightID))
	require.NoError(t, err)
	_, fx := saga.Decide(to, s, saga.Event{Kind: saga.ActResume}, noon)
	require.Len(t, fx.Commands, 1)
	require.Equal(t, map[string]any{"name": "N. N.", "place": int64(1)}, fx.Commands[0].Fields)
}

// TestASagaIsNotMovedToAForEachOfAStepThatHasBegunWithoutOne: the step has no items there. Its answer would name none, it would count as done
// at once, and would not be compensated.
func TestASagaIsNotMovedToAForEachOfAStepThatHasBegunWithoutOne(t *testing.T) {
	to := flight(t, "")
	from := parse(t, strings.NewReplacer("passenger.name", "'x'", "data.seats[index]", "''", `"place": "index"`, `"place": "1"`).Replace(
		cutForEach(string(to.JSON()))))
	start := func() *sagatest.Fixture {
		return sagatest.New(t, from).WhenStarted("flight", sagatest.Fields{"id": "f-1", "passengers": []any{}})
	}
	_, err := saga.Migrate(from, to, start().State(flightID))
	require.NoError(t, err, "a step that has not begun may become one with forEach")
	f := start().WhenPublished(sagatest.Success("pay", "Paid", nil))
	_, err = saga.Migrate(from, to, f.State(flightID))
	require.ErrorContains(t, err, "step seat is intent, and has a forEach in only one of the two")
	f.WhenPublished(sagatest.Success("seat", "SeatBooked", sagatest.Fields{"seat": "1A"}))
	_, err = saga.Migrate(from, to, f.State(flightID))
	require.ErrorContains(t, err, "step seat is done, and has a forEach in only one of the two")
}

func cutForEach(text string) string {
	before, rest, _ := strings.Cut(text, `"forEach": {`)
	_, after, _ := strings.Cut(rest, "},")
	return before + after
}

func TestAStateWithItemsIsReadAsItWasWritten(t *testing.T) {
	f := startFlight(t, "", "Ada", "B\x00b", "Cyd")
	f.Given(seat(0, "1A"))
	s := f.State(flightID)
	text, err := s.MarshalJSON()
	require.NoError(t, err)
	read, err := flight(t, "").ReadState(text)
	require.NoError(t, err)
	require.Equal(t, s, read)
}

func TestADefinitionThatForEachDoesNotSuitIsRefused(t *testing.T) {
	good := string(flight(t, "").JSON())
	for _, c := range []struct{ old, new, want string }{
		{`"list": "data.passengers"`, `"list": ""`, `steps[1].forEach.list: want an expression whose value is a list, such as data.passengers`},
		{`"list": "data.passengers"`, `"list": "data.id"`, `steps[1].forEach.list: "data.id" is not a list`},
		{`"as": "passenger"`, `"as": "data"`, `steps[1].forEach.as: "data" is reserved: want another name for the element`},
		{`"as": "passenger"`, `"as": "A"`, `steps[1].forEach.as: "A": want a name of lower-case letters`},
		{`"max": 4`, `"max": 101`, `steps[1].forEach.max: 101: want 1 to 100, the most elements that the list may have`},
		{`"max": 4`, `"max": 0`, `steps[1].forEach.max: 0: want 1 to 100`},
		{`"parallel": 2`, `"parallel": 5`, `steps[1].forEach.parallel: 5: want 1 to max, or nothing to run all items at once`},
		{`"seats": "any"`, `"seats": "string"`, `data.seats: step seat collects a list in it: want type any, not string`},
		{`"name": "ticket",`, `"name": "ticket", "forEach": {"list": "data.passengers", "as": "p", "max": 2},`,
			`steps[2].forEach: "ticket" is the pivot, and some of its items may be done while others fail: make a step after it the pivot`},
		{`"name": "ticket",`, `"name": "wait", "success": [{"event": "Come", "hop": "gate"}], "forEach": {"list": "data.passengers", "as": "p", "max": 2}}, {"name": "ticket",`,
			`steps[2].forEach: "wait" has no command, and an awaited event does not name an item: send a command for each item`},
		{`"seats": "data.seats"`, `"seats": "passenger.name"`, `steps[2].command.input.seats: "passenger.name": column 1: unknown name 'passenger'`},
	} {
		_, err := saga.Parse([]byte(strings.Replace(good, c.old, c.new, 1)))
		require.ErrorContains(t, err, c.want, c.new)
	}
}

func TestTheItemsOfADefinitionHaveALimit(t *testing.T) {
	var steps []string
	for i := range 11 {
		steps = append(steps, fmt.Sprintf(`{"name":"s%d","forEach":{"list":"data.l","as":"x","max":100},"command":{"hop":"h","type":"T"},"success":[{"event":"E"}]}`, i))
	}
	_, err := saga.Parse([]byte(`{"saga":"many","version":1,"key":"id","data":{"id":"string","l":"any"},"steps":[` + strings.Join(steps, ",") + `]}`))
	require.ErrorContains(t, err, "steps: the max of all forEach is 1100 together: want at most 1000")
}

func TestAnItemOfAListOfTextsIsInTheEndpoint(t *testing.T) {
	f := sagatest.New(t, parse(t, `{"saga":"calls","version":1,"key":"id","data":{"id":"string","rooms":"any"},"steps":[
{"name":"room","forEach":{"list":"data.rooms","as":"room","max":3},"call":{"hop":"hotel","method":"PUT","endpoint":"/trips/{id}/rooms/{room}/{index}"},
"irreversible":"free"}]}`))
	f.WhenStarted("calls", sagatest.Fields{"id": "c-1", "rooms": []any{"a b", "c"}})
	f.ThenCommands(
		sagatest.Command{Step: "room[0]", Fields: sagatest.Fields{"method": "PUT", "path": "/trips/c-1/rooms/a%20b/0"}},
		sagatest.Command{Step: "room[1]", Fields: sagatest.Fields{"method": "PUT", "path": "/trips/c-1/rooms/c/1"}},
	)
}

func TestALaterConditionCountsTheItemsThatAreDone(t *testing.T) {
	text := strings.Replace(string(flight(t, `"optional":true,`).JSON()), `"name": "ticket",`,
		`"name": "ticket", "when": "size(data.seats.filter(s, s != null)) >= 2",`, 1)
	for answers, status := range map[int]saga.Phase{1: saga.Skipped, 2: saga.Intent} {
		f := sagatest.New(t, parse(t, text)).WhenStarted("flight", sagatest.Fields{"id": "f-1", "passengers": []any{map[string]any{"name": "Ada"}, map[string]any{"name": "Bob"}}})
		f.Given(sagatest.Success("pay", "Paid", nil), seat(0, "1A"))
		if answers == 2 {
			f.Given(seat(1, "1B"))
		} else {
			f.Given(sagatest.Failure("seat[1]", "SeatRefused", nil))
		}
		require.Equal(t, status, f.State(flightID).Steps[2].Phase)
	}
}

func TestTheNamesOfTheItemsAndOfTheirStepAreCompensated(t *testing.T) {
	text := strings.Replace(string(flight(t, "").JSON()), `"saga": "flight",`, `"saga": "flight", "compensated": [{"event": "Back", "input": {"of": "saga.compensated"}}],`, 1)
	f := sagatest.New(t, parse(t, text)).WhenStarted("flight", sagatest.Fields{"id": "f-1", "passengers": []any{map[string]any{"name": "Ada"}, map[string]any{"name": "Bob"}}})
	f.Given(sagatest.Success("pay", "Paid", nil), seat(0, "1A"), seat(1, "1B"), sagatest.Failure("ticket", "IssueRefused", nil), released(0), released(1))
	f.WhenPublished(sagatest.Success("pay", "Refunded", nil))
	f.ThenEvents(sagatest.Emitted{Type: "Back", Fields: sagatest.Fields{"of": []any{"seat[1]", "seat[0]", "seat", "pay"}}})
}
