package main

import (
	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/demo/run"
)

// newChild is what the demo starts of this program, beside itself: services and relays.
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
