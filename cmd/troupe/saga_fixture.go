package main

import (
	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/fixture"
)

func newSagaFixture() *cobra.Command {
	var f sagaFlags
	cmd := &cobra.Command{
		Use:   "fixture <saga>",
		Short: "Print a saga's history as a Go test that replays it",
		Long: `fixture prints a Go file that replays the saga's history with package saga/sagatest: the same variables, messages
and actions after the same times, the effects of each, and the final state of the saga. The file contains
the saga's variables and messages: check them for confidential data before you commit it.`,
		Example: `  troupe saga fixture order/o-1001 > order_o1001_test.go`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDesk(cmd, f.openSagas, func(desk *sagadesk.Desk) error {
				text, err := fixture.Of(cmd.Context(), desk, args[0])
				if err == nil {
					_, err = cmd.OutOrStdout().Write(text)
				}
				return failed(err)
			})
		},
	}
	f.declareDatabase(cmd.Flags())
	return cmd
}
