package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
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
			return withDesk(cmd, f.openSagas, func(desk *sagadesk.Desk) error {
				locks, more, err := desk.Locks(cmd.Context(), after, limit)
				if err != nil {
					return failed(err)
				}
				if more {
					_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "There are more: --after the last name, or a larger --limit")
				}
				return lockList.print(cmd, f.output, locks)
			})
		},
	}
	flags := cmd.Flags()
	f.declare(cmd)
	flags.StringVar(&after, "after", "", "only locks behind this `name`")
	flags.IntVar(&limit, "limit", 1000, fmt.Sprintf("at most `n` lines, up to %d", maxLocks))
	return cmd
}

// maxLocks is the largest limit of Desk.Locks.
const maxLocks = 10_000

var lockList = listing[sagadesk.Lock]{
	name: "locks", ifEmpty: "Nothing is locked.",
	head: []string{"LOCK", "SAGA", "", "SINCE"},
	row: func(l sagadesk.Lock) []string {
		has := "waits"
		if l.Has {
			has = "has it"
		}
		return []string{oneLine(l.Name, 60), oneLine(l.Saga, 60), has, stamp(l.Since)}
	},
}
