package saga_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// TestAnAnswerOfAnotherHopIsRefused: a service that may write to the events of its own hop only must not answer for another hop.
func TestAnAnswerOfAnotherHopIsRefused(t *testing.T) {
	d := travelling(t)
	by := func(hop string, e saga.Event) saga.Event {
		e.Hop = hop
		return e
	}
	compensating := []saga.Event{begun, bookedTrip, by("insurance", refused)}
	for name, test := range map[string]struct {
		before []saga.Event
		forged saga.Event
	}{
		"a refusal":                        {[]saga.Event{begun}, answer("hotel", "forward", "failure", "Refused", nil)},
		"a refusal of an unknown type":     {[]saga.Event{begun}, answer("hotel", "forward", "failure", "Anything", nil)},
		"a success":                        {[]saga.Event{begun}, bookedTrip},
		"a success of an unknown type":     {[]saga.Event{begun}, answer("hotel", "forward", "success", "Anything", nil)},
		"that nothing was to be done":      {[]saga.Event{begun}, answer("hotel", "forward", "success", saga.NothingType, nil)},
		"a success of a step to come":      {[]saga.Event{begun}, rented},
		"a success of a skipped step":      {[]saga.Event{begun, refused, bookedTrip}, rented},
		"a failure of a step that is done": {[]saga.Event{begun, bookedTrip}, answer("hotel", "forward", "failure", "Refused", nil)},
		"a compensation":                   {compensating, cancelled},
		"that nothing was to be undone":    {compensating, answer("hotel", "compensate", "success", saga.NothingType, nil)},
		"a failed compensation":            {compensating, answer("hotel", "compensate", "failure", "No", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			before, _ := history(t, d, test.before...)
			after, fx := saga.Decide(d, before, by("weather", test.forged), time.Unix(2000, 0))
			require.Contains(t, fx.Refused, "hop weather")
			require.Empty(t, fx.Commands)
			after.Version = before.Version
			require.Equal(t, before, after)

			_, fx = saga.Decide(d, before, by(map[string]string{"hotel": "hotel", "car": "car"}[test.forged.Step], test.forged), time.Unix(2000, 0))
			require.NotContains(t, fx.Refused, "came from hop")
		})
	}
}

// TestNoAnswerToACommandEndsAStepThatAwaitsAnEvent: an awaited event counts by its conditions, also one that names the step.
func TestNoAnswerToACommandEndsAStepThatAwaitsAnEvent(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"loan","version":1,"key":"id","data":{"id":"string"},
	 "steps":[{"name":"approval","success":[{"event":"Approved","hop":"desk","when":"event.cents < 100"}],"failure":[{"event":"Declined","hop":"desk"}],"timeout":"1h"}]}`))
	require.NoError(t, err)
	before, _ := history(t, d, begun)
	for _, hop := range []string{"weather", "desk"} {
		forged := answer("approval", "forward", "success", saga.NothingType, nil)
		forged.Hop = hop
		after, _ := saga.Decide(d, before, forged, time.Unix(2000, 0))
		require.Equal(t, hop == "desk", after.Status == saga.Parked, hop)
		require.NotEqual(t, saga.Completed, after.Status, hop)
	}
}

// TestAnAnswerOfTheHopOfALostDefinitionCountsAfterAnotherMove: the saga was moved to a definition that asks another hop in a step which had not
// begun, and its database was set back to before the move. The dead letter says what to do, and the answer counts then.
func TestAnAnswerOfTheHopOfALostDefinitionCountsAfterAnotherMove(t *testing.T) {
	d := parse(t, tour)
	to := parse(t, tour, `"hop":"seat"`, `"hop":"balcony"`)
	elsewhere := reserved
	elsewhere.Hop = "balcony"
	before, _ := history(t, d, begun, flightTaken)
	_, fx := saga.Decide(d, before, elsewhere, time.Unix(2000, 0))
	require.Contains(t, fx.Refused, "came from hop balcony")
	require.Contains(t, fx.Refused, "move it there again and redrive")
	moved, err := saga.Migrate(d, to, before)
	require.NoError(t, err)
	moved, _ = saga.Decide(to, moved, saga.Event{Kind: saga.Observed, Hop: "desk", Type: "Voucher"}, time.Unix(2000, 0))
	moved, fx = saga.Decide(to, moved, elsewhere, time.Unix(2000, 0))
	require.Empty(t, fx.Refused+fx.Ignored)
	require.Equal(t, saga.Done, moved.Steps[2].Phase)
}
