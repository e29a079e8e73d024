package console

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

func TestAStepWithForEachIsDrawnWithItsItems(t *testing.T) {
	t.Parallel()
	spec := saga.Spec{Steps: []saga.Step{{Name: "seat", ForEach: &saga.ForEach{As: "passenger"}, Command: &saga.Command{Type: "BookSeat"}}}}
	require.Equal(t, "for each passenger: BookSeat", drawSteps(spec, nil).Steps[0].About)
	state := saga.State{Steps: []saga.StepState{
		{Name: "seat", Phase: saga.Intent}, {Name: "seat[0]", Phase: saga.Done}, {Name: "seat[1]", Phase: saga.Intent},
	}}
	require.Equal(t, "intent, 1 of 2 items done", drawSteps(spec, &state).Steps[0].Doing)
}
