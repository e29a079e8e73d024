package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/repair"
)

func newInbox() *cobra.Command {
	return parent(&cobra.Command{
		Use:     "inbox",
		Short:   "Find out how a message was handled",
		Example: "  troupe inbox find 0199a5e0-7c1d-7d3a-9d0b-6f3b1c2d4e5f",
	}, newInboxFind())
}

func newInboxFind() *cobra.Command {
	var f deskFlags
	var source string
	cmd := &cobra.Command{
		Use:   "find <message id>",
		Short: "Find out whether a message was handled, is held, or is a dead letter",
		Long: `find searches the database of one service (--database-url or DATABASE_URL) for a message by its id (ce_id; for a message
without one, topic id/partition/offset). Several messages with different sources (ce_source) may have the same id, if it is
no UUID: --source selects one of them.

Exit status: 0 it was found, 1 it was not, or the search failed, 2 wrong usage.`,
		Example: `  troupe inbox find 0199a5e0-7c1d-7d3a-9d0b-6f3b1c2d4e5f
  troupe inbox find charge-17 --source billing --output json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDesk(cmd, f.open, func(desk *repair.Desk) error {
				found, more, err := desk.Find(cmd.Context(), args[0])
				if err != nil {
					return failed(err)
				}
				if source != "" { // an entry that an earlier version stored without its source may be this message's
					identity := envelope.Message{Source: source, ID: args[0]}.Identity()
					found = slices.DeleteFunc(found, func(s repair.Sighting) bool { return s.Identity != identity && s.Identity != args[0] })
				}
				if more {
					_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "The id is in more places than were searched: see troupe dlq list and troupe held list")
				}
				if f.output.forPrograms() {
					if err := f.output.encode(cmd.OutOrStdout(), orEmpty(found)); err != nil || len(found) > 0 {
						return err
					}
				}
				if len(found) == 0 && more {
					return failed(fmt.Errorf("%s is not in the places that were searched", oneLine(args[0], 200)))
				}
				if len(found) == 0 {
					return failed(fmt.Errorf("%s is not known here: it has not come yet, waits on a retry topic, or was handled so long ago that the inbox has forgotten it",
						oneLine(args[0], 200)))
				}
				return printSightings(cmd, args[0], found)
			})
		},
	}
	f.declare(cmd)
	cmd.Flags().StringVar(&source, "source", "", "`ce_source` of the message, where its id is no UUID (default: any)")
	return cmd
}

func printSightings(cmd *cobra.Command, id string, found []repair.Sighting) error {
	t := newTable(cmd.OutOrStdout(), "GROUP", "REDRIVES", "STATE", "AT", "MORE")
	for _, s := range found {
		about := ""
		switch {
		case s.Letter != nil:
			about = fmt.Sprintf("%s, %s: %s", s.Letter, s.Status, oneLine(s.Error, 80))
		case s.Place != nil && s.NextTry != nil:
			about = fmt.Sprintf("%s, next try %s: %s", s.Place, stamp(*s.NextTry), oneLine(s.Error, 80))
		case s.Place != nil:
			about = fmt.Sprintf("%s, waits behind another of its key", s.Place)
		}
		if s.Identity != id {
			about = strings.TrimSuffix(oneLine(s.Identity, 100)+", "+about, ", ")
		}
		t.row(oneLine(s.Group, 60), fmt.Sprint(s.Redrive), string(s.State), stamp(s.At), about)
	}
	return t.print(cmd.OutOrStdout())
}
