package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newSagaLocks() *cobra.Command {
	var f sagaFlags
	var after string
	var limit int
	cmd := &cobra.Command{
		Use:   "locks",
		Short: "List locks of sagas, with the sagas that hold them and wait for them",
		Long: `locks lists the semantic locks by name (the saga's type, a slash, and the value of the expression lock in its definition). A saga
holds its lock until it ends: while it is parked, the sagas behind it wait for an operator, too.`,
		Example: `  troupe saga locks
  troupe saga locks --output json | jq '.locks[] | select(.has | not)'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			desk, end, err := f.openSagas(cmd.Context())
			if err != nil {
				return err
			}
			defer end()
			locks, err := desk.Locks(cmd.Context(), after, limit)
			if err != nil {
				return failed(err)
			}
			w := cmd.OutOrStdout()
			if f.output.forPrograms() {
				return f.output.encode(w, map[string]any{"locks": orEmpty(locks)})
			}
			if len(locks) == 0 {
				_, err := fmt.Fprintln(w, "Nothing is locked.")
				return err
			}
			t := newTable(w, "LOCK", "SAGA", "", "SINCE")
			for _, l := range locks {
				has := "waits"
				if l.Has {
					has = "has it"
				}
				t.row(oneLine(l.Name, 60), oneLine(l.Saga, 60), has, stamp(l.Since))
			}
			return t.print(w)
		},
	}
	flags := cmd.Flags()
	f.declare(cmd)
	flags.StringVar(&after, "after", "", "only locks behind this `name`")
	flags.IntVar(&limit, "limit", 1000, "at most `n` lines, up to 10000")
	return cmd
}
