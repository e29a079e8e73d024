package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/flow/verify"
	"github.com/troupe-go/troupe/internal/rule"
)

func newFlowVerify() *cobra.Command {
	var output format
	cmd := &cobra.Command{
		Use:   "verify [flags] FILE…",
		Short: "Verify a flow before it runs",
		Long: `verify examines the services of a flow together, and reports errors between them: messages without a consumer or without a
sender, failures after which a step is not compensated, cycles without an end, two owners of retries, joins that wait for ever,
expectations that are never met. Give it the files of all services of the flow: the messages of a missing service count as never sent.
docs/flow-reference.md describes each rule.

Exit status: 0 no errors (warnings do not count), 1 errors, 2 a file cannot be read.`,
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
			if slices.ContainsFunc(found, func(f verify.Finding) bool { return f.Severity == rule.Error }) {
				return exit{status: exitFailed}
			}
			return nil
		},
	}
	output.declare(cmd)
	return cmd
}
