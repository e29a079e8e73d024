package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// completeValues registers shell completions for flags whose usage lists all their values: `yes|no`.
func completeValues(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if kind, _ := pflag.UnquoteUsage(f); strings.Contains(kind, "|") {
			words := cobra.FixedCompletions(strings.Split(kind, "|"), cobra.ShellCompDirectiveNoFileComp)
			_ = cmd.RegisterFlagCompletionFunc(f.Name, words) // it has no other yet
		}
	})
	for _, sub := range cmd.Commands() {
		completeValues(sub)
	}
}

func newCompletion() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a completion script for a shell",
		Long: `completion prints a script with which a shell completes commands, flags, and the values of flags that have a fixed list. The
script calls this program, and connects to no server.`,
		Example: `  source <(troupe completion bash)                                  # now; bash-completion must be there
  troupe completion bash > /etc/bash_completion.d/troupe             # for everybody, from the next shell on
  troupe completion zsh > "${fpath[1]}/_troupe"
  troupe completion fish > ~/.config/fish/completions/troupe.fish`,
		ValidArgs:             []string{"bash", "zsh", "fish"},
		Args:                  cobra.ExactArgs(1),
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			root, w := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(w, true)
			case "zsh":
				return root.GenZshCompletion(w)
			case "fish":
				return root.GenFishCompletion(w, true)
			}
			return fmt.Errorf("%q: want bash, zsh or fish", args[0])
		},
	}
}
