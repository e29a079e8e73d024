package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
)

// sagaAction is an operator's action on a saga: the common part of these commands.
type sagaAction struct {
	sagaFlags
	kind   saga.Kind
	asks   bool // it cannot be undone, so the user must confirm it
	result string
	did    string // for resolve: yes or no
	// prepare adds the values to the event of an answer, with the types of the saga's definition, and sets given, the text of
	// both.
	prepare func(*sagadesk.Detail, *saga.Event, []string) error
	given   string
}

// command makes the command. If no step is named, it is the only step that is stuck.
func (a *sagaAction) command(cmd *cobra.Command, why string) *cobra.Command {
	flags := cmd.Flags()
	a.declare(cmd)
	a.declareRegistry(flags)
	a.declareAction(flags, why+"; required")
	if a.asks {
		a.declareYes(flags)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		e, err := a.event(args)
		if err != nil {
			return err
		}
		return withDesk(cmd, a.openSagas, func(desk *sagadesk.Desk) error {
			return a.run(cmd, desk, args, e)
		})
	}
	return cmd
}

// event returns the action with the parts that the command line has.
func (a *sagaAction) event(args []string) (e saga.Event, err error) {
	e.Kind = a.kind
	switch {
	case a.kind == saga.ActSet:
		if e.Fields, err = setFields(args[1:]); err != nil {
			return e, err
		}
	case len(args) > 1:
		e.Step = args[1]
	}
	if a.result != "" {
		if e.Fields, err = saga.ReadFields([]byte(a.result)); err != nil {
			return e, fmt.Errorf("--result: %w: such as '{\"payment_id\": \"p-1\"}'", err)
		}
	}
	switch {
	case a.kind != saga.ActResolve:
	case a.did == "yes":
		e.Happened = true
	case a.did != "no":
		return e, errors.New("--happened is not set: want yes (it took effect) or no (it did not, and never will)")
	case a.result != "":
		return e, errors.New("--result with --happened no: a step that did not happen has no result")
	}
	by, err := a.by(true)
	e.Actor, e.Reason = by.Name, by.Reason
	return e, err
}

// takesStep reports whether the action is on a step.
func (a *sagaAction) takesStep() bool {
	return a.kind == saga.ActRetry || a.kind == saga.ActSkip || a.kind == saga.ActResolve
}

func (a *sagaAction) run(cmd *cobra.Command, desk *sagadesk.Desk, args []string, e saga.Event) error {
	id := args[0]
	before, err := desk.Get(cmd.Context(), id)
	if err != nil {
		return failed(err)
	}
	if a.prepare != nil {
		if err := a.prepare(before, &e, args); err != nil {
			return err
		}
	}
	if a.takesStep() && e.Step == "" {
		stuck := saga.Stuck(before.Definition, before.State)
		if len(stuck) != 1 {
			return fmt.Errorf("name the step: %s are stuck", cmp.Or(strings.Join(stuck, ", "), "-"))
		}
		e.Step = stuck[0]
	}
	would, err := desk.Preview(cmd.Context(), id, e)
	if err != nil {
		return failed(err)
	}
	if a.dryRun {
		return a.print(cmd.OutOrStdout(), before.Status, would, true)
	}
	previewed := "" // not compared
	if a.asks && !a.yes {
		previewed = before.StateHash()
		if err := a.print(cmd.ErrOrStderr(), before.Status, would, true); err != nil {
			return err
		}
		if err := a.confirm(cmd, fmt.Sprintf("%s %s, as %s", e.Kind, id, e.Actor)); err != nil {
			return err
		}
	}
	did, err := desk.ActIfUnchanged(cmd.Context(), id, e, previewed)
	if err != nil {
		return failed(err)
	}
	return a.print(cmd.OutOrStdout(), before.Status, did, false)
}

