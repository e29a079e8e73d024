package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/saga"
)

func newSagaDiff() *cobra.Command {
	var output format
	cmd := &cobra.Command{
		Use:   "diff <file> <file>",
		Short: "Show the differences of two definitions",
		Long: `diff prints the changes from the first definition to the second: + added, - removed, ~ changed.
To see which running sagas can be moved to the second, use troupe saga migrate --dry-run.`,
		Example: `  troupe saga diff order.v1.saga.json order.v2.saga.json`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var both [2]*saga.Definition
			for i, path := range args {
				var err error
				if both[i], err = readDefinition(path); err != nil {
					return failed(err)
				}
			}
			changes := saga.Diff(both[0], both[1])
			w := cmd.OutOrStdout()
			if output.forPrograms() {
				return failed(output.encode(w, map[string]any{"from": both[0].Hash(), "to": both[1].Hash(), "changes": orEmpty(changes)}))
			}
			if len(changes) == 0 {
				_, _ = fmt.Fprintln(w, "They are the same.")
			}
			for _, c := range changes {
				_, _ = fmt.Fprintln(w, oneLine(c.String(), 2000))
			}
			return nil
		},
	}
	output.declare(cmd)
	return cmd
}
