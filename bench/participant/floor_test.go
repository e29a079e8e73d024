package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// comments matches the comments of a statement, which may differ.
var comments = regexp.MustCompile(`(?m)^--.*\n`)

// TestTheFloorRunsTheParticipantsStatements compares the floor's copies with the participant's files.
func TestTheFloorRunsTheParticipantsStatements(t *testing.T) {
	for name, ours := range map[string]string{
		"share_lease": shareLease, "insert_offsets": insertOffsets, "insert_recent": insertRecent,
		"move_watermark": moveWatermark, "prune_offsets": pruneOffsets,
	} {
		theirs, err := os.ReadFile("../../participant/sql/" + name + ".sql")
		require.NoError(t, err)
		require.Equal(t, comments.ReplaceAllString(string(theirs), ""), comments.ReplaceAllString(ours, ""), name)
	}
	source, err := os.ReadFile("../../outbox/outbox.go")
	require.NoError(t, err)
	require.Contains(t, string(source), "`\n"+insertOutbox[:len(insertOutbox)-1]+"`", "insert_outbox")
}
