package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/bench/workload"
	"github.com/troupe-go/troupe/relay"
)

func TestEveryScenarioHasANameOfItsOwn(t *testing.T) {
	names := make(map[string]bool)
	for _, c := range scenarios() {
		require.False(t, names[c.name()], c.name())
		require.LessOrEqual(t, len(c.name()), rowsTable.Width)
		names[c.name()] = true
	}
}

func TestARepeatIsAnErrorUnderExactlyOnceOnly(t *testing.T) {
	repeated := workload.Result{Rows: 10, Repeated: 1}
	require.NoError(t, judge("rows", scenario{delivery: relay.AtLeastOnce}, repeated))
	require.Error(t, judge("rows", scenario{delivery: relay.ExactlyOnce}, repeated))
	for _, r := range []workload.Result{{Lost: 1}, {Gone: 1}, {Ahead: 1}, {Doubled: 1}, {Reordered: 1}} {
		require.Error(t, judge("rows", scenario{delivery: relay.AtLeastOnce}, r))
	}
}
