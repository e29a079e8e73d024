package main

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/flow/verify"
)

func newFlowVerify() *cobra.Command {
	var output string
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
			if output != "text" && output != "json" {
				return fmt.Errorf("--output %q: want text or json", output)
			}
			files, err := readReactions(paths)
			if err != nil {
				return err
			}
			_, found := verify.Files(files)
			if output == "json" {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetEscapeHTML(false)
				if found == nil {
					found = []verify.Finding{}
				}
				err = enc.Encode(found)
			}
			for _, f := range found {
				if output == "text" && err == nil {
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
	cmd.Flags().StringVar(&output, "output", "text", "how findings are printed: `text|json`")
	return cmd
}
