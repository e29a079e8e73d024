package main

import (
	"fmt"

	"github.com/spf13/cobra"
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
			desk, end, err := f.open(cmd.Context())
			if err != nil {
				return err
			}
			defer end()
			what, err := f.preview(cmd, desk, filter)
			if err != nil || what == "" {
				return err
			}
			if f.dryRun {
				return f.wouldDo(cmd, "discard "+what+" for good")
			}
			if err := f.confirm(cmd, fmt.Sprintf("discard %s for good, as %s", what, by.Name)); err != nil {
				return err
			}
			n, err := desk.Discard(cmd.Context(), filter, by)
			if err != nil {
				return failed(fmt.Errorf("%w (%d were discarded)", err, n))
			}
			if f.output.forPrograms() {
				return f.output.encode(cmd.OutOrStdout(), map[string]int{"discarded": n})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Discarded: %d.\n", n)
			return err
		},
	}
	flags := cmd.Flags()
	f.declare(cmd)
	chosen.declare(flags)
	flags.BoolVar(&chosen.all, "all", false, "every open dead letter of the database")
	f.declareAction(flags, "nothing more is to be done; required")
	f.declareDryRun(flags)
	f.declareYes(flags)
	return cmd
}
