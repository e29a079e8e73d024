package sidecar

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/docs/commands"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/testkit"
)

func documented(t *testing.T, program string) []commands.Command {
	t.Helper()
	all, err := commands.Read("../..")
	require.NoError(t, err)
	return commands.Of(all, program)
}

// TestTheCommandsInDocumentsAreThere checks each command in the documents with its flags and the number of its arguments.
func TestTheCommandsInDocumentsAreThere(t *testing.T) {
	t.Parallel()
	all := documented(t, relayProgram)
	require.Greater(t, len(all), 40)
	for _, c := range documented(t, "troupe") {
		if len(c.Args) > 1 && c.Args[1] == "ambassador" { // its flags are parsed by this package, not by troupe
			all = append(all, c)
		}
	}
	for _, c := range all {
		if err := understood(c); err != nil {
			t.Errorf("%s\n\t%v\n\tmend the document, or the program; docs/relay-reference.md has what there is", c, err)
		}
	}
}

func understood(c commands.Command) error {
	root, args := (Program{}).root(), c.Args[1:]
	if c.Args[0] == "troupe" {
		root, args = (Program{}).ambassadorRoot(), c.Args[2:]
	}
	cmd, rest, err := root.Find(args)
	switch {
	case err != nil:
		return err
	case c.Prose:
		return flagsOf(cmd, rest)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if !cmd.Runnable() || cmd.Name() == relayProgram {
		return fmt.Errorf("%s has no %s", cmd.Name(), strings.Join(rest, " "))
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// flagsOf returns an error for a flag that does not exist. In prose, values and arguments may be left out.
func flagsOf(cmd *cobra.Command, args []string) error {
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if strings.HasPrefix(arg, "--") && cmd.Flags().Lookup(name) == nil {
			return fmt.Errorf("unknown flag: --%s", name)
		}
		if !cmd.HasParent() && !strings.HasPrefix(arg, "-") {
			return fmt.Errorf("%s has no %s", cmd.Name(), arg)
		}
	}
	return nil
}

// TestTheCommandsInDocumentsRun runs them on a database with a parked row.
func TestTheCommandsInDocumentsRun(t *testing.T) {
	t.Parallel()
	// notRun lists the commands that are parsed but not run, each with the reason.
	notRun := map[string]string{
		"outbox-relay check --debezium internal/sidecar/testdata/connector.json": "TestCheckReadsADebeziumConnector runs it",
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "relay.yaml")
	require.NoError(t, os.WriteFile(file, []byte("outboxes: [{name: shop}]\n"), 0o600))
	pool := testkit.Database(t)
	ran := make(map[string]bool)
	for _, c := range documented(t, relayProgram) {
		text := strings.Join(c.Args, " ")
		serves := len(c.Args) > 1 && c.Args[1] == "run" // runs until it is stopped: most tests of this package run it
		if c.Prose || ran[text] || serves || notRun[text] != "" {
			continue
		}
		ran[text] = true
		_, err := pool.Exec(t.Context(), "TRUNCATE troupe.outbox, troupe.outbox_failures")
		require.NoError(t, err)
		_, err = pool.Exec(t.Context(), aParkedRow, namedID(c))
		require.NoError(t, err)
		args := append([]string{}, c.Args[1:]...)
		for n := range args {
			args[n] = strings.Replace(args[n], "relay.yaml", file, 1)
		}
		var stdout, stderr bytes.Buffer
		code := Program{Args: args, Stdout: &stdout, Stderr: &stderr, Environ: []string{
			"DATABASE_URL=" + testkit.DatabaseURL(t, pool), "KAFKA_BROKERS=" + strings.Join(testkit.Kafka(t), ","),
		}}.Main(t.Context())
		// check reports the parked row, and a topic that does not exist.
		if code != exitDone && (c.Args[1] != "check" || code == exitUsage) {
			t.Errorf("%s\n\tends with status %d on a database with a parked row: %s%s\n\tmend the document, or say in notRun why not",
				c, code, stderr.String(), stdout.String())
		}
	}
	require.Greater(t, len(ran), 5)
}

const aParkedRow = `
	WITH one AS (INSERT INTO troupe.outbox (id, topic, key, type, payload)
		VALUES ($1, 'order.payment.commands', 'o-1', 'ChargePayment', '{}') RETURNING position, id, topic)
	INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, last_error)
	SELECT position, id, topic, '\x6f2d31', 'parked', 8, 8, 'no such topic' FROM one`

// namedID returns the id of the row that a command names.
func namedID(c commands.Command) string {
	for _, arg := range c.Args {
		if len(arg) == 36 && strings.Count(arg, "-") == 4 {
			return arg
		}
	}
	return "019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e5f"
}

// TestTheStatementsInDocumentsRun runs them on the migrated tables.
func TestTheStatementsInDocumentsRun(t *testing.T) {
	t.Parallel()
	ofTheReader := map[string]string{
		"INSERT INTO stock VALUES (7, 1)":                                                 "a table of examples/order-on-postgres",
		"INSERT INTO copies VALUES ('978-1', 5); INSERT INTO lockers VALUES ('north', 1)": "tables of examples/library",
	}
	all := documented(t, "psql")
	require.Greater(t, len(all), 8)
	pool := testkit.Database(t)
	for _, c := range all {
		if c.Prose && (len(c.Args) == 1 || c.Args[len(c.Args)-2] == "-f") { // a file of the reader's
			continue
		}
		require.True(t, len(c.Args) == 4 && slices.Equal([]string{"psql", "$DATABASE_URL", "-c"}, c.Args[:3]),
			"%s: want psql \"$DATABASE_URL\" -c and a statement", c)
		if ofTheReader[c.Args[3]] != "" {
			continue
		}
		_, err := pool.Exec(t.Context(), c.Args[3])
		require.NoError(t, err, c)
	}
}

// TestARelayOperatorLooksAndRepairsWithNoMoreThanItsGrants runs every command for operators on the outbox.
func TestARelayOperatorLooksAndRepairsWithNoMoreThanItsGrants(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	address := grantstest.New(t, pool, grants.RelayOperator).URL()
	const retried, discarded = "019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e5f", "019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e60"
	for _, id := range []string{retried, discarded} {
		_, err := pool.Exec(t.Context(), aParkedRow, id)
		require.NoError(t, err)
	}
	for _, args := range [][]string{
		{"parked", "list"}, {"parked", "show", retried}, {"parked", "retry", retried}, {"parked", "discard", discarded, "--reason", "ticket 4711"},
		{"status"}, {"pause", "--reason", "ticket 4711"}, {"resume"},
	} {
		var stdout, stderr bytes.Buffer
		code := Program{Args: args, Stdout: &stdout, Stderr: &stderr, Environ: []string{"DATABASE_URL=" + address}}.Main(t.Context())
		require.Equal(t, exitDone, code, "%s: %s", args, stderr.String())
	}
}

// TestARelayOperatorChangesNoMessage: a parked row of a mapped table contains the row, from which the relay makes the message.
func TestARelayOperatorChangesNoMessage(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	operator := grantstest.New(t, pool, grants.RelayOperator).Pool()
	for _, sql := range []string{
		`UPDATE troupe.mapped_failures SET "row" = '[]'`, "UPDATE troupe.mapped_failures SET id = gen_random_uuid()",
		"UPDATE troupe.mapped_failures SET order_key = NULL", "UPDATE troupe.outbox_failures SET id = gen_random_uuid()",
		"UPDATE troupe.outbox_failures SET order_key = NULL", "UPDATE troupe.outbox_failures SET position = position + 1",
		"INSERT INTO troupe.mapped_failures (table_name) VALUES ('t')", "UPDATE troupe.outbox SET payload = NULL",
	} {
		_, err := operator.Exec(t.Context(), sql)
		require.ErrorContains(t, err, "permission denied", sql)
	}
}
