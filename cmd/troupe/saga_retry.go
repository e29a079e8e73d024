package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/saga"
)

func newSagaRetry() *cobra.Command {
	a := &sagaAction{kind: saga.ActRetry}
	var all sagadesk.ParkedRetry
	cmd := a.command(&cobra.Command{
		Use:   "retry {<saga> [step] | --saga <type>}",
		Short: "Send a step's command, or its compensation, again",
		Long: `retry is for a step that was refused, exhausted or not answered in time, and for a compensation that
failed. The command gets a new idempotency key, so that the hop does not treat it as a duplicate. You may
omit the step if only one is stuck. If a dead letter of the command is still open, redrive that instead
(troupe dlq): the saga continues with its outcome, too.

With --saga it retries all stuck steps of all sagas of a type that are parked when it begins, each saga in
one transaction. A saga without a stuck step, or one that changes meanwhile, is not changed, and is listed.
You may interrupt it: run the same command for the sagas that are still parked.

Exit status: 0 all were retried, 1 some or all were not, 2 wrong usage.`,
		Example: `  troupe saga retry order/o-1001 --reason 'the bank is back' --dry-run
  troupe saga retry order/o-1001 payment --reason 'the bank is back'
  troupe saga retry --saga order --reason 'the bank is back' --dry-run
  troupe saga retry --saga order --rate 10 --reason 'the bank is back'`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case all.Saga == "" && cmd.Flags().Changed("rate"):
				return errors.New("--rate is for all parked sagas of a type: name it with --saga")
			case all.Saga != "" && len(args) > 0:
				return errors.New("want a saga, or --saga with a type, and not both")
			case all.Saga != "":
				return nil
			case len(args) == 0:
				return errors.New("want a saga, or --saga with the type of the sagas")
			}
			return cobra.MaximumNArgs(2)(cmd, args)
		},
	}, "it is sent again")
	flags := cmd.Flags()
	flags.StringVar(&all.Saga, "saga", "", "all parked sagas of this `type`")
	flags.Float64Var(&all.Rate, "rate", 50, "with --saga: at most `n` a second")
	a.declareYes(flags)
	one := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if all.Saga == "" {
			return one(cmd, args)
		}
		return a.retryParked(cmd, all)
	}
	return cmd
}

func (f *sagaFlags) retryParked(cmd *cobra.Command, r sagadesk.ParkedRetry) error {
	if !(r.Rate > 0 && r.Rate <= 1e6) { // the comparison also refuses NaN
		return fmt.Errorf("--rate %g: want more than 0, at most 1000000", r.Rate)
	}
	by, err := f.by(true)
	if err != nil {
		return err
	}
	r.Actor, r.Reason = by.Name, by.Reason
	return withDesk(cmd, f.openSagas, func(desk *sagadesk.Desk) error {
		n, err := desk.CountParked(cmd.Context(), r.Saga)
		if err != nil {
			return failed(err)
		}
		what := fmt.Sprintf("retry %s of type %s, at most %g a second, as %s",
			counted(n, "parked saga", "parked sagas"), oneLine(r.Saga, 100), r.Rate, oneLine(r.Actor, 60))
		w := cmd.OutOrStdout()
		t := retries{sagaFlags: f, sagaResults: sagaResults{w: w, output: f.output, verb: "retried", t: newTable(w, "SAGA", "STEPS", "RETRY")}}
		add := func(one sagadesk.RetriedSaga) error {
			return t.add(one, one.Obstacle, oneLine(one.ID, 60), cmp.Or(oneLine(strings.Join(one.Steps, ", "), 100), "-"))
		}
		if f.dryRun {
			t.verb = "can be retried"
			err = desk.PlanRetry(cmd.Context(), r.Saga, add)
		} else {
			if n > 0 {
				if err := f.confirm(cmd, what); err != nil {
					return err
				}
			}
			err = desk.RetryParked(cmd.Context(), r, add)
		}
		return t.end(err)
	})
}

// retries are the results of a retry.
type retries struct {
	*sagaFlags
	sagaResults
}

// end prints the counts, and returns the error of the retry, or an error if a saga was left as it is.
func (r *retries) end(err error) error {
	if len(r.t.rows) > 0 {
		_ = r.t.print(r.w)
	}
	switch {
	case err != nil:
		return failed(fmt.Errorf("%w (%d %s before; run the same command for the rest)", err, r.done, r.verb))
	case r.output.forPrograms():
		err = r.output.next(r.w, map[string]any{"done": !r.dryRun, "retried": r.done, "stays": r.stays})
	case r.done+r.stays == 0:
		_, err = fmt.Fprintln(r.w, "No saga of this type is parked: there is nothing to do.")
	default:
		_, err = fmt.Fprintf(r.w, "%d %s, %d stay as they are.\n", r.done, r.verb, r.stays)
	}
	if err == nil && r.dryRun && !r.output.forPrograms() {
		_, err = fmt.Fprintln(r.w, "Nothing was done.")
	}
	if err == nil && r.stays > 0 && !r.dryRun {
		err = fmt.Errorf("%s not retried", counted(r.stays, "saga was", "sagas were"))
	}
	return failed(err)
}
