package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func newSagaLocks() *cobra.Command {
	var f sagaFlags
	var after string
	var limit int
	cmd := &cobra.Command{
		Use:   "locks",
		Short: "List what sagas have locked, and who waits for it",
		Long: `locks lists the semantic locks by name (the saga, a slash, and what lock in its definition gives). Who has
one keeps it until it ends: where it is parked, those behind it wait for a person, too.`,
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
			if f.output == inJSON {
				return json.NewEncoder(w).Encode(map[string]any{"locks": orEmpty(locks)})
			}
			if len(locks) == 0 {
				_, err := fmt.Fprintln(w, "Nothing is locked.")
				return err
			}
			t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
			_, _ = fmt.Fprintln(t, "LOCK\tSAGA\t\tSINCE")
			for _, l := range locks {
				has := "waits"
				if l.Has {
					has = "has it"
				}
				_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", oneLine(l.Name, 60), oneLine(l.Saga, 60), has, stamp(l.Since))
			}
			return t.Flush()
		},
	}
	flags := cmd.Flags()
	f.declare(flags)
	flags.StringVar(&after, "after", "", "only locks behind this `name`")
	flags.IntVar(&limit, "limit", 1000, "at most `n` lines, up to 10000")
	return cmd
}
