package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/repair"
)

func newDLQList() *cobra.Command {
	var f deskFlags
	var chosen filterFlags
	var page repair.Page
	var letters bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, grouped by error",
		Long: `list groups the open dead letters by cause: group, class, handler, and the error with a star in place of
quoted values, UUIDs, hex and numbers. The largest group comes first. With --letters or --cause it
lists single ones, in the order in which they failed.`,
		Example: `  troupe dlq list --since 24h
  troupe dlq list --cause 5f0c1d2e3a4b
  troupe dlq list --letters --status discarded --key o-1001
  troupe dlq list --output json | jq '.causes[] | select(.count > 100)'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := chosen.chosen(cmd, nil)
			if err == nil {
				err = page.Validate()
			}
			if err != nil {
				return err
			}
			return withDesk(cmd, f.open, func(desk *repair.Desk) error {
				if letters || filter.Cause != "" {
					return failed(listLetters(cmd, desk, filter, page, f.output))
				}
				return failed(listCauses(cmd, desk, filter, page, f.output))
			})
		},
	}
	flags := cmd.Flags()
	f.declare(cmd)
	flags.BoolVar(&letters, "letters", false, "list single dead letters")
	chosen.declare(flags)
	flags.StringVar((*string)(&chosen.filter.Status), "status", "", "`open|redriven|discarded|any` (default open)")
	flags.IntVar(&page.Limit, "limit", 50, "at most `n` lines, up to 10000")
	flags.StringVar(&page.After, "after", "", "go on behind this `mark`, which the page before has printed")
	return cmd
}

func listCauses(cmd *cobra.Command, desk *repair.Desk, filter repair.Filter, page repair.Page, output format) error {
	causes, next, err := desk.Causes(cmd.Context(), filter, page)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if output.forPrograms() {
		return output.encode(w, map[string]any{"causes": orEmpty(causes), "next": next})
	}
	if len(causes) == 0 {
		_, err := fmt.Fprintln(w, "No dead letters.")
		return err
	}
	if err := causeTable(w, causes); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(w)
	if total := 0; page.After == "" && next == "" {
		for _, c := range causes {
			total += c.Count
		}
		_, _ = fmt.Fprintf(w, "%s of %s.\n", counted(total, "dead letter", "dead letters"), counted(len(causes), "cause", "causes"))
	}
	_, err = fmt.Fprintf(w, "The single ones: troupe dlq list --cause %s\nOne of them:     troupe dlq show %s\n", causes[0].ID, causes[0].Example)
	more(w, next)
	return err
}

func causeTable(w io.Writer, causes []repair.Cause) error {
	t := newTable(w, "CAUSE", "COUNT", "KEYS", "CLASS", "HANDLER", "FIRST FAILED", "LAST FAILED", "ERROR")
	for _, c := range causes {
		t.row(c.ID, fmt.Sprint(c.Count), fmt.Sprint(c.Keys), c.Class, oneLine(c.Handler, 60), stamp(c.First), stamp(c.Last),
			oneLine(c.Text(), 100))
	}
	return t.print(w)
}

func listLetters(cmd *cobra.Command, desk *repair.Desk, filter repair.Filter, page repair.Page, output format) error {
	letters, next, err := desk.List(cmd.Context(), filter, page)
	if err != nil {
		return err
	}
	return letterList.printPage(cmd, output, letters, next)
}

var letterList = listing[repair.DeadLetter]{
	name: "dead_letters", ifEmpty: "No dead letters.",
	head: []string{"ID", "STATUS", "FAILED", "TRIES", "REDRIVES", "KEY", "TYPE", "ERROR"},
	row: func(l repair.DeadLetter) []string {
		status := string(l.Status)
		if l.Edited {
			status += ", edited"
		}
		return []string{l.ID.String(), status, stamp(l.LastFailed), fmt.Sprint(l.Attempts), fmt.Sprint(l.Redrives), keyText(l.Key),
			oneLine(l.Type, 40), oneLine(l.Error, 80)}
	},
}

func keyText(k repair.Key) string {
	if k == nil {
		return "-"
	}
	return oneLine(k.String(), 40)
}
