package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

var rewriteReference = flag.Bool("update", false, "rewrite docs/cli-reference.md")

const (
	referenceFile = "../../docs/cli-reference.md"
	referenceHead = `# troupe, command by command

This page is generated from the commands. To rewrite it: ` + "`go test ./cmd/troupe -run Reference -update`" + `. The relay is a
program of its own: [outbox-relay, setting by setting](relay-reference.md).

## Common rules

- **Exit status**: 0 done; 1 failed, or a check found problems; 2 wrong usage, and nothing was done. If a command uses them
  differently, its text says so. They do not change.
- **Output**: results on standard output, everything else on standard error. ` + "`--output`" + ` (` + "`-o`" + `) is ` + "`table`" + ` for people, ` + "`json`" + ` for
  programs (one line; lists that have a next page have ` + "`next`" + `), or ` + "`yaml`" + ` with the same names. A table is as wide as the
  terminal, and without room its rows become blocks; ids are never cut. In a pipe nothing is cut, and there are no colours; nor are
  there with ` + "`NO_COLOR`" + `.
- **Changes**: commands that change data have ` + "`--dry-run`" + `, which prints the effect. If the effect cannot be undone, they ask for
  a confirmation, and without a terminal need ` + "`--yes`" + `. ` + "`--reason`" + ` and ` + "`--actor`" + ` are recorded.
- **Settings**: flags, else the variable in brackets behind a flag. Use the variable for passwords: other users can see a
  command line. ` + "`DATABASE_URL`, `KAFKA_BROKERS` and `SCHEMA_REGISTRY_URL`" + ` have one meaning in all programs. Only the demo
  and the tests use other servers (` + "`TROUPE_POSTGRES`, `TROUPE_KAFKA`, `TROUPE_REGISTRY`" + `), so that they never run on the servers of
  your services by mistake.
- **Completion** for bash, zsh and fish: ` + "`troupe completion`" + `.

| command | |
|---|---|
`
)

// shownCommands returns all visible commands, each before its subcommands.
func shownCommands(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			all = append(append(all, c), shownCommands(c)...)
		}
	}
	return all
}

func reference() string {
	var b strings.Builder
	b.WriteString(referenceHead)
	all := shownCommands(newRoot())
	for _, c := range all {
		anchor := strings.ReplaceAll(c.CommandPath(), " ", "-")
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", strings.TrimPrefix(c.CommandPath(), "troupe "), anchor, c.Short)
	}
	for _, c := range all {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n```\n%s\n```\n", c.CommandPath(), c.Short, c.UseLine())
		if c.Long != "" {
			fmt.Fprintf(&b, "\n```\n%s\n```\n", c.Long)
		}
		if c.DisableFlagParsing {
			fmt.Fprintf(&b, "\nIts settings: [setting by setting](%s-reference.md).\n", c.Name())
			continue
		}
		if flags := flagRows(c); flags != "" {
			b.WriteString("\n| flag | | default |\n|---|---|---|\n" + flags)
		}
		fmt.Fprintf(&b, "\n```\n%s\n```\n", unindented(c.Example))
	}
	return b.String()
}

func flagRows(c *cobra.Command) string {
	var b strings.Builder
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if kind != "" {
			name += " " + kind
		}
		value := f.DefValue
		if value == "" || value == "[]" || value == "false" || strings.Contains(usage, "(default") {
			value = ""
		} else {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", strings.ReplaceAll(name, "|", "\\|"), strings.ReplaceAll(usage, "|", "\\|"), value)
	})
	return b.String()
}

func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, "  ")
	}
	return strings.Join(lines, "\n")
}

func TestTheReferenceIsThatOfTheCommands(t *testing.T) {
	want := reference()
	if *rewriteReference {
		require.NoError(t, os.WriteFile(referenceFile, []byte(want), 0o644))
	}
	have, err := os.ReadFile(referenceFile)
	require.NoError(t, err)
	require.Equal(t, want, string(have), "stale: go test ./cmd/troupe -run Reference -update")
}

// TestEveryCommandIsLikeTheOthers checks that each command has the flags that the reference describes for all commands.
func TestEveryCommandIsLikeTheOthers(t *testing.T) {
	// noFacts lists commands whose output is not for programs, or is a file for one.
	noFacts := []string{"ambassador", "console", "dev", "flow graph", "flow asyncapi", "flow schema", "saga fixture", "saga schema",
		"completion"}
	// changing lists commands that change a database, a broker or a registry.
	changing := []string{"init", "dlq edit", "dlq redrive", "dlq discard", "held retry", "held dead-letter", "saga start", "saga answer", "saga retry", "saga skip",
		"saga resolve", "saga compensate", "saga cancel", "saga resume", "saga set", "saga abandon", "saga migrate", "schema register", "batch skip",
		"schedule set", "schedule pause", "schedule resume", "schedule run", "schedule delete", "rebuild start", "rebuild cancel", "erase"}
	// asking lists the ones of changing that cannot be undone, or change many.
	asking := []string{"dlq redrive", "dlq discard", "held dead-letter", "saga answer", "saga retry", "saga skip", "saga resolve", "saga compensate", "saga cancel", "saga set", "saga abandon", "saga migrate",
		"batch skip", "schedule set", "schedule pause", "schedule resume", "schedule run", "schedule delete", "rebuild start", "rebuild cancel", "erase"}
	has := func(c *cobra.Command, flag string) bool { return c.Flags().Lookup(flag) != nil }
	in := func(list []string, c *cobra.Command) bool {
		for _, name := range list {
			if c.CommandPath() == "troupe "+name {
				return true
			}
		}
		return false
	}
	for _, c := range shownCommands(newRoot()) {
		if c.HasSubCommands() && c.Name() != "watch" {
			continue
		}
		output := c.Flags().Lookup("output")
		if !in(noFacts, c) {
			require.NotNil(t, output, c.CommandPath())
			kind, _ := pflag.UnquoteUsage(output)
			require.True(t, strings.HasPrefix(kind, "table|json|yaml"), "%s: %s", c.CommandPath(), kind)
			require.Equal(t, "o", output.Shorthand)
			require.False(t, output.Hidden, c.CommandPath())
		}
		require.Equal(t, in(changing, c), has(c, "dry-run"), c.CommandPath())
		require.Equal(t, in(asking, c), has(c, "yes"), c.CommandPath())
	}
}
