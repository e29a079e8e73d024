package explore_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/explore"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// A time-out is treated as a refusal; each format describes it. The generated Go test is a file of this package: it passes,
// since saga.Decide is not the mutant.
func TestACounterexampleIsToldInThreeWays(t *testing.T) {
	r, err := explore.Explore(t.Context(), load(t, order), explore.Config{Decide: refusedWhenLate})
	require.NoError(t, err)
	c := r.Counterexample
	require.NotNil(t, c)
	golden(t, "testdata/late.txt", c.String())
	golden(t, "testdata/late.mmd", c.Mermaid())
	golden(t, "replay_test.go", c.GoTest("explore_test", order))
}

func TestACounterexampleIsMinimal(t *testing.T) {
	r, err := explore.Explore(t.Context(), load(t, order), explore.Config{
		Duplicates: 2, Buttons: 2, Exhausted: true, Decide: refusedWhenLate,
	})
	require.NoError(t, err)
	require.Len(t, r.Counterexample.Steps, 2, "a start and a time-out are enough")
}

// A step that is compensated by another hop than the one that did it has no barrier between the two operations.
func TestARefundByAnotherHopOvertakesThePayment(t *testing.T) {
	t.Parallel()
	r, err := explore.Explore(t.Context(), load(t, "testdata/refunds.saga.json"), explore.Config{})
	require.NoError(t, err)
	require.NotNil(t, r.Counterexample)
	require.Equal(t, "the saga is compensated, and step payment has taken effect and is not undone", r.Counterexample.Problem)
	last := r.Counterexample.Steps[len(r.Counterexample.Steps)-1]
	require.True(t, strings.HasPrefix(last.Outcome, "compensated"), last.Outcome)
}

func TestTheBoundOfStatesIsKept(t *testing.T) {
	t.Parallel()
	r, err := explore.Explore(t.Context(), load(t, order), explore.Config{Duplicates: 1, Exhausted: true, Buttons: 1, States: 1000})
	require.NoError(t, err)
	require.False(t, r.Complete)
	require.Equal(t, 1000, r.States)
	require.Nil(t, r.Counterexample)
}

func TestWrongBoundsAreRefused(t *testing.T) {
	t.Parallel()
	for said, cfg := range map[string]explore.Config{
		"-1 duplicates: want 0 to 15": {Duplicates: -1},
		"8 buttons: want 0 to 7":      {Buttons: 8},
		"-1 states: want":             {States: -1},
		"start: saga order: the variable order_id, which is its key, has no value": {Start: []map[string]any{{"title": 1}}},
	} {
		_, err := explore.Explore(t.Context(), load(t, order), cfg)
		require.ErrorContains(t, err, said)
	}
}
