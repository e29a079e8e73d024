package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/repair"
)

func newExpectation() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "expectation",
		Short: "Find expected events of a flow that are missing or came late",
		Long: `expectation reads the database of one service (--database-url or DATABASE_URL), in which the service records its
declared expectations (docs/choreography.md). It works also while Kafka is away or the service is down.`,
		Example: "  troupe expectation list --status missing",
	}, newExpectationList())
}

func newExpectationList() *cobra.Command {
	var f deskFlags
	var filter repair.ExpectationFilter
	var page repair.Page
	var counts bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List expectations that are waiting, missing or late",
		Long: `list prints expectations, the longest overdue first. Each is waiting (its time is not over), missing (its time is over and
the event has not come) or late (the event came after its time). An event that came in time is not listed. A service deletes the row of an
expectation 7 days after its event was raised or came, or after the Retention of its flow.Config.

troupe trace KEY shows where the messages of a key are.`,
		Example: `  troupe expectation list --status missing
  troupe expectation list --counts
  troupe expectation list --key o-1001 --output json | jq '.expectations[] | .due_at'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := filter.Validate()
			if err == nil {
				err = page.Validate()
			}
			if err != nil {
				return err
			}
			return withDesk(cmd, f.open, func(desk *repair.Desk) error {
				if counts {
					all, err := desk.CountExpectations(cmd.Context(), filter)
					if err != nil {
						return failed(err)
					}
					return expectationCounts.print(cmd, f.output, all)
				}
				all, next, err := desk.Expectations(cmd.Context(), filter, page)
				if err != nil {
					return failed(err)
				}
				return expectationList.printPage(cmd, f.output, all, next)
			})
		},
	}
	flags := cmd.Flags()
	f.declare(cmd)
	flags.StringVar(&filter.Status, "status", "", "only of this status: `"+strings.Join(repair.ExpectationStatuses(), "|")+"`")
	flags.StringVar(&filter.Group, "group", "", "only of this consumer `group`")
	flags.StringVar(&filter.Name, "name", "", "only expectations of this `name`")
	flags.StringVar(&filter.Key, "key", "", "only this `key`")
	flags.BoolVar(&counts, "counts", false, "print their numbers by name, with the earliest due time")
	flags.IntVar(&page.Limit, "limit", 50, "at most `n` lines, up to 10000")
	flags.StringVar(&page.After, "after", "", "go on behind this `mark`, which the page before has printed")
	return cmd
}

var expectationList = listing[repair.Expectation]{
	name: "expectations", ifEmpty: "No expectation matches.",
	head: []string{"STATUS", "EXPECTATION", "KEY", "DUE", "CAME", "ALERT"},
	row: func(e repair.Expectation) []string {
		alert := "-"
		switch {
		case e.AlertAt != nil:
			alert = "waits"
		case e.AlertedAt != nil:
			alert = stamp(*e.AlertedAt)
		}
		return []string{e.Status, oneLine(e.Group+" "+e.Name, 80), oneLine(e.Key, 60), stamp(e.DueAt), stampOf(e.CameAt), alert}
	},
}

var expectationCounts = listing[repair.ExpectationCount]{
	name: "counts", ifEmpty: "No expectation matches.",
	head: []string{"EXPECTATION", "WAITING", "MISSING", "LATE", "OLDEST DUE"},
	row: func(c repair.ExpectationCount) []string {
		return []string{oneLine(c.Group+" "+c.Name, 80), fmt.Sprint(c.Waiting), fmt.Sprint(c.Missing), fmt.Sprint(c.Late), stampOf(c.Oldest)}
	},
}

// stampOf returns the text of a time; nil: a dash.
func stampOf(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return stamp(*at)
}
