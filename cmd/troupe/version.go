package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/version"
)

func newVersion() *cobra.Command {
	var output format
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this build",
		Example: "  troupe version --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := version.Read()
			if output.forPrograms() {
				return output.encode(cmd.OutOrStdout(), b)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "troupe %s\n", b)
			return err
		},
	}
	output.declare(cmd)
	return cmd
}
