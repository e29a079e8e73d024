package sidecar

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/docs/runbooks"
	"github.com/troupe-go/troupe/testkit"
)

// TestTheCommandsOfTheRunbooksAreThere, with the flags and as many arguments as they are given.
func TestTheCommandsOfTheRunbooksAreThere(t *testing.T) {
	t.Parallel()
	commands, err := runbooks.Commands("../../docs/runbooks", "outbox-relay")
	require.NoError(t, err)
	require.Greater(t, len(commands), 15)
	for _, c := range commands {
		cmd, rest, err := (Program{}).root().Find(c.Args[1:])
		require.NoError(t, err, c)
		require.True(t, cmd.HasParent() && cmd.Runnable(), c)
		require.NoError(t, cmd.ParseFlags(rest), c)
		require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), c)
	}
}

// TestTheStatementsOfTheRunbooksRun against the tables that there are.
func TestTheStatementsOfTheRunbooksRun(t *testing.T) {
	t.Parallel()
	commands, err := runbooks.Commands("../../docs/runbooks", "psql")
	require.NoError(t, err)
	require.Greater(t, len(commands), 8)
	pool := testkit.Database(t)
	for _, c := range commands {
		require.Equal(t, []string{"psql", "$DATABASE_URL", "-c"}, c.Args[:3], c)
		_, err := pool.Exec(t.Context(), c.Args[3])
		require.NoError(t, err, c)
	}
}
