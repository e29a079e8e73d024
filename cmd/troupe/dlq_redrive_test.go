package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/repair"
)

// A redrive that ended early prints the command for the rest. The command takes the flags that it prints.
func TestTheAdviceForTheRestOfARedriveIsACommand(t *testing.T) {
	t.Parallel()
	before := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for name, filter := range map[string]repair.Filter{"--all": {}, "--cause": {Cause: "5f0c1d2e3a4b"}} {
		advice := adviceForRest(filter, before)
		require.Contains(t, advice, "--before 2026-11-28T12:00:00Z", name)
		chosen := filterFlags{filter: filter, all: filter.IsZero() && !strings.Contains(advice, "instead of --all")}
		chosen.before = before
		_, err := chosen.forAction(&cobra.Command{}, nil)
		require.NoError(t, err, name)
	}
	require.Equal(t, "Run the same command for the rest", adviceForRest(repair.Filter{IDs: []uuid.UUID{uuid.New()}}, before))
}
