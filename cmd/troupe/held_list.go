package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/repair"
)

func newHeldList() *cobra.Command {
	var f deskFlags
	var chosen heldFlags
	var page repair.Page
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List held keys, each with the message it waits for",
		Example: `  troupe held list
  troupe held list --class timeout --output json | jq '.held[] | .place'`,
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
				keys, next, err := desk.Held(cmd.Context(), filter, page)
				if err != nil {
					return failed(err)
				}
				return heldList.printPage(cmd, f.output, keys, next)
			})
		},
	}
	flags := cmd.Flags()
	f.declare(cmd)
	chosen.declare(flags)
	flags.IntVar(&page.Limit, "limit", 50, "at most `n` lines, up to 10000")
	flags.StringVar(&page.After, "after", "", "go on behind this `mark`, which the page before has printed")
	return cmd
}

var heldList = listing[repair.HeldKey]{
	name: "held", ifEmpty: "No key is held.",
	head: []string{"PLACE", "KEY", "TYPE", "TRIES", "NEXT TRY", "BEHIND", "CLASS", "ERROR"},
	row: func(k repair.HeldKey) []string {
		due := "next"
		if k.NextTry != nil {
			due = stamp(*k.NextTry)
			if k.NextTry.Before(time.Now()) {
				due = "now"
			}
		}
		return []string{oneLine(k.Place.String(), 200), keyText(k.Key), oneLine(k.Type, 40), fmt.Sprintf("%d of %d", k.Attempts, k.MaxAttempts), due,
			fmt.Sprint(k.Behind), k.Class, oneLine(k.Error, 80)}
	},
}
