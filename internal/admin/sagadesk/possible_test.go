package sagadesk_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/saga"
)

// TestTheRetryOfARunningStepIsNotProposed: of two steps that run at once one is given up. Only that one needs the operator, though both can be
// retried.
func TestTheRetryOfARunningStepIsNotProposed(t *testing.T) {
	t.Parallel()
	d, err := saga.Parse([]byte(`{"saga":"trip","version":1,"key":"id","data":{"id":"string"},"steps":[
 {"name":"car","command":{"hop":"car","type":"Rent"},"success":[{"event":"Rented"}],"irreversible":"cheap"},
 {"name":"hotel","command":{"hop":"hotel","type":"Book"},"success":[{"event":"Booked"}],"irreversible":"cheap"}]}`))
	require.NoError(t, err)
	now := time.Now()
	s, _ := saga.Decide(d, saga.State{}, saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "t-1"}}, now)
	s, _ = saga.Decide(d, s, saga.Event{Kind: saga.Answered, Step: "hotel", Operation: "forward", Outcome: "exhausted", Type: "troupe.Exhausted"}, now)
	_, fx := saga.Decide(d, s, saga.Event{Kind: saga.ActRetry, Step: "car"}, now)
	require.Len(t, fx.Commands, 1)
	var retries []string
	for _, e := range sagadesk.Possible(d, s, now) {
		if e.Kind == saga.ActRetry {
			retries = append(retries, e.Step)
		}
	}
	require.Equal(t, []string{"hotel"}, retries)
}
