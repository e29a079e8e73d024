package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/flow/reactions"
)

func newFlowDiff() *cobra.Command {
	var output format
	cmd := &cobra.Command{
		Use:   "diff [flags] OLD NEW",
		Short: "Say what a change of a flow breaks",
		Long: `diff compares what services declare now with what they declared: OLD and NEW are folders, or single files. A change is
breaking where a consumer waits for what is no longer sent, and where flows that are under way lose something: a reaction to
what they have sent, a compensation of what they have done, a join that is filled in part.

Exit status 1 says that something is breaking, 2 that a file cannot be read. Whether the new flow is sound, verify says.`,
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
			changes := reactions.Diff(old, new)
			if output.forPrograms() {
				err = output.encode(cmd.OutOrStdout(), append([]reactions.Change{}, changes...))
			}
			for _, c := range changes {
				if output.forPeople() && err == nil {
					_, err = fmt.Fprintln(cmd.OutOrStdout(), c)
				}
			}
			if err != nil {
				return failed(err)
			}
			if slices.ContainsFunc(changes, func(c reactions.Change) bool { return c.Breaking }) {
				return exit{status: exitFailed}
			}
			return nil
		},
	}
	output.declare(cmd)
	return cmd
}
