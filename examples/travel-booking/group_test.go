package travelbooking_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	travelbooking "github.com/troupe-go/troupe/examples/travel-booking"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
)

func groupDefinition(t testing.TB) *saga.Definition {
	t.Helper()
	d, err := travelbooking.Group()
	require.NoError(t, err)
	return d
}

func people(names ...string) []any {
	all := []any{}
	for _, name := range names {
		all = append(all, map[string]any{"name": name})
	}
	return all
}

// group starts a trip whose deposit is paid.
func group(t testing.TB, names ...string) *sagatest.Fixture {
	t.Helper()
	f := sagatest.New(t, groupDefinition(t)).WhenStarted("group", sagatest.Fields{"trip": "g-1", "cents": 9_000, "passengers": people(names...)})
	return f.WhenPublished(sagatest.Success("deposit", "DepositTaken", nil))
}

func seat(item int, place string) sagatest.Message {
	return sagatest.Success(fmt.Sprintf("seat[%d]", item), "SeatBooked", sagatest.Fields{"seat": place})
}

func TestTheGroupHasNoFinding(t *testing.T) {
	t.Parallel()
	sagatest.Verify(t, groupDefinition(t))
}

func TestEachPassengerHasASeatBeforeTheTicketsAreIssued(t *testing.T) {
	t.Parallel()
	f := group(t, "Ada", "Bob", "Cyd")
	f.Given(seat(2, "1C"), seat(0, "1A"))
	f.WhenPublished(seat(1, "1B")).ThenCommands(sagatest.Command{
		Type: "IssueTickets", Fields: sagatest.Fields{"trip": "g-1", "seats": []any{"1A", "1B", "1C"}},
	})
	f.WhenPublished(sagatest.Success("tickets", "TicketsIssued", nil)).ThenStatus("group/g-1", saga.Completed)
}

func TestAPassengerWithoutASeatSendsTheGroupBack(t *testing.T) {
	t.Parallel()
	f := group(t, "Ada", "Bob", "Cyd")
	f.Given(seat(0, "1A"), sagatest.Failure("seat[1]", "NoSeat", nil))
	f.WhenPublished(seat(2, "1C")).ThenCommands(sagatest.Command{
		Step: "seat[2]", Type: "ReleaseSeat", Fields: sagatest.Fields{"trip": "g-1", "passenger": "Cyd", "seat": "1C"},
	})
	f.Given(sagatest.Success("seat[0]", "SeatReleased", nil))
	f.WhenPublished(sagatest.Success("seat[2]", "SeatReleased", nil)).ThenCommands(sagatest.Command{Type: "ReturnDeposit"})
	f.WhenPublished(sagatest.Success("deposit", "DepositReturned", nil))
	f.ThenEvents(sagatest.Emitted{Type: "GroupCancelled", Fields: sagatest.Fields{"trip": "g-1", "reason": "no seat for passenger 2"}})
}

func TestFiveSeatsAreBookedAtOnce(t *testing.T) {
	t.Parallel()
	f := group(t, "Ada", "Bob", "Cyd", "Dan", "Eve", "Fay", "Gus")
	f.WhenPublished(seat(3, "1D")).ThenCommands(sagatest.Command{Step: "seat[5]", Type: "BookSeat"})
}

func TestAGroupOfTwentyOneIsParkedBeforeASeatIsBooked(t *testing.T) {
	t.Parallel()
	f := group(t, make([]string, 21)...)
	f.ThenNoCommands().ThenStatus("group/g-1", saga.Parked)
	require.Contains(t, f.State("group/g-1").Reason, `"data.passengers" has 21 elements, and max is 20`)
	f.WhenActs("group/g-1", saga.Event{Kind: saga.ActCompensate}).ThenCommands(sagatest.Command{Type: "ReturnDeposit"})
}
