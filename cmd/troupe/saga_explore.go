package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/explore"
)

func newSagaExplore() *cobra.Command {
	var (
		cfg    explore.Config
		output format
	)
	cmd := &cobra.Command{
		Use:   "explore [flags] FILE",
		Short: "Search all executions of a saga for a violated property",
		Long: `explore runs a definition through every order of messages, duplicates, refusals, deadlines that fire at any moment,
commands that become dead letters and are redriven late or never, and actions of an operator, within the limits of the flags. It runs
no service. docs/explorer.md lists the checked properties, and the limits of the search.

For a violated property it prints the shortest execution that leads to it: as a list, as a Go test, or as a sequence diagram. Then the
exit status is 1, and also if no execution completes the saga. It is 0 if the limit of states was reached before anything was found,
and the output says so. The output lists the steps that never began, the conditions of which only one case occurred, and the answers
that were never used.`,
		Example: `  troupe saga explore order.saga.json
  troupe saga explore --duplicates 1 --buttons 2 --exhausted order.saga.json
  troupe saga explore --exhausted --output mermaid order.saga.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := readDefinition(args[0])
			if err != nil {
				return err
			}
			cfg.Progress = func(r explore.Report) { _, _ = fmt.Fprintln(cmd.ErrOrStderr(), explored(r, "so far")) }
			r, err := explore.Explore(cmd.Context(), d, cfg)
			if err != nil {
				return failed(err)
			}
			if err := printExplored(cmd, r, output, args[0]); err != nil {
				return failed(err)
			}
			if r.Counterexample != nil || r.Unseen.Completed && !r.Bounded {
				return exit{status: exitFailed}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVar(&cfg.Duplicates, "duplicates", 1, "maximum of duplicated messages, 0 to 15")
	flags.IntVar(&cfg.Buttons, "buttons", 0, "maximum of operator actions, 0 to 7")
	flags.BoolVar(&cfg.Exhausted, "exhausted", false, "commands become dead letters, and compensations are refused; dead letters are redriven late or never")
	flags.BoolVar(&cfg.Unordered, "unordered", false, "a topic delivers its messages in any order")
	flags.BoolVar(&cfg.Careless, "careless", false, "the operator resolves and skips without checking the facts")
	flags.IntVar(&cfg.States, "states", 5_000_000, "maximum of states, some 100 bytes each")
	output.declare(cmd, inGo, inMermaid)
	return cmd
}

func printExplored(cmd *cobra.Command, r explore.Report, output format, path string) error {
	w := cmd.OutOrStdout()
	if output.forPrograms() {
		return output.encode(w, r)
	}
	found := ""
	if r.Counterexample != nil {
		found = r.Counterexample.String()
		switch output.is {
		case inGo:
			found = r.Counterexample.GoTest("main_test", path)
		case inMermaid:
			found = r.Counterexample.Mermaid()
		}
	}
	end := "complete"
	switch {
	case r.Counterexample != nil:
		end = "broken"
	case r.Bounded:
		end = "bound reached"
	case r.Unseen.Completed:
		end = "never completed"
	case r.Unseen.Any():
		end = "all searched but for the parts below"
	}
	if !output.forPeople() {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), explored(r, end))
		_, err := io.WriteString(w, found)
		return err
	}
	_, err := fmt.Fprintf(w, "%s%s\n", found, explored(r, end))
	for _, line := range r.Lines() {
		if err == nil {
			_, err = fmt.Fprintf(w, "     %s\n", line)
		}
	}
	return err
}

// explored formats a line about a search.
func explored(r explore.Report, end string) string {
	var ends []string
	for _, status := range slices.Sorted(maps.Keys(r.Ends)) {
		ends = append(ends, fmt.Sprintf("%s %d", status, r.Ends[status]))
	}
	return fmt.Sprintf("%s: %s: %d states, %.0f states/s, depth %d, %s; at rest: %s",
		r.Saga, end, r.States, r.PerSecond(), r.Depth, r.Took.Round(time.Millisecond), strings.Join(ends, ", "))
}
