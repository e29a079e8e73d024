package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/flow"
)

func newFlowDiff() *cobra.Command {
	var output format
	cmd := &cobra.Command{
		Use:   "diff [flags] OLD NEW",
		Short: "List breaking changes between two versions of a flow",
		Long: `diff compares two versions of the services' declarations: OLD and NEW are folders, or single files. A change is breaking if a
consumer waits for a message that is no longer sent, or if a flow in progress loses a reaction to a message that it has sent, the
compensation of a step that it has done, or a join that has some of its messages.

Exit status: 0 no change is breaking, 1 one is, 2 a file cannot be read. To check the new version itself, use verify.`,
		Example: `  git worktree add /tmp/main main && troupe flow diff /tmp/main/services services
  troupe flow diff --output json old new`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, paths []string) error {
			old, err := loadReactions(paths[:1])
			if err != nil {
				return err
			}
			new, err := loadReactions(paths[1:])
			if err != nil {
				return err
			}
			changes := flow.Diff(old, new)
			if output.forPrograms() {
				err = output.encode(cmd.OutOrStdout(), append([]flow.Change{}, changes...))
			}
			for _, c := range changes {
				if output.forPeople() && err == nil {
					_, err = fmt.Fprintln(cmd.OutOrStdout(), c)
				}
			}
			if err != nil {
				return failed(err)
			}
			if slices.ContainsFunc(changes, func(c flow.Change) bool { return c.Breaking }) {
				return exit{status: exitFailed}
			}
			return nil
		},
	}
	output.declare(cmd)
	return cmd
}
