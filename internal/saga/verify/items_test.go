package verify_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/saga/verify"
	"github.com/troupe-go/troupe/saga"
)

// seatsWith returns the findings of a definition that books a seat for each passenger, with changes.
func seatsWith(t testing.TB, oldnew ...string) []verify.Finding {
	t.Helper()
	text := string(read(t, "list-too-short.good.saga.json"))
	for i := 0; i < len(oldnew); i += 2 {
		require.Contains(t, text, oldnew[i])
	}
	d, err := saga.Parse([]byte(strings.NewReplacer(oldnew...).Replace(text)))
	require.NoError(t, err)
	return verify.Definition(d, verify.Options{})
}

func findingsText(found []verify.Finding) string {
	var all []string
	for _, f := range found {
		all = append(all, f.String())
	}
	return strings.Join(all, "\n")
}

const undoSeat = `,
      "compensation": {
        "command": {"hop": "seats", "type": "ReleaseSeat", "input": {"seat": "data.seats[index]"}},
        "success": [{"event": "SeatReleased"}]
      }`

func TestAnItemThatStaysDoneWhenAnotherOneFails(t *testing.T) {
	t.Parallel()
	alone := []string{undoSeat, "", `"needs": ["seat"],`, `"needs": ["seat"], "retriable": true,`, `"failure": [{"event": "IssueRefused"}],`, ""}
	require.Equal(t, `error: no-way-back: steps[0]: seat stays done when seat[1] fails; give it a compensation, or say in irreversible why it needs none
	seat[0]: done
	seat[1]: fails`, findingsText(seatsWith(t, alone...)))
	require.Empty(t, seatsWith(t, append(alone, `"max": 9`, `"max": 1`)...), "a list of one element has no other item")
	require.Empty(t, seatsWith(t, append(alone, `"name": "seat",`, `"name": "seat", "irreversible": "seats are free",`)...))
}

func TestATraceNamesTheItemThatFails(t *testing.T) {
	t.Parallel()
	found := findingsText(seatsWith(t, `"name": "ticket",
      "needs": ["seat"],`, `"name": "ticket",`, "size(data.seats) > 0 ? data.seats[0] : null", "1"))
	require.Contains(t, found, "error: pivot-parallel: steps[0]: seat may fail while the pivot ticket is done")
	require.Contains(t, found, "\tticket: done\n\tseat[0]: fails")
}

func TestAListThatIsCollectedIsSetEvenIfItemsFail(t *testing.T) {
	t.Parallel()
	require.Empty(t, seatsWith(t, `"name": "seat",`, `"name": "seat", "optional": true,`))
	found := findingsText(seatsWith(t, `"name": "ticket",
      "needs": ["seat"],`, `"name": "ticket",`))
	require.Contains(t, found, "unset-variable: steps[1].command.input.first: data.seats may not be set: seat sets it")
}

func TestAnElementThatAListMayNotHave(t *testing.T) {
	t.Parallel()
	require.Equal(t, `warning: list-too-short: steps[1].command.input.first: data.seats[2] does not exist if the list of seat has 2 elements, and the saga is parked: test size(data.seats) > 2
	data.passengers: 2 elements
	seat: done
	ticket: begins`, findingsText(seatsWith(t, "size(data.seats) > 0 ? data.seats[0] : null", "data.seats[2]")))
}

func TestTheItemsThatRunInTurnTakeTheirTimes(t *testing.T) {
	t.Parallel()
	turns := []string{`"max": 9`, `"max": 9, "parallel": 2`, `"key": "id",`, `"key": "id", "timeout": "59m",`}
	require.Contains(t, findingsText(seatsWith(t, turns...)), "saga-timeout-below-steps: timeout: 59m, and the time-outs of the steps up to ticket add up to 1h;")
	turns[3] = `"key": "id", "timeout": "1h",`
	require.NotContains(t, findingsText(seatsWith(t, turns...)), "saga-timeout-below-steps")
}

func TestTheDiagramMarksTheStepOfAnItem(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer(undoSeat, "").Replace(string(read(t, "list-too-short.good.saga.json")))
	d, err := saga.Parse([]byte(text))
	require.NoError(t, err)
	diagram := verify.Mermaid(d, verify.Definition(d, verify.Options{}))
	require.Contains(t, diagram, "seat<br/>for each passenger<br/>BookSeat → seats")
}
