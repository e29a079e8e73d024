package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/explore"
)

const (
	orderSaga   = "../../saga/testdata/order.saga.json"
	refundsSaga = "../../internal/explore/testdata/refunds.saga.json"
)

func TestSagaExploreSaysThatItIsComplete(t *testing.T) {
	t.Parallel()
	o := finish(t, command(t, nil, "saga", "explore", orderSaga))
	require.Equal(t, 0, o.status, o.stderr)
	require.Regexp(t, `^order v1: complete: \d+ states, \d+ states/s, depth \d+, \S+; at rest: compensated \d+, completed \d+\n$`, o.stdout)
	require.Empty(t, o.stderr)
}

func TestSagaExploreSaysThatItsBoundIsReached(t *testing.T) {
	t.Parallel()
	o := finish(t, command(t, nil, "saga", "explore", "--exhausted", "--buttons", "2", "--states", "2000", orderSaga))
	require.Equal(t, 0, o.status, o.stderr)
	require.Contains(t, o.stdout, "bound reached: 2000 states")
}

func TestSagaExploreTellsWhatBreaks(t *testing.T) {
	t.Parallel()
	const problem = "the saga is compensated, and step payment has taken effect and is not undone"
	for output, begins := range map[string]string{
		"table": "  1  saga        starts {", "go": "package main_test\n", "mermaid": "sequenceDiagram\n", "json": `{"saga":"order v1"`,
	} {
		o := finish(t, command(t, nil, "saga", "explore", "--output", output, refundsSaga))
		require.Equal(t, 1, o.status, o.stderr)
		require.True(t, strings.HasPrefix(o.stdout, begins), o.stdout)
		require.Contains(t, o.stdout, problem)
		if output == "json" {
			var r explore.Report
			require.NoError(t, json.Unmarshal([]byte(o.stdout), &r))
			require.Equal(t, problem, r.Counterexample.Problem)
		}
	}
}

func TestSagaExploreRefusesWhatItCannotUse(t *testing.T) {
	t.Parallel()
	for said, args := range map[string][]string{
		"no such file": {"nowhere.json"}, "unknown field": nil,
		"want table, json, yaml, go, mermaid": {"--output", "xml", orderSaga}, "want 0 to 7": {"--buttons", "9", orderSaga},
	} {
		if said == "unknown field" {
			args = []string{put(t, t.TempDir(), map[string]string{"x.json": `{"colour": 1}`}) + "/x.json"}
		}
		o := finish(t, command(t, nil, append([]string{"saga", "explore"}, args...)...))
		require.NotEqual(t, 0, o.status)
		require.Contains(t, o.stderr, said)
		require.Empty(t, o.stdout)
	}
}

func TestTheExplorersPageShowsWhatIsPrinted(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/explorer.md")
	require.NoError(t, err)
	list := finish(t, command(t, nil, "saga", "explore", refundsSaga)).stdout
	summary := strings.LastIndex(strings.TrimSpace(list), "\n") // it has rates
	require.Contains(t, string(page), list[:summary])
	require.Contains(t, string(page), finish(t, command(t, nil, "saga", "explore", "--output", "mermaid", refundsSaga)).stdout)
}

func TestSagaExploreFailsIfNoExecutionCompletes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(orderSaga)
	require.NoError(t, err)
	dir := put(t, t.TempDir(), map[string]string{
		"order.saga.json": strings.Replace(string(text), `"name": "inventory"`, `"name": "inventory", "when": "1 / (data.quantity - data.quantity) > 0"`, 1),
	})
	o := finish(t, command(t, nil, "saga", "explore", dir+"/order.saga.json"))
	require.Equal(t, 1, o.status, o.stderr)
	require.Contains(t, o.stdout, "order v1: never completed: ")
	require.Contains(t, o.stdout, "\n     no execution completes the saga\n     step inventory never begins\n")
	require.Contains(t, o.stdout, "a saga is parked: inventory: when: ")
}
