package explore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/explore"
	"github.com/troupe-go/troupe/saga"
)

func load(t testing.TB, file string) *saga.Definition {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	d, err := saga.Parse(text)
	require.NoError(t, err)
	return d
}

const order = "../../saga/testdata/order.saga.json"

// sound explores all of a definition and requires that no invariant breaks.
func sound(t testing.TB, d *saga.Definition, cfg explore.Config) explore.Report {
	t.Helper()
	r, err := explore.Explore(t.Context(), d, cfg)
	require.NoError(t, err)
	t.Logf("%d states, %d transitions, %d sagas, %d decisions, depth %d, %.0f states/s, ends %v",
		r.States, r.Transitions, r.Sagas, r.Decisions, r.Depth, r.PerSecond(), r.Ends)
	if r.Counterexample != nil {
		t.Fatalf("%s", r.Counterexample)
	}
	require.True(t, r.Complete, "%d states were not enough", r.States)
	return r
}

func TestDefinitionsKeepTheirPromises(t *testing.T) {
	t.Parallel()
	for file, configs := range map[string][]explore.Config{
		order: {
			{}, {Duplicates: 2}, {Exhausted: true}, {Buttons: 2}, {Unordered: true, Duplicates: 2},
			{Duplicates: 1, Buttons: 1, Exhausted: true},
		},
		"testdata/parallel.saga.json": {{}, {Duplicates: 1}, {Exhausted: true}, {Buttons: 1}},
		"testdata/approval.saga.json": {{}, {Duplicates: 1}, {Exhausted: true}, {Buttons: 1}},
	} {
		for _, cfg := range configs {
			t.Run(fmt.Sprintf("%s %+v", filepath.Base(file), cfg), func(t *testing.T) {
				t.Parallel()
				sound(t, load(t, file), cfg)
			})
		}
	}
}
