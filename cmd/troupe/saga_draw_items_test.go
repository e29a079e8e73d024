package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

func seatSteps() saga.Spec {
	return saga.Spec{Steps: []saga.Step{
		{Name: "seat", ForEach: &saga.ForEach{As: "passenger"}, Command: &saga.Command{Type: "BookSeat"}},
		{Name: "ticket", Needs: []string{"seat"}, Command: &saga.Command{Type: "Issue"}, Pivot: true},
	}}
}

func TestTheItemsOfAStepAreDrawnBelowIt(t *testing.T) {
	t.Parallel()
	s := saga.State{Steps: []saga.StepState{
		{Name: "seat", Phase: saga.Intent}, {Name: "ticket"},
		{Name: "seat[0]", Phase: saga.Done}, {Name: "seat[1]", Phase: saga.GivenUp, Epoch: 1}, {Name: "seat[2]"},
	}}
	var b bytes.Buffer
	drawSteps(&b, seatSteps(), s)
	require.Equal(t, `  ▸ seat        intent     for each passenger: 1 of 3 done; BookSeat
  ├─ ✓ seat[0]  done
  ├─ ! seat[1]  exhausted  sent 2 times
  ├─ · seat[2]  waiting
  └─ · ticket   waiting    Issue; pivot
`, b.String())
}

func TestOfManyItemsTheDrawingLeavesOutTheDoneOnes(t *testing.T) {
	t.Parallel()
	s := saga.State{Steps: []saga.StepState{{Name: "seat", Phase: saga.Intent}, {Name: "ticket"}}}
	for i := range 30 {
		s.Steps = append(s.Steps, saga.StepState{Name: fmt.Sprintf("seat[%d]", i), Phase: saga.Done})
	}
	s.Steps[9].Phase = saga.Doubt
	var b bytes.Buffer
	drawSteps(&b, seatSteps(), s)
	require.Contains(t, b.String(), "for each passenger: 29 of 30 done")
	require.Contains(t, b.String(), "seat[7]")
	require.Equal(t, 3, strings.Count(b.String(), "\n"))
}
