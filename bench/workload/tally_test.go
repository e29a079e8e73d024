package workload

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestRowsAreJudgedByTheDatabase(t *testing.T) {
	began := time.Now().Add(-time.Hour)
	id := make([]uuid.UUID, 6)
	for n := range id {
		id[n] = uuid.Must(uuid.NewV7())
	}
	seen := &tally{}
	for _, r := range []record{
		{row{id[0], "k", 1}, began, began},
		{row{id[1], "k", 2}, began, began},
		{row{id[1], "k", 2}, began, began}, // a repeat
		{row{id[2], "k", 4}, began, began}, // the database does not have it
		{row{id[3], "k", 3}, began, began}, // behind a later one
		{row{id[4], "other", 1}, began.Add(time.Hour), began},
	} {
		seen.add(r)
	}
	there := make(map[uuid.UUID]struct{})
	for _, n := range []int{0, 1, 3, 4, 5} {
		there[id[n]] = struct{}{}
	}
	require.Equal(t, Result{Lost: 1, Ahead: 1, Repeated: 1, Reordered: 1}, seen.judge(there))
}

func TestTheLongestPauseCountsTheOneThatHasNotEnded(t *testing.T) {
	began := time.Now()
	p := &pauses{}
	for _, after := range []time.Duration{0, 2, 3} {
		p.note(began.Add(after * time.Second))
	}
	require.InDelta(t, 2, p.longest(began.Add(4*time.Second)), 0.001)
	require.InDelta(t, 6, p.longest(began.Add(10*time.Second)), 0.001)
}
