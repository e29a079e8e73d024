package saga_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// travel has a step that is skipped if the parallel step is refused, or if the traveller walks.
const travel = `{"saga":"travel","version":1,"key":"id","data":{"id":"string","walks":"bool","plate":"string"},
 "steps":[
  {"name":"hotel","command":{"hop":"hotel","type":"Book"},"success":[{"event":"Booked"}],"timeout":"1h",
   "compensation":{"command":{"hop":"hotel","type":"Cancel"},"success":[{"event":"Cancelled"}],"timeout":"1h"}},
  {"name":"insurance","command":{"hop":"insurance","type":"Insure"},"success":[{"event":"Insured"}],"failure":[{"event":"Refused"}],"timeout":"1h","irreversible":"cheap"},
  {"name":"car","needs":["hotel"],"when":"!has(data.walks)","command":{"hop":"car","type":"Rent"},"success":[{"event":"Rented","set":{"plate":"event.plate"}}],"timeout":"1h",
   "compensation":{"command":{"hop":"car","type":"Return","input":{"plate":"data.plate"}},"success":[{"event":"Returned"}],"timeout":"1h"}}]}`

func travelling(t *testing.T) *saga.Definition {
	t.Helper()
	d, err := saga.Parse([]byte(travel))
	require.NoError(t, err)
	return d
}

// history applies events to a saga, one after the other, and returns its state and the effects of the last one.
func history(t *testing.T, d *saga.Definition, events ...saga.Event) (s saga.State, fx saga.Effects) {
	t.Helper()
	for i, e := range events {
		s, fx = saga.Decide(d, s, e, time.Unix(int64(1000+i), 0))
		if i < len(events)-1 {
			require.Empty(t, fx.Ignored+fx.Refused)
		}
	}
	return s, fx
}

var (
	begun      = saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "1"}}
	bookedTrip = answer("hotel", "forward", "success", "Booked", nil)
	cancelled  = answer("hotel", "compensate", "success", "Cancelled", nil)
	refused    = answer("insurance", "forward", "failure", "Refused", nil)
	rented     = answer("car", "forward", "success", "Rented", map[string]any{"plate": "X 1"})
	returned   = answer("car", "compensate", "success", "Returned", nil)
)

// The database of the saga was set back. Before that, the saga sent a command, and the answer comes now that the saga skips the step.

func TestASkippedStepThatTookEffectIsCompensated(t *testing.T) {
	d := travelling(t)
	_, fx := history(t, d, begun, refused, bookedTrip, rented)
	require.Len(t, fx.Commands, 1)
	require.Equal(t, "Return", fx.Commands[0].Type)
	require.Equal(t, map[string]any{"plate": "X 1"}, fx.Commands[0].Fields)
	s, _ := history(t, d, begun, refused, bookedTrip, rented, cancelled)
	require.Equal(t, saga.Compensating, s.Status)
	s, _ = history(t, d, begun, refused, bookedTrip, rented, cancelled, returned)
	require.Equal(t, saga.Compensated, s.Status)

	nothing := rented
	nothing.Type, nothing.Fields = saga.NothingType, nil
	for _, e := range []saga.Event{nothing, answer("car", "forward", "failure", "Refused", nil), answer("car", "forward", "exhausted", "Exhausted", nil)} {
		_, fx := history(t, d, begun, refused, bookedTrip, e)
		require.NotEmpty(t, fx.Ignored, "it had no effect")
	}
}

func TestASkippedStepThatTookEffectParksASagaThatGoesForward(t *testing.T) {
	d := travelling(t)
	walks := begun
	walks.Fields = map[string]any{"id": "1", "walks": true}
	s, fx := history(t, d, walks, bookedTrip, rented)
	require.Equal(t, saga.Parked, s.Status)
	require.Contains(t, fx.Alert, "car")
	insured := answer("insurance", "forward", "success", "Insured", nil)
	s, _ = history(t, d, walks, bookedTrip, rented, insured)
	require.Equal(t, saga.Parked, s.Status, "an answer does not take it up")
	s, _ = history(t, d, walks, bookedTrip, rented, insured, saga.Event{Kind: saga.ActResume})
	require.Equal(t, saga.Completed, s.Status)
	_, fx = history(t, d, walks, bookedTrip, rented, insured, saga.Event{Kind: saga.ActCompensate})
	require.Equal(t, "Return", fx.Commands[0].Type)
}

func TestASkippedStepThatTookEffectIsNotTakenByAnEndedSaga(t *testing.T) {
	s, fx := history(t, travelling(t), begun, refused, bookedTrip, cancelled, rented)
	require.Equal(t, saga.Compensated, s.Status)
	require.Contains(t, fx.Refused, "car")
}

// TestARefusalOfAStepThatOnlyTheLostDefinitionHasWaitsForTheNextMove: the saga was moved to a definition with one more step, and this step was
// refused. Then the database was set back to before the move. The hop answers the step's command no second time, so that the refusal waits until the
// saga is moved again.
func TestARefusalOfAStepThatOnlyTheLostDefinitionHasWaitsForTheNextMove(t *testing.T) {
	d := travelling(t)
	for _, e := range []saga.Event{
		answer("train", "forward", "failure", "Refused", nil), answer("train", "forward", "exhausted", "Exhausted", nil),
		answer("train", "compensate", "success", "Returned", nil), answer("seat[0]", "forward", "failure", "Refused", nil),
	} {
		_, fx := history(t, d, begun, e)
		require.NotEmpty(t, fx.Ignored)
		require.True(t, fx.Early, "%s %s %s", e.Step, e.Operation, e.Outcome)
		s, fx := history(t, d, begun, saga.Event{Kind: saga.ActAbandon, Actor: "ann", Reason: "enough"}, e)
		require.Equal(t, saga.Abandoned, s.Status)
		require.False(t, fx.Early, "the saga has ended")
	}
}

func TestADeadlineIsCancelledByASkippedStepThatTookEffect(t *testing.T) {
	d := parse(t, travel, `"steps"`, `"deadlines":[{"name":"slow","after":"1h","until":["car"],"then":"compensate"}],"steps"`)
	walks := begun
	walks.Fields = map[string]any{"id": "1", "walks": true}
	s, fx := history(t, d, walks, bookedTrip, rented)
	require.Equal(t, saga.Parked, s.Status)
	require.Equal(t, []string{"slow"}, fx.Cancelled)
}