// print prints the effects of an action, done or not, and the saga's status before, if there was one.
func (a *sagaAction) print(w io.Writer, before saga.Status, d decisions.Decided, dry bool) error {
	fx := d.Effects
	if a.output.forPrograms() {
		return a.output.encode(w, map[string]any{
			"saga": d.ID, "done": !dry, "action": d.Event, "status_before": before, "status": d.State.Status, "steps": d.State.Steps,
			"commands": sends(fx.Commands), "events": emits(fx.Events), "scheduled": orEmpty(fx.Scheduled), "cancelled": orEmpty(fx.Cancelled),
			"moments": orEmpty(fx.Moments), "alert": fx.Alert,
		})
	}
	line := linesTo(w, 10)
	what := string(d.Event.Kind)
	if d.Event.Kind == saga.Started {
		what = "start"
	}
	if d.Event.Step != "" {
		what += " " + d.Event.Step
	}
	if a.given != "" {
		what += " with " + a.given
	}
	if d.Event.Kind == saga.ActSet {
		what += " " + oneLine(strings.Join(slices.Sorted(maps.Keys(d.Event.Fields)), ", "), 200)
	}
	if dry {
		line("would", "%s of %s, by %s: %s", what, oneLine(d.ID, 100), oneLine(d.Event.Actor, 60), oneLine(d.Event.Reason, 200))
	} else {
		line("done", "%s of %s, by %s: %s", what, oneLine(d.ID, 100), oneLine(d.Event.Actor, 60), oneLine(d.Event.Reason, 200))
	}
	for _, s := range fx.Commands {
		fields, _ := json.Marshal(s.Fields)
		note := ""
		if s.Doubt {
			note = " (in doubt)"
		}
		line("sends", "%s to %s, %s %s%s", oneLine(s.Type, 60), s.Hop, s.Step, s.Operation, note)
		line("", "%s", oneLine(string(fields), 200))
	}
	for _, e := range fx.Events {
		hop := cmp.Or(e.Hop, "its own hop")
		fields, _ := json.Marshal(e.Fields)
		line("emits", "%s of %s", oneLine(e.Type, 60), hop)
		line("", "%s", oneLine(string(fields), 200))
	}
	for _, s := range fx.Scheduled {
		line("schedules", "%s at %s", s.Name, stamp(s.At))
	}
	if len(fx.Cancelled) > 0 {
		line("cancels", "%s", strings.Join(fx.Cancelled, ", "))
	}
	switch before {
	case "":
		line("status", "%s", d.State.Status)
	case d.State.Status:
		line("status", "%s, as before", d.State.Status)
	default:
		line("status", "%s, and was %s", d.State.Status, before)
	}
	if fx.Alert != "" {
		line("", "%s", oneLine(fx.Alert, 300))
	}
	if dry {
		_, _ = fmt.Fprintln(w, "Nothing was done.")
	}
	return nil
}

// facts is a command or an event in JSON.
type facts struct {
	Step      string         `json:"step,omitempty"`
	Operation string         `json:"operation,omitempty"`
	Hop       string         `json:"hop,omitempty"`
	Type      string         `json:"type"`
	Doubt     bool           `json:"doubt,omitempty"`
	Fields    map[string]any `json:"fields"`
}

func sends(all []saga.Send) []facts {
	out := make([]facts, len(all))
	for i, s := range all {
		out[i] = facts{s.Step, s.Operation, s.Hop, s.Type, s.Doubt, s.Fields}
	}
	return out
}

func emits(all []saga.Emitted) []facts {
	out := make([]facts, len(all))
	for i, e := range all {
		out[i] = facts{Hop: e.Hop, Type: e.Type, Fields: e.Fields}
	}
	return out
}

const stepArgs = " <saga> [step]"

func newSagaSkip() *cobra.Command {
	a := &sagaAction{kind: saga.ActSkip, asks: true}
	cmd := a.command(&cobra.Command{
		Use:   "skip" + stepArgs,
		Short: "Continue as if a step had been done, or compensated",
		Long: `skip is for a step that an operator has done by hand, or that is not necessary. --result sets the variables
that the step would have set, if later steps read them.`,
		Example: `  troupe saga skip order/o-1001 shipping --result '{"shipment_id": "by-hand-7"}' --reason 'ticket 4711: shipped by hand'`,
		Args:    cobra.RangeArgs(1, 2),
	}, "it is not done by its hop")
	a.declareResult(cmd)
	return cmd
}

