package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/flow/verify"
)

func newFlowVerify() *cobra.Command {
	var output format
	cmd := &cobra.Command{
		Use:   "verify [flags] FILE…",
		Short: "Prove a flow before it runs",
		Long: `verify looks at the services of a flow together, and says what goes wrong between them: messages that nobody hears
or nobody sends, failures after which something stays done, cycles without an end, two owners of retries, joins that wait for
ever, expectations that are never met. Give it the files of all services of the flow: a message of one that is missing is
a message that nobody sends. What each rule is for stands in docs/flow-reference.md.

Exit status 1 says that there are errors (warnings are none), 2 that a file cannot be read.`,
		Example: `  troupe flow verify services/*/reactions.json
  troupe flow verify --output json services`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			files, err := readReactions(paths)
			if err != nil {
				return err
			}
			_, found := verify.Files(files)
			if output.forPrograms() {
				err = output.encode(cmd.OutOrStdout(), orEmpty(found))
			}
			for _, f := range found {
				if output.forPeople() && err == nil {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s:%d: %s\n", f.File, f.Line, f)
				}
			}
			if err != nil {
				return failed(err)
			}
			if slices.ContainsFunc(found, func(f verify.Finding) bool { return f.Severity == verify.Error }) {
				return exit{status: exitFailed}
			}
			return nil
		},
	}
	output.declare(cmd)
	return cmd
}
