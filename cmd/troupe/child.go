package main

import (
	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/demo/run"
)

// newChild makes the hidden command with which the demo starts child processes: services and relays.
func newChild() *cobra.Command {
	return &cobra.Command{
		Use:                run.ChildCommand,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if status := run.Child(cmd.Context(), args, cmd.ErrOrStderr()); status != exitDone {
				return exit{status: status}
			}
			return nil
		},
	}
}
