package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/actions"
)

func newActions() *cobra.Command {
	var f deskFlags
	var filter actions.Filter
	var since, before time.Time
	var page actions.Page
	cmd := &cobra.Command{
		Use:   "actions",
		Short: "List the actions of operators, with actor, time and reason",
		Long: `actions lists the recorded actions of operators on the database of one service (--database-url or DATABASE_URL), the newest
first: on dead letters, held messages, rows of the outbox, relays, sagas, schedules and rebuilds, and erasures, by command, page or program. Actions of one hour with
the same actor, reason and kind of object are one line. It reads the newest 10,000 actions on each kind of object; --before reaches older ones.`,
		Example: `  troupe actions --since 24h
  troupe actions --actor ann --output json | jq '.actions[] | .reason'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter.Since, filter.Before = since, before
			err := filter.Validate()
			if err == nil {
				err = page.Validate()
			}
			if err != nil {
				return err
			}
			pool, _, err := f.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer pool.Close()
			list, next, err := actions.List(cmd.Context(), pool, filter, page)
			if err != nil {
				return failed(err)
			}
			return actionList.printPage(cmd, f.output, list, next)
		},
	}
	flags := cmd.Flags()
	f.declare(cmd)
	flags.StringVar(&filter.Actor, "actor", "", "only actions of this `name`")
	momentVar(flags, &since, "since", "only actions at this `time` or later: 2026-01-31T12:00:00Z, or 2h for two hours ago")
	momentVar(flags, &before, "before", "only actions before this `time`")
	flags.IntVar(&page.Limit, "limit", 50, "at most `n` lines, up to 10000")
	flags.StringVar(&page.After, "after", "", "go on behind this `mark`, which the page before has printed")
	return cmd
}

var actionList = listing[actions.Action]{
	name: "actions", ifEmpty: "No action matches.",
	head: []string{"LAST", "ACTOR", "ACTION", "COUNT", "OBJECT", "SUBJECT", "EXAMPLE", "REASON"},
	row: func(a actions.Action) []string {
		return []string{stamp(a.Last), oneLine(a.Actor, 40), a.Action, fmt.Sprint(a.Count), a.Object, oneLine(a.Subject, 60), oneLine(a.Example, 60), oneLine(a.Reason, 80)}
	},
}
