package saga_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// tour reserves a seat if there are a flight and a voucher.
const tour = `{"saga":"tour","version":1,"key":"id","data":{"id":"string"},"steps":[
{"name":"flight","command":{"hop":"flight","type":"Book"},"success":[{"event":"Booked"}],
 "compensation":{"command":{"hop":"flight","type":"Cancel"},"success":[{"event":"Cancelled"}]}},
{"name":"voucher","optional":true,"success":[{"event":"Voucher","hop":"desk"}],"failure":[{"event":"NoVoucher","hop":"desk"}]},
{"name":"seat","needs":["flight","voucher"],"atLeast":2,"command":{"hop":"seat","type":"Reserve"},"success":[{"event":"Reserved"}],"failure":[{"event":"NoSeat"}],
 "compensation":{"command":{"hop":"seat","type":"Release"},"success":[{"event":"Released"}]}},
{"name":"walk","command":{"hop":"walk","type":"Walk"},"success":[{"event":"Walked"}],"irreversible":"it is healthy"}]}`

const seatOptional = `"atLeast":2,"optional":true,`

var (
	noVoucher   = saga.Event{Kind: saga.Observed, Hop: "desk", Type: "NoVoucher"}
	flightTaken = answer("flight", "forward", "success", "Booked", nil)
	flightGone  = answer("flight", "compensate", "success", "Cancelled", nil)
	reserved    = answer("seat", "forward", "success", "Reserved", nil)
)

// Before the database of the saga was set back, there was a voucher: the seat was reserved. Now the quorum of the seat is missed.

func TestAStepWhoseQuorumIsMissedAndThatTookEffectIsCompensated(t *testing.T) {
	d := parse(t, tour)
	s, fx := history(t, d, begun, flightTaken, noVoucher, reserved)
	require.Equal(t, saga.Compensating, s.Status)
	require.Equal(t, []string{"seat/compensate"}, sent(fx), fx.Ignored)

	walked := answer("walk", "forward", "success", "Walked", nil)
	s, fx = history(t, d, begun, flightTaken, noVoucher, walked, flightGone, reserved)
	require.Equal(t, saga.Compensated, s.Status)
	require.Contains(t, fx.Refused, "seat")
}

func TestAnOptionalStepWhoseQuorumIsMissedAndThatTookEffectParksTheSaga(t *testing.T) {
	d := parse(t, tour, `"atLeast":2,`, seatOptional)
	s, fx := history(t, d, begun, flightTaken, noVoucher, reserved)
	require.Equal(t, saga.Parked, s.Status)
	require.Contains(t, fx.Alert, "seat")
	require.False(t, s.Steps[2].Tolerated)
	_, fx = history(t, d, begun, flightTaken, noVoucher, reserved, answer("walk", "forward", "success", "Walked", nil), action(saga.ActCompensate, ""))
	require.Equal(t, []string{"seat/compensate"}, sent(fx))
}

// In TestAStepThatALostRetryCompletedIsNotRefused the seat, which is optional, was refused, an operator tried it again, and the
// decision to do so is lost.
func TestAStepThatALostRetryCompletedIsNotRefused(t *testing.T) {
	d := parse(t, tour, `"atLeast":2,`, seatOptional)
	voucher := saga.Event{Kind: saga.Observed, Hop: "desk", Type: "Voucher"}
	noSeat := answer("seat", "forward", "failure", "NoSeat", nil)
	again := reserved
	again.Epoch = 1
	s, fx := history(t, d, begun, flightTaken, voucher, noSeat, again)
	require.Equal(t, saga.Parked, s.Status, fx.Ignored)
	require.Contains(t, fx.Alert, "seat")
}

// In TestTheEffectOfAStepThatTheDefinitionDoesNotHaveIsReported the saga was moved to a definition with a step more, and that is lost.
func TestTheEffectOfAStepThatTheDefinitionDoesNotHaveIsReported(t *testing.T) {
	d := parse(t, tour)
	dined := answer("dinner", "forward", "success", "Dined", nil)
	ended := []saga.Event{begun, flightTaken, noVoucher, answer("walk", "forward", "success", "Walked", nil), flightGone}
	for _, before := range [][]saga.Event{{begun}, ended} {
		_, fx := history(t, d, append(before, dined)...)
		require.Contains(t, fx.Refused, "step dinner", fx.Ignored)
		for _, e := range []saga.Event{
			answer("dinner", "forward", "failure", "Closed", nil), answer("dinner", "forward", "success", saga.NothingType, nil),
			answer("dinner", "compensate", "success", "Undone", nil),
		} {
			_, fx := history(t, d, append(before, e)...)
			require.NotEmpty(t, fx.Ignored, "it leaves no effect")
		}
	}
}

// In TestTheEffectAtAHopThatTheDefinitionDoesNotAskIsReported the saga was moved to a definition that reserves at another hop, and that
// is lost.
func TestTheEffectAtAHopThatTheDefinitionDoesNotAskIsReported(t *testing.T) {
	d := parse(t, tour)
	voucher := saga.Event{Kind: saga.Observed, Hop: "desk", Type: "Voucher"}
	elsewhere := reserved
	elsewhere.Hop = "balcony"
	_, fx := history(t, d, begun, flightTaken, voucher, reserved, elsewhere)
	require.Contains(t, fx.Refused, "balcony", fx.Ignored)
	_, fx = history(t, d, begun, flightTaken, voucher, reserved, answer("walk", "forward", "success", "Walked", nil), elsewhere)
	require.Contains(t, fx.Refused, "balcony", fx.Ignored)
	_, fx = history(t, d, begun, flightTaken, voucher, elsewhere)
	require.Contains(t, fx.Refused, "balcony", fx.Ignored)

	d = parse(t, tour, `{"id":"string"}`, `{"id":"string","over":"bool"}`, `"steps":[`, `"ends":[{"when":"data.over","then":"complete"}],"steps":[`,
		`[{"event":"Booked"}]`, `[{"event":"Booked","set":{"over":"true"}}]`)
	elsewhere = answer("walk", "forward", "success", "Walked", nil)
	elsewhere.Hop = "balcony"
	s, fx := history(t, d, begun, flightTaken, elsewhere)
	require.Equal(t, saga.Completed, s.Status)
	require.Contains(t, fx.Refused, "balcony", fx.Ignored)
}
