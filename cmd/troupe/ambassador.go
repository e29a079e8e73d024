package main

import (
	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/sagahttp"
	"github.com/troupe-go/troupe/internal/sidecar"
)

// newAmbassador passes all arguments to the sidecar, which has flags, help and exit statuses of its own.
func newAmbassador() *cobra.Command {
	return &cobra.Command{
		Use:                "ambassador",
		Short:              "Connect a service that speaks only HTTP: turn messages into requests, and responses into messages",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			p := sidecar.Program{Args: args, Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr(), Parts: sagahttp.NewServer}
			if status := p.Ambassador(cmd.Context()); status != exitDone {
				return exit{status: status}
			}
			return nil
		},
	}
}
