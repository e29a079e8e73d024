package sidecar

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/plain"
)

func (p Program) pauseCommand() *cobra.Command {
	return p.turnCommand(turn{name: "pause", short: "Pause all relays of the outbox", did: "paused", check: admin.Actor.CheckReasoned, do: desk.Desk.Pause,
		long: `pause makes all relays of the outbox stop publishing until resume: running relays on any machine, and relays
that start later. Rows in flight are finished, leases are kept, and rows wait in the outbox. It needs a
--reason, which troupe.relay_pauses keeps with the operator's name.

POST /pause of the admin port pauses that process only, and ends with it.`,
	})
}

func (p Program) resumeCommand() *cobra.Command {
	return p.turnCommand(turn{name: "resume", short: "Let the relays publish again", did: "resumed", check: admin.Actor.Check, do: desk.Desk.Resume,
		long: `resume ends a pause. The relays continue within a second, with the rows that have waited.`,
	})
}

// A turn is an action that pauses or resumes an outbox.
type turn struct {
	name, short, long, did string
	check                  func(admin.Actor) error
	do                     func(desk.Desk, context.Context, admin.Actor) error
}

func (p Program) turnCommand(t turn) *cobra.Command {
	var by admin.Actor
	var dryRun bool
	cmd := &cobra.Command{
		Use: t.name, Short: t.short, Long: t.long, Args: noArguments,
		Example: `  outbox-relay ` + t.name + ` --reason 'ticket 4711: the brokers are moved'`,
	}
	declareOne(cmd, parkedSettings...)
	declareBy(cmd, &by)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the current state, and do nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !dryRun {
			if err := checkBy(&by, t.check); err != nil {
				return err
			}
		}
		return p.with(cmd, func(ctx context.Context, on asked) error {
			if dryRun {
				return p.wouldTurn(ctx, on, t)
			}
			if err := t.do(on.Desk, ctx, by); err != nil {
				return err
			}
			if on.form == "json" {
				return printJSON(p.Stdout, map[string]any{"done": t.did, "actor": by.Name, "reason": by.Reason})
			}
			_, err := fmt.Fprintln(p.Stdout, t.did)
			return err
		})
	}
	return cmd
}

// wouldTurn prints whether the outbox is paused, and the last pause or resume with its actor.
func (p Program) wouldTurn(ctx context.Context, on asked, t turn) error {
	turns, err := on.Turns(ctx, 1)
	if err != nil {
		return err
	}
	if on.form == "json" {
		return printJSON(p.Stdout, map[string]any{"done": "", "last": turns})
	}
	last := "it was never paused"
	if len(turns) > 0 {
		last = fmt.Sprintf("the last was %s by %s: %s", turns[0].Action, plain.Line(turns[0].Actor, admin.MaxName), plain.Line(turns[0].Reason, admin.MaxReason))
	}
	_, err = fmt.Fprintf(p.Stdout, "%s would apply to all relays of the outbox; nothing was done: %s\n", t.name, last)
	return err
}
