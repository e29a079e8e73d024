package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/repair"
)

// progressEvery is the interval at which a long redrive reports its progress.
const progressEvery = 2 * time.Second

func newDLQRedrive() *cobra.Command {
	var f deskFlags
	var chosen filterFlags
	var rate float64
	var sameKey bool
	cmd := &cobra.Command{
		Use:   "redrive [id…]",
		Short: "Send dead letters to their topic again",
		Long: `redrive sends the selected dead letters to the topics they came from, in the order in which they failed,
through the outbox: a relay must run. Dead letters that are made after its start are left out. Each
message has a transaction of its own, so you may interrupt the command; run it again for the rest.

A message that was edited is another request to a service that its handler calls: the handler gets it
with another idempotency key, or the service would repeat its answer to the message before the edit.
If that request may have taken effect there, and must not do so twice, say --same-key.

Exit status: 0 all were sent, 1 some or all were not, 2 wrong usage.`,
		Example: `  troupe dlq redrive 019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e5f
  troupe dlq redrive --cause 5f0c1d2e3a4b --rate 20 --reason 'ledger is back, ticket 4711'
  troupe dlq redrive --hop order.payment --class timeout --since 6h --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := chosen.forAction(cmd, args)
			if err != nil {
				return err
			}
			if !(rate > 0 && rate <= 1e6) { // the comparison also refuses NaN
				return fmt.Errorf("--rate %g: want more than 0, at most 1000000", rate)
			}
			by, err := f.by(false)
			if err != nil {
				return err
			}
			return redrive(cmd, &f, filter, repair.RedriveConfig{By: by, Rate: rate, SameKey: sameKey})
		},
	}
	flags := cmd.Flags()
	f.declare(cmd)
	chosen.declare(flags)
	flags.BoolVar(&chosen.all, "all", false, "every open dead letter of the database")
	flags.Float64Var(&rate, "rate", 50, "at most `n` a second")
	flags.BoolVar(&sameKey, "same-key", false, "send an edited message with the idempotency key of the original: a service outside that answered the original repeats its answer")
	f.declareAction(flags, "they are sent again")
	f.declareYes(flags)
	return cmd
}

func redrive(cmd *cobra.Command, f *deskFlags, filter repair.Filter, cfg repair.RedriveConfig) error {
	return withDesk(cmd, f.open, func(desk *repair.Desk) error {
		what, err := f.preview(cmd, desk, filter)
		if err != nil || what == "" {
			return err
		}
		if goOn, err := f.agree(cmd, fmt.Sprintf("redrive %s, at most %g a second", what, cfg.Rate), cfg.By); !goOn || err != nil {
			return err
		}
		said := time.Now()
		cfg.Progress = func(r repair.RedriveResult) {
			if time.Since(said) >= progressEvery {
				said = time.Now()
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "redriven %d of %d\n", r.Redriven, r.Total)
			}
		}
		r, err := desk.Redrive(cmd.Context(), filter, cfg)
		if err != nil {
			return failed(fmt.Errorf("%w\n%d of %d were redriven. %s", err, r.Redriven, r.Total, adviceForRest(filter, r.Before)))
		}
		w := cmd.OutOrStdout()
		if f.output.forPrograms() {
			err = f.output.encode(w, r)
		} else {
			_, err = fmt.Fprintf(w, "Redriven: %d of %d.\n", r.Redriven, r.Total)
			for _, refusal := range r.Refusals {
				_, _ = fmt.Fprintf(w, "Refused:  %s: %s\n", refusal.ID, oneLine(refusal.Err, 500))
			}
		}
		if err == nil && r.Refused > 0 {
			err = fmt.Errorf("%d were not redriven", r.Refused)
		}
		return failed(err)
	})
}

// adviceForRest returns how to redrive the rest after a redrive that ended early. before is the time at which that redrive began. The command does
// not take --before with --all. With ids --before has no use: a message that fails again becomes a dead letter with another id.
func adviceForRest(filter repair.Filter, before time.Time) string {
	const again = "Run the same command for the rest"
	instead := ""
	switch {
	case len(filter.IDs) > 0:
		return again
	case filter.IsZero():
		instead = " instead of --all"
	}
	return fmt.Sprintf("%s. Give it --before %s%s, so that it leaves out messages that failed again since", again, before.UTC().Format(time.RFC3339Nano), instead)
}

// preview prints the selection on standard error, and returns it in a few words; "": nothing is selected, and preview has printed
// that.
func (f *deskFlags) preview(cmd *cobra.Command, desk *repair.Desk, filter repair.Filter) (string, error) {
	n, err := desk.Count(cmd.Context(), filter)
	if err != nil {
		return "", failed(err)
	}
	if n == 0 && len(filter.IDs) > 0 && !f.dryRun {
		return counted(len(filter.IDs), "dead letter", "dead letters"), nil // the action reports the errors of each id
	}
	if n == 0 {
		if !f.output.forPrograms() {
			_, _ = fmt.Fprintln(cmd.OutOrStdout(), "No open dead letters fit: there is nothing to do.")
			return "", nil
		}
		return "no dead letters", nil
	}
	if !f.yes || f.dryRun {
		causes, next, err := desk.Causes(cmd.Context(), filter, repair.Page{Limit: 10})
		if err == nil {
			err = causeTable(cmd.ErrOrStderr(), causes)
		}
		if err != nil {
			return "", failed(err)
		}
		if next != "" {
			_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "…")
		}
	}
	return counted(n, "dead letter", "dead letters"), nil
}
