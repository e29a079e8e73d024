package saga_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// In TestAPivotInDoubtThatIsDoneLateIsCompensatedWithTheSaga the pivot is answered late, while packing, which the saga waits for, has
// no answer yet. The saga has skipped the shipment, so it must not go forward without it.
func TestAPivotInDoubtThatIsDoneLateIsCompensatedWithTheSaga(t *testing.T) {
	text, err := os.ReadFile("../internal/explore/testdata/pivot-first.saga.json")
	require.NoError(t, err)
	d := parse(t, string(text))
	s, _ := saga.Decide(d, saga.State{}, saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "1"}}, noon)
	var types []string
	for _, e := range []saga.Event{
		answer("stock", "forward", "success", "Reserved", nil),
		{Kind: saga.Fired, Deadline: "pay.timeout", Keep: true},
		answer("pay", "forward", "success", "Charged", nil),
		answer("pack", "forward", "success", "Packed", nil),
		answer("pay", "compensate", "success", "Refunded", nil),
		answer("stock", "compensate", "success", "Released", nil),
	} {
		var fx saga.Effects
		s, fx = saga.Decide(d, s, e, noon.Add(2*time.Hour))
		require.Empty(t, fx.Ignored+fx.Refused)
		for _, c := range fx.Commands {
			types = append(types, c.Type)
		}
	}
	require.Equal(t, saga.Compensated, s.Status)
	require.Equal(t, []string{"Pack", "Refund", "Release"}, types)
}
