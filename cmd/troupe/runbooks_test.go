package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/docs/runbooks"
)

// TestTheCommandsOfTheRunbooksAreThere, with the flags and as many arguments as they are given.
func TestTheCommandsOfTheRunbooksAreThere(t *testing.T) {
	t.Parallel()
	commands, err := runbooks.Commands("../../docs/runbooks", "troupe")
	require.NoError(t, err)
	require.Greater(t, len(commands), 30)
	for _, c := range commands {
		cmd, rest, err := newRoot().Find(c.Args[1:])
		require.NoError(t, err, c)
		require.True(t, cmd.HasParent() && cmd.Runnable(), c)
		require.NoError(t, cmd.ParseFlags(rest), c)
		require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), c)
	}
}
