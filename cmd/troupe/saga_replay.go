package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
)

func newSagaReplay() *cobra.Command {
	var f sagaFlags
	var all bool
	cmd := &cobra.Command{
		Use:   "replay [saga]",
		Short: "Check that a saga's log and its row agree",
		Long: `replay repeats every decision of a saga's log, with the definitions it ran on, and compares the result with
the saga's row. Each saga is read in one snapshot, so it may continue meanwhile. Nothing is written.
A saga whose data was erased (troupe erase) is counted and not replayed.
Exit status 1 if a row differs from the result: one of the two was changed by hand.`,
		Example: `  troupe saga replay order/o-1001
  troupe saga replay --all --output json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) == 1) {
				return errors.New("want a saga's id or --all")
			}
			return withDesk(cmd, f.openSagas, func(desk *sagadesk.Desk) error {
				r := &replays{cmd: cmd, output: f.output, begun: time.Now()}
				var err error
				if all {
					err = desk.ReplayAll(cmd.Context(), "", r.take)
				} else {
					var one sagadesk.Replayed
					if one, err = desk.Replay(cmd.Context(), args[0]); err == nil {
						err = r.take(one)
					}
				}
				if err != nil {
					return failed(fmt.Errorf("%w (%d had been replayed)", err, r.sagas))
				}
				return r.end()
			})
		},
	}
	f.declare(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "every saga of the database, in the order of their ids")
	return cmd
}

// replays counts the replayed sagas.
type replays struct {
	cmd         *cobra.Command
	output      format
	begun, told time.Time

	sagas, events, differ, erased int
}

func (r *replays) take(one sagadesk.Replayed) error {
	r.sagas++
	r.events += one.Events
	if one.Erased {
		r.erased++
	}
	w := r.cmd.OutOrStdout()
	if one.Difference != "" {
		r.differ++
		if r.output.forPrograms() {
			if err := r.output.next(w, one); err != nil {
				return err
			}
		} else if _, err := fmt.Fprintf(w, "%s: %s\n", oneLine(one.ID, 200), oneLine(one.Difference, 500)); err != nil {
			return err
		}
	}
	if r.told.IsZero() {
		r.told = r.begun
	}
	if now := time.Now(); now.Sub(r.told) >= 5*time.Second {
		r.told = now
		_, _ = fmt.Fprintf(r.cmd.ErrOrStderr(), "replayed %d, up to %s; %d differ\n", r.sagas, oneLine(one.ID, 200), r.differ)
	}
	return nil
}

func (r *replays) end() error {
	w := r.cmd.OutOrStdout()
	var err error
	if r.output.forPrograms() {
		err = r.output.next(w, map[string]int{"sagas": r.sagas, "events": r.events, "differ": r.differ, "erased": r.erased})
	} else {
		_, err = fmt.Fprintf(w, "Replayed: %s, %s. %d differ.\n", counted(r.sagas, "saga", "sagas"), counted(r.events, "event", "events"), r.differ)
		if err == nil && r.erased > 0 {
			_, err = fmt.Fprintf(w, "Not replayed, since their data was erased: %d of them.\n", r.erased)
		}
	}
	if err == nil && r.differ > 0 {
		err = failed(fmt.Errorf("%d of %d are not what their logs give", r.differ, r.sagas))
	}
	return err
}
