package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/saga"
)

func newSagaMigrate() *cobra.Command {
	var f sagaFlags
	var from, to string
	cmd := &cobra.Command{
		Use:   "migrate [file]",
		Short: "Move running sagas to another definition",
		Long: `migrate moves all sagas of a type that have not ended to the given definition: a JSON file, or a stored
definition with --to. With --from it moves only sagas that run on that definition. A saga moves if its whole
history has the same meaning in the new definition; for the others it prints the reason, and they continue
unchanged. --dry-run only prints the result. A move is an entry of the saga's log.

Start the coordinators with the new definition first: a coordinator without it does not consume the events
of hops that only the new one names.`,
		Example: `  troupe saga migrate order.saga.json --dry-run
  troupe saga migrate order.saga.json --reason 'ticket 4711: v2 mends the refund'
  troupe saga migrate --to order --dry-run`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == (to != "") {
				return errors.New("want a definition's file, or --to with the name or hash of one that is stored")
			}
			by, err := f.by(!f.dryRun)
			if err != nil {
				return err
			}
			m := sagadesk.Migration{Actor: by.Name, Reason: by.Reason}
			if len(args) == 1 {
				if m.To, err = readDefinition(args[0]); err != nil {
					return failed(err)
				}
			}
			return withDesk(cmd, f.openSagas, func(desk *sagadesk.Desk) error {
				for _, stored := range []struct {
					name string
					d    **saga.Definition
				}{{to, &m.To}, {from, &m.From}} {
					if stored.name == "" {
						continue
					}
					if *stored.d, err = desk.Definition(cmd.Context(), stored.name); err != nil {
						return failed(err)
					}
				}
				return f.migrate(cmd, desk, m)
			})
		},
	}
	flags := cmd.Flags()
	f.declare(cmd)
	flags.StringVar(&from, "from", "", "only sagas on the stored definition of this `hash` (troupe saga list --counts)")
	flags.StringVar(&to, "to", "", "the stored definition of this `hash`, or the one of this name that was stored last, instead of a file")
	f.declareAction(flags, "they are moved; required without --dry-run")
	f.declareYes(flags)
	return cmd
}

func (f *sagaFlags) migrate(cmd *cobra.Command, desk *sagadesk.Desk, m sagadesk.Migration) error {
	if err := m.Validate(); err != nil {
		return err
	}
	if !f.dryRun {
		what := fmt.Sprintf("move every saga that can move to %s (%.12s), as %s", m.To, m.To.Hash(), m.Actor)
		if err := f.confirm(cmd, what); err != nil {
			return err
		}
	}
	w := cmd.OutOrStdout()
	moves := sagaResults{w: w, output: f.output, verb: "can move", t: newTable(w, "SAGA", "STATUS", "FROM", "MOVE")}
	moves.t.told = true
	do := desk.Plan
	if !f.dryRun {
		moves.verb, do = "moved", desk.Migrate
	}
	err := do(cmd.Context(), m, func(one sagadesk.Move) error {
		return moves.add(one, one.Obstacle, oneLine(one.ID, 60), string(one.Status), fmt.Sprintf("%.12s", one.From))
	})
	if err != nil {
		_ = moves.t.print(w)
		return failed(fmt.Errorf("%w (%d %s before)", err, moves.done, moves.verb))
	}
	if f.output.forPrograms() {
		return f.output.next(w, map[string]any{"to": m.To.Hash(), "moves": moves.done, "stays": moves.stays})
	}
	if err := moves.t.print(w); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "To %s (%.12s): %d %s, %d stay as they are.\n", m.To, m.To.Hash(), moves.done, moves.verb, moves.stays)
	return err
}

// sagaResults prints the sagas of an action on many, and counts them.
type sagaResults struct {
	w           io.Writer
	output      format
	verb        string // of a saga without an obstacle
	t           *table
	done, stays int
}

// add counts a saga and prints it: a row with its result in the last cell, or for programs the value one.
func (r *sagaResults) add(one any, obstacle string, cells ...string) error {
	text := r.verb
	if obstacle == "" {
		r.done++
	} else {
		r.stays++
		text = "stays: " + obstacle
	}
	if r.output.forPrograms() {
		return r.output.next(r.w, one)
	}
	r.t.row(append(cells, oneLine(text, 400))...)
	if (r.done+r.stays)%100 == 0 {
		return r.t.print(r.w) // a million lines are not kept in memory to align them
	}
	return nil
}