func (a *sagaAction) declareResult(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.result, "result", "", "the step's outputs: variables of the saga, as a `JSON` object")
}

func newSagaResolve() *cobra.Command {
	a := &sagaAction{kind: saga.ActResolve, asks: true}
	cmd := a.command(&cobra.Command{
		Use:   "resolve" + stepArgs,
		Short: "State whether a step in doubt took effect",
		Long: `resolve is for a step that was not answered in time, or whose command became a dead letter: check the hop's
data, and state whether the step took effect. With --happened yes the saga continues as if the answer had
come, with the outputs of --result. With no it continues as if the step had been refused: the steps before
it are compensated. For a failed compensation, yes states that the step was undone by hand; no states that
the step has taken effect and is not undone, so that the compensation is sent again and runs, even if its
hop has deleted the record of the step.`,
		Example: `  troupe saga resolve order/o-1001 shipping --happened no --reason 'ticket 4711: the carrier has no such parcel'
  troupe saga resolve order/o-1001 shipping --happened yes --result '{"shipment_id": "s-17"}' --reason 'ticket 4711: it is on its way'`,
		Args: cobra.RangeArgs(1, 2),
	}, "you know it")
	cmd.Flags().StringVar(&a.did, "happened", "", "`yes|no`; required")
	a.declareResult(cmd)
	return cmd
}

func newSagaCompensate() *cobra.Command {
	a := &sagaAction{kind: saga.ActCompensate, asks: true}
	return a.command(&cobra.Command{
		Use:     "compensate <saga>",
		Short:   "Compensate the steps of a saga",
		Long:    `compensate undoes the steps of a saga, parked or not, the last one first. After its pivot a saga cannot be compensated.`,
		Example: `  troupe saga compensate order/o-1001 --reason 'ticket 4711: the customer has cancelled' --dry-run`,
		Args:    cobra.ExactArgs(1),
	}, "it is compensated")
}

func newSagaCancel() *cobra.Command {
	a := &sagaAction{kind: saga.ActCancel, asks: true}
	return a.command(&cobra.Command{
		Use:   "cancel <saga>",
		Short: "Cancel a saga whose definition declares it",
		Long: `cancel undoes a saga on request, if its definition declares that an operator may cancel it. Until the declared
step or a pivot begins, the saga is compensated as if a step had been refused. After that the cancel is
refused, and the saga goes on. Without such a declaration use troupe saga compensate.`,
		Example: `  troupe saga cancel order/o-1001 --reason 'ticket 4711: the customer has called' --dry-run`,
		Args:    cobra.ExactArgs(1),
	}, "it is cancelled")
}

func newSagaResume() *cobra.Command {
	a := &sagaAction{kind: saga.ActResume}
	return a.command(&cobra.Command{
		Use:   "resume <saga>",
		Short: "Continue a parked saga whose cause is removed",
		Long: `resume is for a saga without a stuck step: a deadline or a condition has parked it, or an expression that
failed and would succeed now. If a step is stuck, retry, skip or resolve that step.`,
		Example: `  troupe saga resume order/o-1001 --reason 'ticket 4711: checked by hand'`,
		Args:    cobra.ExactArgs(1),
	}, "it continues")
}

func newSagaAbandon() *cobra.Command {
	a := &sagaAction{kind: saga.ActAbandon, asks: true}
	return a.command(&cobra.Command{
		Use:     "abandon <saga>",
		Short:   "End a saga without compensation",
		Long:    `abandon ends a saga for good: it sends nothing and compensates nothing. You must settle the effects of its steps by hand.`,
		Example: `  troupe saga abandon order/o-1001 --reason 'ticket 4711: settled with the customer by hand'`,
		Args:    cobra.ExactArgs(1),
	}, "it ends without compensation")
}
