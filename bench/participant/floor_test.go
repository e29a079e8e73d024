package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The floor must run the participant's own statements.
func TestTheFloorRunsTheParticipantsStatements(t *testing.T) {
	for name, ours := range map[string]string{
		"enter": enter, "insert_offsets": insertOffsets, "insert_recent": insertRecent,
		"move_watermark": moveWatermark, "prune_offsets": pruneOffsets,
	} {
		theirs, err := os.ReadFile("../../participant/sql/" + name + ".sql")
		require.NoError(t, err)
		require.Equal(t, string(theirs), ours, name)
	}
	source, err := os.ReadFile("../../outbox/outbox.go")
	require.NoError(t, err)
	require.Contains(t, string(source), "`\n"+insertOutbox[:len(insertOutbox)-1]+"`", "insert_outbox")
}
