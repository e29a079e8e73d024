package main

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/saga"
)

func newSagaStart() *cobra.Command {
	a := &sagaAction{kind: saga.Started}
	var data []string
	var fields string
	var request sagadesk.StartRequest
	cmd := &cobra.Command{
		Use:   "start <definition> <key>",
		Short: "Start a saga",
		Long: `start begins a saga in the same way as its service: state, log and first commands are written in one transaction, and no
step has run when it returns. Name the definition by its saga, for the one that was stored last (by a coordinator at its start, or
by migrate), or by its hash (troupe saga list --counts). The key is the value of the variable that the definition declares as its
key. Set other variables with --data name=value, each in the form of its type, or as an object in --json; --data overrides --json.

You may repeat the command: if a saga of that key exists, even an ended one, nothing is started, the variables are ignored, and the
exit status is 0. If a service writes rows of its own with a saga, such as the order service, let the service start it.`,
		Example: `  troupe saga start order o-1001 --data customer_id=c-7 --data amount_cents=1999 --reason 'ticket 4711' --dry-run
  troupe saga start order o-1001 --json '{"customer_id": "c-7", "amount_cents": 1999}' --reason 'ticket 4711'
  troupe saga start order o-1001 --data customer_id=c-7 --hop order.order --reason 'the first of all'`,
		Args: cobra.ExactArgs(2),
	}
	flags := cmd.Flags()
	a.declare(cmd)
	a.declareRegistry(flags)
	a.declareAction(flags, "it is started; required")
	flags.StringArrayVar(&data, "data", nil, "`name=value` of a variable, repeatable")
	flags.StringVar(&fields, "json", "", "variables as a `JSON` object")
	flags.StringVar(&request.Hop, "hop", "", "the coordinator's `hop`, flow.name (default: the hop of the existing sagas of this type)")
	flags.StringVar(&request.Group, "group", "", "the coordinator's consumer `group`, with --hop (default: the hop)")
	flags.BoolVar(&request.Avro, "avro", false, "with --hop: the payloads of the flow have schemas in the registry, whatever their format")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if request.Hop == "" && (request.Group != "" || request.Avro) {
			return errors.New("--group and --avro need --hop: set that too")
		}
		by, err := a.by(true)
		if err != nil {
			return err
		}
		request.Actor, request.Reason = by.Name, by.Reason
		return withDesk(cmd, a.openSagas, func(desk *sagadesk.Desk) error {
			if request.Definition, err = desk.Definition(cmd.Context(), args[0]); err != nil {
				return failed(err)
			}
			if request.Fields, err = startFields(request.Definition, args[1], fields, data); err != nil {
				return err
			}
			start := desk.Start
			if a.dryRun {
				start = desk.PreviewStart
			}
			done, err := start(cmd.Context(), request)
			if err != nil {
				return failed(err)
			}
			if done.Effects.Ignored == "" {
				return a.print(cmd.OutOrStdout(), "", done, a.dryRun)
			}
			w := cmd.OutOrStdout()
			if a.output.forPrograms() {
				return a.output.encode(w, map[string]any{
					"saga": done.ID, "done": false, "ignored": done.Effects.Ignored, "status": done.State.Status, "steps": done.State.Steps,
				})
			}
			_, err = fmt.Fprintf(w, "There is %s already, %s: nothing was started.\n", oneLine(done.ID, 200), done.State.Status)
			return err
		})
	}
	return cmd
}

// startFields merges the variables of the flags.
func startFields(d *saga.Definition, key, text string, data []string) (fields map[string]any, err error) {
	if text != "" {
		if fields, err = saga.ReadFields([]byte(text)); err != nil {
			return nil, fmt.Errorf("--json: %w: want an object such as '{\"customer_id\": \"c-7\"}'", err)
		}
	}
	given := make(map[string]any)
	for _, one := range data {
		name, value, ok := strings.Cut(one, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--data %s: want name=value", oneLine(one, 60))
		}
		given[name] = value
		if t := d.Spec().Data[name]; t != saga.String && t != "" { // an unknown variable is refused with the rest
			read, err := saga.ReadFields([]byte(`{"v":` + value + `}`))
			if err != nil || len(read) != 1 {
				return nil, fmt.Errorf("--data %s: want a value of type %s", oneLine(one, 60), t)
			}
			given[name] = read["v"]
		}
	}
	if fields == nil {
		fields = make(map[string]any)
	}
	maps.Copy(fields, given)
	return d.WithKey(fields, key)
}
