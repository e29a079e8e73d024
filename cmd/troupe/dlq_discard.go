package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/repair"
)

func newDLQDiscard() *cobra.Command {
	var f deskFlags
	var chosen filterFlags
	cmd := &cobra.Command{
		Use:   "discard [id…]",
		Short: "Give dead letters up: they are not redriven any more",
		Long: `discard removes the selected dead letters from the list of open ones for good: they cannot be redriven any
more. They stay in the table with their payload, the operator's name and the reason.`,
		Example: `  troupe dlq discard 019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e5f --reason 'test order of ours'
  troupe dlq discard --cause 5f0c1d2e3a4b --reason 'ticket 4711: sent again by the producer'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := chosen.forAction(cmd, args)
			if err != nil {
				return err
			}
			by, err := f.by(true)
			if err != nil {
				return err
			}
			return withDesk(cmd, f.open, func(desk *repair.Desk) error {
				what, err := f.preview(cmd, desk, filter)
				if err != nil || what == "" {
					return err
				}
				if goOn, err := f.agree(cmd, "discard "+what+" for good", by); !goOn || err != nil {
					return err
				}
				n, err := desk.Discard(cmd.Context(), filter, by)
				if err != nil {
					return failed(fmt.Errorf("%w (%d were discarded)", err, n))
				}
				return f.output.result(cmd, map[string]int{"discarded": n}, "Discarded: %d.\n", n)
			})
		},
	}
	flags := cmd.Flags()
	f.declare(cmd)
	chosen.declare(flags)
	flags.BoolVar(&chosen.all, "all", false, "every open dead letter of the database")
	f.declareAction(flags, "nothing more is to be done; required")
	f.declareYes(flags)
	return cmd
}
