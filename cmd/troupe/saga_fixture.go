package main

import (
	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/fixture"
)

func newSagaFixture() *cobra.Command {
	var f sagaFlags
	cmd := &cobra.Command{
		Use:   "fixture <saga>",
		Short: "Write a saga's history as a Go test that plays it again",
		Long: `fixture prints a Go file that plays the saga's history on package saga/sagatest: the same variables, messages
and actions after the same times, what followed from each, and how the saga stands in the end. The file
has the saga's variables and messages in it, as they are: look at them before you commit it.`,
		Example: `  troupe saga fixture order/o-1001 > order_o1001_test.go`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			desk, end, err := f.openSagas(cmd.Context())
			if err != nil {
				return err
			}
			defer end()
			text, err := fixture.Of(cmd.Context(), desk, args[0])
			if err == nil {
				_, err = cmd.OutOrStdout().Write(text)
			}
			if err != nil {
				return failed(err)
			}
			return nil
		},
	}
	f.declareDatabase(cmd.Flags())
	return cmd
}
