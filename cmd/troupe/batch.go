package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/repair"
)

func newBatch() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "batch",
		Short: "See and skip batches that are too large when decompressed and block their partition",
		Long: `batch works on one service's database (--database-url or DATABASE_URL), or a watcher's. A compressed batch
that unpacks to more than a participant accepts blocks its partition. list shows these batches; skip
lets the participant, or the watcher, continue behind one.`,
		Example: `  troupe batch list
  troupe batch skip order.payment.commands/3/1024 --reason 'ticket 4711'`,
	}, newBatchList(), newBatchSkip())
}

func newBatchList() *cobra.Command {
	var f deskFlags
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List batches that blocked a partition, the newest first, each with its record if it was skipped",
		Example: `  troupe batch list
  troupe batch list --output json | jq '.batches[] | select(.skipped == null)'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > 10_000 {
				return fmt.Errorf("--limit %d: want 1 to 10000", limit)
			}
			return withDesk(cmd, f.open, func(desk *repair.Desk) error {
				batches, err := desk.Batches(cmd.Context(), limit)
				if err != nil {
					return failed(err)
				}
				return batchList.print(cmd, f.output, batches)
			})
		},
	}
	f.declare(cmd)
	cmd.Flags().IntVar(&limit, "limit", 50, "at most `n` lines, up to 10000")
	return cmd
}

var batchList = listing[repair.UnreadableBatch]{
	name: "batches", ifEmpty: "No batch has blocked a partition.",
	head: []string{"PLACE", "OFFSETS", "BYTES", "GROUP", "FOUND", "SKIPPED", "ACTOR", "REASON"},
	row: func(b repair.UnreadableBatch) []string {
		skipped := "no"
		if b.Skipped != nil {
			skipped = stamp(*b.Skipped)
		}
		return []string{oneLine(b.Place.String(), 200), fmt.Sprint(b.Next - b.Place.Offset), fmt.Sprint(b.Bytes), oneLine(b.Group, 100), stamp(b.Found),
			skipped, oneLine(b.Actor, 40), oneLine(b.Reason, 80)}
	},
}

func newBatchSkip() *cobra.Command {
	var f deskFlags
	var group string
	cmd := &cobra.Command{
		Use:   "skip <place>",
		Short: "Let a participant continue behind a batch that is too large when decompressed",
		Long: `skip takes a place as list prints it. All messages of the batch are lost to the consumer group; the
messages before and behind it are handled. A running participant continues within some seconds, a
stopped one when it runs. The batch stays in its topic: fetch it with another tool, if you need it.`,
		Example: `  troupe batch skip order.payment.commands/3/1024 --dry-run --reason 'ticket 4711'
  troupe batch skip order.payment.commands/3/1024 --reason 'ticket 4711: 200 MB of zeros'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			place, err := repair.ParsePlace(args[0])
			if err != nil {
				return err
			}
			by, err := f.by(true)
			if err != nil {
				return err
			}
			return withDesk(cmd, f.open, func(desk *repair.Desk) error {
				b, err := desk.Batch(cmd.Context(), place, group)
				if err != nil {
					return failed(err)
				}
				what := fmt.Sprintf("skip %s of %s for group %s, from offset %d to %d, in a batch of %s compressed",
					counted(int(b.Next-place.Offset), "offset", "offsets"), oneLine(place.Topic, 200)+"/"+fmt.Sprint(place.Partition), oneLine(b.Group, 100),
					place.Offset, b.Next-1, counted(int(b.Bytes), "byte", "bytes"))
				if goOn, err := f.agree(cmd, what, by); !goOn || err != nil {
					return err
				}
				if b, err = desk.Skip(cmd.Context(), place, b.Group, by); err != nil {
					return failed(err)
				}
				return f.output.result(cmd, b, "Skipped: the participant continues at offset %d.\n", b.Next)
			})
		},
	}
	flags := cmd.Flags()
	f.declare(cmd)
	flags.StringVar(&group, "group", "", "consumer `group`, where more than one found the batch")
	f.declareAction(flags, "the messages of the batch are given up; required")
	f.declareYes(flags)
	return cmd
}
