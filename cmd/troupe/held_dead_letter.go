package main

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/topics"
)

func newHeldDeadLetter() *cobra.Command {
	var f deskFlags
	var group, hop string
	cmd := &cobra.Command{
		Use:   "dead-letter <place>",
		Short: "Make a held message a dead letter, so that its key goes on",
		Long: `dead-letter makes a dead letter of the message that a key waits for, as if its attempts were used up: with
its exhausted event, which a saga consumes. The messages behind it are handled next. You can redrive the
dead letter later; it then comes after them.`,
		Example: `  troupe held dead-letter order.payment.commands/3/1024 --reason 'ticket 4711: the others of this customer must go on'`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			place, err := repair.ParsePlace(args[0])
			if err != nil {
				return err
			}
			cfg := repair.ReleaseConfig{Group: group}
			if hop != "" {
				if cfg.Hop, err = topics.ParseHop(hop); err != nil {
					return fmt.Errorf("--hop: %w", err)
				}
			}
			if cfg.By, err = f.by(true); err != nil {
				return err
			}
			return withDesk(cmd, f.open, func(desk *repair.Desk) error {
				if f.dryRun {
					return f.wouldDeadLetter(cmd, desk, place, group)
				}
				if err := f.confirm(cmd, fmt.Sprintf("make a dead letter of %s, as %s", place, cfg.By.Name)); err != nil {
					return err
				}
				r, err := desk.Release(cmd.Context(), place, cfg)
				if err != nil {
					return failed(err)
				}
				w := cmd.OutOrStdout()
				switch {
				case f.output.forPrograms():
					return f.output.encode(w, r)
				case r.DeadLetter == uuid.Nil:
					_, err = fmt.Fprintln(w, "The message had taken effect before, and is no longer held. No dead letter was made.")
				default:
					_, err = fmt.Fprintf(w, "Dead letter: %s. Its key goes on with %s.\n", r.DeadLetter, counted(r.Behind, "message", "messages"))
				}
				return err
			})
		},
	}
	flags := cmd.Flags()
	f.declare(cmd)
	flags.StringVar(&group, "group", "", "consumer `group`, where more than one holds the message")
	flags.StringVar(&hop, "hop", "", "`flow.hop` of the participant, where its group has another name")
	f.declareAction(flags, "it becomes a dead letter; required")
	f.declareYes(flags)
	return cmd
}
