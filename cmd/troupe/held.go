package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/troupe-go/troupe/internal/admin/repair"
)

func newHeld() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "held",
		Short: "List and repair keys that wait for a failed message's next try",
		Long: `held works on one service's database (--database-url or DATABASE_URL). While a message waits for its next
try, all later messages of its key wait behind it. list shows the keys; retry makes the next try due
now; dead-letter makes a dead letter of the message, so that the key goes on. Local work, which reaches
a participant without Kafka, has partition -1 in its place.`,
		Example: `  troupe held list
  troupe held retry order.payment.commands/3/1024
  troupe held dead-letter order.payment.commands/3/1024 --reason 'ticket 4711'`,
	}, newHeldList(), newHeldRetry(), newHeldDeadLetter())
}

// heldFlags holds the flags that select held keys.
type heldFlags struct {
	filter repair.HeldFilter
	key    string
	all    bool
}

func (f *heldFlags) declare(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.filter.Topics, "topic", nil, "only messages of this `topic`, repeatable")
	flags.StringVar(&f.filter.Group, "group", "", "only of this consumer `group`")
	flags.StringVar(&f.filter.Class, "class", "", "only whose last failure was of this class: `"+strings.Join(repair.Classes(), "|")+"`")
	flags.StringVar(&f.key, "key", "", "only this `key`; 0x… for one that is no text")
}

func (f *heldFlags) chosen(cmd *cobra.Command, places []string) (repair.HeldFilter, error) {
	filter := f.filter
	if cmd.Flags().Changed("key") {
		filter.Key = repair.ParseKey(f.key)
	}
	for _, text := range places {
		p, err := repair.ParsePlace(text)
		if err != nil {
			return filter, err
		}
		filter.Places = append(filter.Places, p)
	}
	return filter, filter.Validate()
}

func newHeldRetry() *cobra.Command {
	var f deskFlags
	var chosen heldFlags
	cmd := &cobra.Command{
		Use:   "retry [place…]",
		Short: "Make the next try of held keys due now",
		Long: `retry takes places (topic/partition/offset) as list prints them, or a filter. The participant that has the
partition tries at once; a failed try counts as an attempt. Keys that are being tried at this moment are
left out.`,
		Example: `  troupe held retry order.payment.commands/3/1024
  troupe held retry --group order.payment --class timeout --reason 'ledger is back'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := chosen.chosen(cmd, args)
			if err == nil && filter.IsZero() != chosen.all {
				err = errors.New("nothing selected, or --all with a selection: give places or a filter, or --all alone")
			}
			if err != nil {
				return err
			}
			by, err := f.by(false)
			if err != nil {
				return err
			}
			return withDesk(cmd, f.open, func(desk *repair.Desk) error {
				if f.dryRun {
					return f.wouldRetry(cmd, desk, filter)
				}
				n, err := desk.Retry(cmd.Context(), filter, by)
				if err != nil {
					return failed(err)
				}
				if n == 0 {
					return failed(errors.New("no key was changed: none matches, or the matching ones are being tried right now (troupe held list)"))
				}
				return f.output.result(cmd, map[string]int{"due": n}, "Due now: %s.\n", counted(n, "key", "keys"))
			})
		},
	}
	flags := cmd.Flags()
	f.declare(cmd)
	chosen.declare(flags)
	flags.BoolVar(&chosen.all, "all", false, "every held key of the database")
	f.declareAction(flags, "they are tried now")
	return cmd
}
