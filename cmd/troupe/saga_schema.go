package main

import (
	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/saga"
)

func newSagaSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of definitions",
		Long: `schema prints the JSON Schema (draft 2020-12) of files *.saga.json, for editors and for validators of
other languages. docs/saga-reference.md describes the same fields.`,
		Example: "  troupe saga schema > saga.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(saga.Schema())
			return err
		},
	}
}
