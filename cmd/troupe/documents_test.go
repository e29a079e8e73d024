package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/docs/commands"
	"github.com/troupe-go/troupe/internal/flow/watch"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

const repository = "../.."

// documented returns every troupe command in a document, and every example in a command's help.
func documented(t *testing.T) []commands.Command {
	t.Helper()
	all, err := commands.Read(repository)
	require.NoError(t, err)
	for _, c := range shownCommands(newRoot()) {
		example := "    " + strings.ReplaceAll(c.Example, "\n", "\n    ")
		more, err := commands.Parse(c.CommandPath()+" --help", example)
		require.NoError(t, err)
		all = append(all, more...)
	}
	return commands.Of(all, "troupe")
}

// TestTheCommandsInDocumentsAreThere checks each command with its flags, the kinds of their values, and the number of its
// arguments.
func TestTheCommandsInDocumentsAreThere(t *testing.T) {
	t.Parallel()
	all := documented(t)
	require.Greater(t, len(all), 250)
	for _, c := range all {
		if err := understood(c); err != nil {
			t.Errorf("%s\n\t%v\n\tmend the document, or the program; docs/cli-reference.md has what there is", c, err)
		}
	}
}

// understood returns the error of the program about a command.
func understood(c commands.Command) error {
	cmd, rest, err := newRoot().Find(c.Args[1:])
	switch {
	case err != nil:
		return err
	case c.Prose && len(c.Args) == 1:
		return nil
	case cmd.DisableFlagParsing: // it has a reference of its own
		return nil
	case cmd.HasSubCommands() && !slices.ContainsFunc(rest, isFlag) && len(rest) > 0:
		return fmt.Errorf("%s has no %s", cmd.CommandPath(), rest[0])
	case c.Prose: // values and arguments may be left out
		return flagsOf(cmd, rest)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if !cmd.Runnable() {
		return fmt.Errorf("%s does nothing by itself", cmd.CommandPath())
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

func isFlag(arg string) bool { return strings.HasPrefix(arg, "-") && arg != "-" }

// flagsOf returns an error for a flag that does not exist.
func flagsOf(cmd *cobra.Command, args []string) error {
	_ = cmd.ParseFlags(nil) // adds the flags of all commands
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if strings.HasPrefix(arg, "--") && cmd.Flags().Lookup(name) == nil {
			return fmt.Errorf("unknown flag: --%s", name)
		}
	}
	return nil
}

// ranElsewhere lists documents whose commands another test runs, comparing the document with their output.
var ranElsewhere = map[string]string{
	"docs/dead-letters.md":    "TestTheOperatorsPage",
	"docs/operating-sagas.md": "TestTheOperatorsPageOfSagas",
}

// notRun lists commands that are parsed but not run, each with the reason. The longest matching prefix applies.
var notRun = []struct{ begins, because string }{
	{"troupe demo", "brings servers and processes of its own and takes seconds: TestTheDemo… here and .ci/run run it"},
	{"troupe trace cdnow-00001", "of a demo that was kept: TestTraceShowsAnOrderOfADemoThatWasKept runs it"},
	{"troupe console", "serves until it is stopped: the tests of console.go run it"},
	{"troupe ambassador", "serves until it is stopped: internal/sidecar runs it"},
	{"troupe watch --", "serves until it is stopped: TestWatchPrintsWhatItFindsAndShowsEachFlow runs it"},
	{"troupe dev", "serves until it is stopped: TestDev… run it"},
	{"troupe trace b-", "of the service that the reader has made: internal/scaffold tests that"},
	{"troupe init", "writes a module and fetches its dependencies: TestInit… runs it"},
	{"troupe schema", "compares with a history, of git or a registry: TestSchema… runs it with both"},
	{"troupe doctor --config", "reads the relay's file: TestDoctorTakesTheRelaysSettings runs it"},
	{"troupe doctor --role", "looks at another role's rights: TestDoctor… of the package doctor run it"},
	{"troupe doctor --as participant,saga --role", "looks at another role's rights"},
	{"troupe saga explore --duplicates 1 --buttons 2", "searches for seconds: the smaller searches run"},
	{"troupe saga verify --schemas", "reads the reader's own schemas: TestSagaVerifyReadsPersonalFieldsOfSchemas runs it"},
	{"troupe dlq edit $ID --payload -", "reads what the command before it in the pipe prints"},
}

// mayFail lists commands that need not succeed in the test's environment, with the text that they must print then.
var mayFail = []struct{ begins, saying, because string }{
	{"troupe saga retry", "refused: ", "the possible actions depend on the saga's state; the attempt is enough"},
	{"troupe saga skip", "refused: ", "as above"},
	{"troupe saga resolve", "refused: ", "as above"},
	{"troupe saga resume", "refused: ", "as above"},
	{"troupe saga cancel", "refused: ", "as above"},
	{"troupe saga set", "refused: ", "as above"},
	{"troupe inbox find charge-17", "is not known here", "the test has no message with this key"},
	{"troupe inbox find 0199a5e0", "is not known here", "the test has no message with this id"},
	{"troupe watch show 0199a5e0", "not seen by a watcher", "the test has no flow with this id"},
	{"troupe doctor", "", "exit status 1 says that something is found, and the test's stage has topics without messages"},
	{"troupe flow verify", "", "exit status 1 says that something is found"},
	{"troupe flow diff", "", "exit status 1 says that something breaks"},
	{"troupe saga explore", "", "exit status 1 says that a broken promise is found, which docs/explorer.md is about"},
	{"troupe saga verify", "", "exit status 1 says that something is found, which docs/verifier.md is about"},
}

// TestTheCommandsInDocumentsRun runs commands that only read as they are, and commands that change something with --dry-run.
func TestTheCommandsInDocumentsRun(t *testing.T) {
	t.Parallel()
	s := newDocumentStage(t)
	ran := make(map[string]bool)
	used := make(map[string]bool)
	for _, c := range documented(t) {
		text := strings.Join(c.Args, " ")
		if c.Prose || ranElsewhere[c.Page] != "" || ran[text] {
			continue
		}
		if begins := fitting(text, notRun, func(n int) string { return notRun[n].begins }); begins >= 0 {
			used[notRun[begins].begins] = true
			continue
		}
		ran[text] = true
		o := s.run(c)
		if o.status == exitDone {
			continue
		}
		n := fitting(text, mayFail, func(n int) string { return mayFail[n].begins })
		if n < 0 || o.status != exitFailed || !strings.Contains(o.stderr, mayFail[n].saying) {
			t.Errorf("%s\n\tends with status %d on the stage of this test: %s\n\tcorrect the document, extend the stage, or say in "+
				"notRun or mayFail why not", c, o.status, o.stderr+o.stdout)
		}
	}
	require.Greater(t, len(ran), 60)
	for _, n := range notRun {
		require.True(t, used[n.begins], "%s: no document has it: remove it from notRun", n.begins)
	}
}

// commandLimit bounds the time of a command.
const commandLimit = 2 * time.Minute

// fitting returns the index of the longest prefix of text; -1: none.
func fitting[T any](text string, all []T, begins func(int) string) int {
	found := -1
	for n := range all {
		if strings.HasPrefix(text, begins(n)) && (found < 0 || len(begins(n)) > len(begins(found))) {
			found = n
		}
	}
	return found
}

// A documentStage has the objects that documents name: the parked sagas order/o-1001 and order/o-4, a dead letter, a held key, an
// unreadable batch, watched flows o-1001 and o-1002, topics of the flow order, and files in the folder where commands run.
type documentStage struct {
	*decider
	folder  string
	watched string            // the flow that the watcher read
	values  *strings.Replacer // replaces a reader's own values
	env     []string
}

const documentedLetter = "019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e5f"

func newDocumentStage(t *testing.T) *documentStage {
	s := &documentStage{decider: newDecider(t), folder: t.TempDir()}
	s.tell("o-1001 ReserveStock", "fail")
	s.begin("order", "o-1001", saga.Parked)
	s.tell("o-4 ReserveStock", "fail")
	s.begin("order", "o-4", saga.Parked)
	begunLoan(t, s.pool, "l-1")
	s.exec(`INSERT INTO troupe.dead_letters (id, consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset",
			key, headers, payload, message_id, message_type, correlation_id, first_failed_at, last_failed_at)
		VALUES ($1, 'order.payment', 'order.payment/ChargePayment', 'permanent', 'currency "EURO" is not known', 1, 'order.payment.commands',
			gen_random_uuid(), 3, 1023, 'o-1000', '', '{"currency": "EURO"}', 'm-1', 'ChargePayment', 'c-1', now(), now())`, documentedLetter)
	s.exec(`INSERT INTO troupe.held (consumer_group, topic_id, partition, "offset", topic, hold_key, key, headers, payload, message_time,
			attempts, max_attempts, next_try, error_class, last_error, first_failed_at, last_failed_at)
		VALUES ('order.payment', gen_random_uuid(), 3, 1024, 'order.payment.commands', '\x00', 'o-1001', '', '{}', now(),
			1, 8, now() + interval '1 hour', 'timeout', 'the ledger did not answer', now(), now())`)
	s.exec(`INSERT INTO troupe.unreadable_batches (consumer_group, topic, topic_id, partition, "offset", next_offset, bytes)
		VALUES ('order.payment', 'order.payment.commands', gen_random_uuid(), 3, 1024, 1026, 27481),
		('watch/order', 'order.payment.events', gen_random_uuid(), 3, 1024, 1026, 27481)`)

	s.exec(`INSERT INTO troupe.schedules (name, cron, zone, saga, next_at) VALUES ('nightly', '30 2 * * *', 'Europe/Berlin', 'billing', now() + interval '1 day')`)

	s.exec("INSERT INTO troupe.handlers (consumer_group, topic, handler) VALUES ('order.summary', 'order.payment.events', 'order.summary/PaymentCharged'), " +
		"('order.summary', 'order.payment.events', 'order.summary/PaymentRefused')")
	s.exec("INSERT INTO troupe.rebuilds (consumer_group, generation, handlers, from_time, emit) VALUES ('order.summary', 1, '{order.summary/PaymentCharged}', now(), false)")

	brokers, url := strings.Join(testkit.Kafka(t), ","), testkit.DatabaseURL(t, s.pool)
	s.env = []string{
		"DATABASE_URL=" + url, "KAFKA_BROKERS=" + brokers, "TROUPE_FLOW=order", "TROUPE_DATABASES=order=" + url,
		"SCHEMA_REGISTRY_URL=" + testkit.Registry(t),
	}
	s.values = strings.NewReplacer("localhost:9092", brokers, "127.0.0.1:9092", brokers, "http://localhost:8081", testkit.Registry(t), "/tmp/main/", "main/",
		"postgres://localhost/order", url, "postgres://localhost/payment", url, "$ID", documentedLetter, "order.order", s.flow+".order")
	s.provision("order", "payment", "inventory", "shipping")
	s.watch()
	s.files()
	return s
}

// provision creates the topics that documents name. They stay empty, so concurrent runs of this test can share them.
func (s *documentStage) provision(hops ...string) {
	client, err := kafka.NewClient(testkit.Kafka(s.t))
	require.NoError(s.t, err)
	defer client.Close()
	for _, hop := range hops {
		for _, kind := range []string{"commands", "events", "dlq"} {
			require.NoError(s.t, kafka.Provision(s.t.Context(), client, kafka.Topic{Name: "order." + hop + "." + kind, Partitions: 1}))
		}
	}
}

// watch runs the watcher until it has read two flows.
func (s *documentStage) watch() {
	flow := testkit.Flow(s.t)
	s.watched = flow
	reactions := watchedOrder(s.t, flow)
	cmd := command(s.t, s.env, "watch", "--flow", flow, "--reactions", reactions)
	require.NoError(s.t, cmd.Start())
	s.t.Cleanup(func() { _ = cmd.Process.Kill() })
	testkit.Wait(s.t, "the flows to be stored", func() (bool, error) {
		desk, err := watch.OpenDesk(s.t.Context(), s.pool, flow)
		if err != nil {
			return false, nil // it has not begun
		}
		found, err := desk.Findings(context.WithoutCancel(s.t.Context()), true, 10)
		return len(found) == 3 && !desk.SeenAt().IsZero(), err
	})
	require.NoError(s.t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(s.t, cmd.Wait())
}

// files creates the files that documents name: definitions, declarations of services, and folders of this repository.
func (s *documentStage) files() {
	root, err := filepath.Abs(repository)
	require.NoError(s.t, err)
	link := func(from, to string) {
		require.NoError(s.t, os.Symlink(filepath.Join(root, from), filepath.Join(s.folder, to)))
	}
	for _, folder := range []string{"saga", "examples", "internal"} {
		link(folder, folder)
	}
	for _, name := range []string{"order.saga.json", "order.v1.saga.json", "order.v2.saga.json"} {
		link("saga/testdata/order.saga.json", name)
	}
	put(s.t, s.folder, map[string]string{
		"fixed.json": `{"currency": "EUR"}`,
		"hops.json":  `{"hops": {}}`,
	})
	require.NoError(s.t, os.MkdirAll(filepath.Join(s.folder, "docs/api"), 0o755))
	for _, folder := range []string{"services", "main/services", "old", "new"} {
		for _, hop := range []string{"order", "payment", "inventory", "shipping"} {
			require.NoError(s.t, os.MkdirAll(filepath.Join(s.folder, folder, hop), 0o755))
			link("internal/demo/"+hop+"/reactions.json", filepath.Join(folder, hop, "reactions.json"))
		}
	}
}

// run runs a command with the stage's values in place of the reader's.
func (s *documentStage) run(c commands.Command) outcome {
	var args []string
	for _, arg := range c.Args[1:] {
		switch arg = s.values.Replace(arg); {
		case arg == "--yes":
		case strings.Contains(arg, "*") && !strings.Contains(arg, " "): // a cron expression has blanks
			files, err := filepath.Glob(filepath.Join(s.folder, arg))
			require.NoError(s.t, err)
			args = append(args, files...)
		default:
			args = append(args, arg)
		}
	}
	cmd, _, err := newRoot().Find(args)
	if err == nil && cmd.Flags().Lookup("dry-run") != nil && !slices.Contains(args, "--dry-run") {
		args = append(args, "--dry-run")
	}
	env := s.env
	if args[0] == "watch" {
		env = append(slices.Clone(env), "TROUPE_FLOW="+s.watched)
	}
	p := command(s.t, env, args...)
	p.Dir = s.folder
	end := time.AfterFunc(commandLimit, func() { _ = p.Process.Kill() }) // a command that serves belongs into notRun
	defer end.Stop()
	return finish(s.t, p)
}

// TestAViewerSeesAndChangesNothing runs the commands that read, and the commands that act, as a role with a viewer's rights.
func TestAViewerSeesAndChangesNothing(t *testing.T) {
	t.Parallel()
	s := newDecider(t)
	s.tell("o-1 ReserveStock", "fail")
	id := s.begin("order", "o-1", saga.Parked)
	env := []string{"DATABASE_URL=" + grantstest.New(t, s.pool, grants.Viewer).URL()}
	for _, args := range []string{
		"dlq list", "dlq list --letters", "held list", "expectation list", "saga list", "saga list --counts", "saga show " + id, "saga locks", "saga replay --all",
	} {
		o := finish(t, command(t, env, strings.Fields(args)...))
		require.Equal(t, exitDone, o.status, "%s: %s", args, o.stderr)
	}
	for _, args := range []string{"dlq redrive --all --yes", "saga retry " + id + " --reason r", "saga abandon " + id + " --reason r --yes"} {
		o := finish(t, command(t, env, strings.Fields(args)...))
		require.Equal(t, exitFailed, o.status, args)
		require.Contains(t, o.stdout+o.stderr, "permission denied", args)
	}
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters WHERE status = 'open'"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.sagas WHERE status = 'parked'"))
}
