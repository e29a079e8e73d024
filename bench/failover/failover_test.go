package main

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestRowsAreJudgedByTheNewPrimary(t *testing.T) {
	began := time.Now().Add(-time.Hour)
	id := make([]uuid.UUID, 6)
	for n := range id {
		id[n] = uuid.Must(uuid.NewV7())
	}
	seen := &tally{rows: make(map[uuid.UUID]int)}
	for _, r := range []record{
		{row{id[0], "k", 1}, began},
		{row{id[1], "k", 2}, began},
		{row{id[1], "k", 2}, began}, // a repeat
		{row{id[2], "k", 4}, began}, // the new primary does not have it
		{row{id[3], "k", 3}, began}, // behind a later one
		{row{id[4], "other", 1}, began.Add(time.Hour)},
	} {
		seen.add(r)
	}
	there := make(map[uuid.UUID]struct{})
	for _, n := range []int{0, 1, 3, 4, 5} {
		there[id[n]] = struct{}{}
	}
	require.Equal(t, result{lost: 1, ahead: 1, repeated: 1, reordered: 1}, seen.judge(there))
}

func TestEveryScenarioHasANameOfItsOwn(t *testing.T) {
	names := make(map[string]bool)
	for _, c := range scenarios() {
		require.False(t, names[c.name()], c.name())
		require.LessOrEqual(t, len(c.name()), table.Width)
		names[c.name()] = true
	}
}
