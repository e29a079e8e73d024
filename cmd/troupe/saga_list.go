package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/saga"
)

func newSagaList() *cobra.Command {
	var f sagaFlags
	var filter sagadesk.Filter
	var page sagadesk.Page
	var statuses []string
	var after, before, still time.Time
	var counts bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List sagas, newest first",
		Example: `  troupe saga list --status parked
  troupe saga list --status running,compensating --not-moved-since 1h --oldest
  troupe saga list --key o-1001
  troupe saga list --counts
  troupe saga list --status parked --output json | jq -r '.sagas[].id'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, s := range statuses {
				filter.Statuses = append(filter.Statuses, saga.Status(s))
			}
			filter.StartedAfter, filter.StartedBefore, filter.NotMovedSince = after, before, still
			if err := filter.Validate(); err != nil {
				return err
			}
			if err := page.Validate(); err != nil {
				return err
			}
			return withDesk(cmd, f.openSagas, func(desk *sagadesk.Desk) error {
				if counts {
					return failed(printCounts(cmd, desk, f.output))
				}
				return failed(printSagas(cmd, desk, filter, page, f.output))
			})
		},
	}
	flags := cmd.Flags()
	f.declare(cmd)
	flags.StringVar(&filter.Saga, "saga", "", "only of this `type`")
	flags.StringSliceVar(&statuses, "status", nil, "only of this status, repeatable: `waiting|running|compensating|parked|completed|compensated|abandoned`")
	flags.StringVar(&filter.Key, "key", "", "only of this business `key`")
	flags.StringVar(&filter.Step, "step", "", "only where this `step` is awaited or stuck")
	flags.StringVar(&filter.Definition, "definition", "", "only sagas on the definition of this `hash` that have not ended; with --status also ended ones")
	flags.StringVar(&filter.Variable, "variable", "", "only sagas that have not ended, and have, or had before a set, the --value in this `variable`, by which events find them")
	flags.StringVar(&filter.Value, "value", "", "the `value` of --variable")
	momentVar(flags, &after, "since", "only sagas that started at this `time` or later: 2026-01-31T12:00:00Z, or 2h for two hours ago")
	momentVar(flags, &before, "before", "only sagas that started before this `time`")
	momentVar(flags, &still, "not-moved-since", "only sagas that have not ended, and have not changed since this `time`")
	flags.BoolVar(&page.Oldest, "oldest", false, "oldest first")
	flags.BoolVar(&counts, "counts", false, "number of sagas of each type and status, and on each definition")
	flags.IntVar(&page.Limit, "limit", 50, "at most `n` lines, up to 10000")
	flags.StringVar(&page.After, "after", "", "go on behind this `mark`, which the page before has printed")
	return cmd
}

func printSagas(cmd *cobra.Command, desk *sagadesk.Desk, filter sagadesk.Filter, page sagadesk.Page, output format) error {
	sagas, next, err := desk.List(cmd.Context(), filter, page)
	if err != nil {
		return err
	}
	return sagaList.printPage(cmd, output, sagas, next)
}

var sagaList = listing[sagadesk.Row]{
	name: "sagas", ifEmpty: "No sagas.",
	head: []string{"SAGA", "STATUS", "STEPS", "STARTED", "MOVED", "REASON"},
	row: func(s sagadesk.Row) []string {
		return []string{oneLine(s.ID, 60), string(s.Status), cmp.Or(oneLine(strings.Join(s.Steps, ","), 40), "-"), stamp(s.StartedAt),
			ago(time.Since(s.UpdatedAt)), oneLine(s.Reason, 100)}
	},
}

// ago formats the age d for people.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return fmt.Sprintf("%dd ago", int(d.Hours()/24))
}

func printCounts(cmd *cobra.Command, desk *sagadesk.Desk, output format) error {
	counts, err := desk.Counts(cmd.Context())
	if err != nil {
		return err
	}
	uses, err := desk.Definitions(cmd.Context())
	if err != nil {
		return err
	}
	stash, err := desk.Stash(cmd.Context())
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if output.forPrograms() {
		return output.encode(w, map[string]any{"counts": orEmpty(counts), "definitions": orEmpty(uses), "stash": orEmpty(stash)})
	}
	t := newTable(w, "SAGA", "STATUS", "COUNT")
	for _, c := range counts {
		t.row(oneLine(c.Saga, 60), string(c.Status), fmt.Sprint(c.Count))
	}
	err = t.print(w)
	t = newTable(w, "DEFINITION", "STORED", "NOT ENDED", "HASH")
	for _, u := range uses {
		t.row(fmt.Sprintf("%s v%d", oneLine(u.Saga, 60), u.Version), stamp(u.StoredAt), fmt.Sprint(u.Open), u.Definition)
	}
	_, _ = fmt.Fprintln(w)
	if err == nil {
		err = t.print(w)
	}
	if err == nil && len(stash) > 0 {
		err = printStash(w, stash)
	}
	return err
}

func printStash(w io.Writer, stash []sagadesk.StashCount) error {
	t := newTable(w, "EVENTS BEFORE THEIR SAGA", "BY", "COUNT", "FIRST EXPIRES")
	for _, s := range stash {
		t.row(oneLine(s.Saga, 60), cmp.Or(s.Variable, "key"), fmt.Sprint(s.Count), stamp(s.Expires))
	}
	_, _ = fmt.Fprintln(w)
	return t.print(w)
}

func orEmpty[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}
