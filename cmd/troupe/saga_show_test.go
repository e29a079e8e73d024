package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
)

// TestAHistoryShowsTheServersRoleAndTime checks that they are printed if they differ from the entry's own.
func TestAHistoryShowsTheServersRoleAndTime(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		entry coordinator.Entry
		want  string
	}{
		"of a person": {
			coordinator.Entry{At: at, Event: saga.Event{Kind: saga.ActAbandon, Actor: "ann", Reason: "r"}, RecordedAt: at.Add(time.Second), Role: "ops"},
			"  2026-11-24 12:00:00Z  abandon by ann (role ops): r\n",
		},
		"from before the server recorded them": {
			coordinator.Entry{At: at, Event: saga.Event{Kind: saga.ActAbandon, Actor: "ann", Reason: "r"}},
			"  2026-11-24 12:00:00Z  abandon by ann: r\n",
		},
		"with a time of its own": {
			coordinator.Entry{At: at, Moments: []saga.Moment{{What: saga.SagaCompleted}}, RecordedAt: at.Add(11 * time.Minute), Role: "shop"},
			"  2026-11-24 12:00:00Z  SagaCompleted\n  2026-11-24 12:00:00Z  the server wrote this entry at 2026-11-24 12:11:00Z, for role shop\n",
		},
	} {
		var b bytes.Buffer
		printEntry(&b, c.entry)
		require.Equal(t, c.want, b.String(), name)
	}
}
