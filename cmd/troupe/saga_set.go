package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/saga"
)

func newSagaSet() *cobra.Command {
	a := &sagaAction{kind: saga.ActSet, asks: true}
	return a.command(&cobra.Command{
		Use:   "set <saga> <name=JSON>...",
		Short: "Set variables of a saga",
		Long: `set is for a saga that cannot continue with its values, for instance since an expression fails with one of
them. Each value is JSON of the type that the definition declares: a text needs quotes. You cannot set the
variable that is the saga's key, and the saga's lock does not change. A parked saga stays parked: retry its
step, or resume it, and the expression is evaluated with the new values.`,
		Example: `  troupe saga set order/o-1001 quantity=2 'shipment_id="s-17"' --reason 'ticket 4711: corrected by the customer' --dry-run`,
		Args:    cobra.MinimumNArgs(2),
	}, "they are set")
}

// setFields parses variables, each as name=JSON.
func setFields(args []string) (map[string]any, error) {
	fields := make(map[string]any, len(args))
	for _, one := range args {
		name, value, ok := strings.Cut(one, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%s: want name=JSON, such as 'quantity=2' or 'shipment_id=\"s-17\"'", oneLine(one, 60))
		}
		read, err := saga.ReadFields([]byte(`{"v":` + value + `}`))
		if err != nil || len(read) != 1 {
			return nil, fmt.Errorf("%s: want a JSON value: a text has its quotes, such as 'shipment_id=\"s-17\"'", oneLine(one, 60))
		}
		if _, twice := fields[name]; twice {
			return nil, fmt.Errorf("%s: the variable is named twice", oneLine(one, 60))
		}
		fields[name] = read["v"]
	}
	return fields, nil
}
