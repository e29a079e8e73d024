package sidecar

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/grants"
)

func (p Program) grantsCommand() *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use:   "grants PART... --role NAME",
		Short: "Print the rights that a part needs in Postgres",
		Long: `grants prints the GRANT statements for the role of a program or of an operator, with the least rights.
It connects to nothing. Run the statements as the role that migrates. ` + "`troupe doctor --as PART`" + `
compares a role with the same list.

Programs: relay, mapped-relay (a table of another shape), participant, local (participants without Kafka),
saga, flow, ambassador (each with the rights of its participant) and watch.
People: viewer (every page of the console), operator (dead letters, held keys and unreadable batches), saga-operator and
relay-operator (pause, parked rows). A console with a token needs the last four.`,
		Example: `  outbox-relay grants relay --role payment_relay | psql "$OWNER_URL"
  outbox-relay grants saga --role order_service
  outbox-relay grants viewer operator saga-operator relay-operator --role ops`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("name a part: %s", partNames())
			}
			for _, arg := range args {
				if !slices.Contains(grants.Parts(), grants.Part(arg)) {
					return usagef("part %q: want one of %s", arg, partNames())
				}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if role == "" {
				return usagef("name the role with --role")
			}
			return printGrants(p.Stdout, args, role)
		},
	}
	cmd.Flags().StringVar(&role, "role", "", "`name` of the role that gets the rights")
	return cmd
}

func partNames() string {
	var names []string
	for _, part := range grants.Parts() {
		names = append(names, string(part))
	}
	return strings.Join(names, ", ")
}

func printGrants(w io.Writer, parts []string, role string) error {
	var wanted []grants.Part
	for _, name := range parts {
		part := grants.Part(name)
		for _, p := range []grants.Part{part.Includes(), part} {
			if p != "" && !slices.Contains(wanted, p) {
				wanted = append(wanted, p)
			}
		}
	}
	lines := []string{grants.Usage(role)}
	for _, part := range wanted {
		for _, g := range grants.Of(part) {
			if line := g.To(role); !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	if slices.Contains(wanted, grants.Relay) || slices.Contains(wanted, grants.MappedRelay) {
		lines = append(lines, "-- With the log as its source: ALTER ROLE "+grants.Quote(role)+" REPLICATION;")
	}
	if slices.Contains(wanted, grants.MappedRelay) {
		lines = append(lines, "-- And to read the table: GRANT SELECT ON schema.table TO "+grants.Quote(role)+";")
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, wrapped(line)); err != nil {
			return err
		}
	}
	return nil
}

const grantWidth = 110 // columns of a terminal, or of a page

// wrapped breaks the lines of a statement after commas.
func wrapped(statement string) string {
	var b strings.Builder
	for i, line := range strings.Split(statement, "\n") {
		if i > 0 {
			b.WriteString("\n")
		}
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))] + "  "
		width := 0
		for i, word := range strings.SplitAfter(line, ", ") {
			if i > 0 && width+len(word) > grantWidth {
				b.WriteString("\n" + indent)
				width = len(indent)
			}
			b.WriteString(word)
			width += len(word)
		}
	}
	return strings.ReplaceAll(b.String(), ", \n", ",\n")
}
