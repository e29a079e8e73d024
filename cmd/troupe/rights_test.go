package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/sidecar"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// A limited is a command that works with exactly the rights that `outbox-relay grants` prints for each of its parts.
type limited struct {
	command string
	args    string // behind the command; FLAGS: the actor and the reason, PART: the part, HOP: the coordinator's hop
	parts   []grants.Part
}

var (
	reads   = []grants.Part{grants.Operator, grants.Viewer}
	repairs = []grants.Part{grants.Operator}
	seesIt  = []grants.Part{grants.SagaOperator, grants.Viewer}
	acts    = []grants.Part{grants.SagaOperator}
	watches = []grants.Part{grants.Watch, grants.Viewer}
	looksAt = []grants.Part{grants.RelayOperator, grants.Viewer}
	relays  = []grants.Part{grants.RelayOperator}
)

const (
	retriedRow   = "019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e61"
	discardedRow = "019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e62"
	otherLetter  = "019aa6f0-7c1d-7d3a-9d0b-6f3b1c2d4e63"
	retriesAll   = "--saga order FLAGS --yes" // arguments of troupe saga retry
)

// byRights lists the commands that have a database and end, in the order in which the test runs them.
var byRights = []limited{
	{"troupe dlq list", "", reads},
	{"troupe dlq list", "--letters --hop order.payment", reads},
	{"troupe dlq show", documentedLetter, reads},
	{"troupe dlq edit", documentedLetter + " --payload fixed.json FLAGS", repairs},
	{"troupe dlq redrive", documentedLetter + " FLAGS --yes", repairs},
	{"troupe dlq discard", otherLetter + " FLAGS --yes", repairs},
	{"troupe held list", "", reads},
	{"troupe inbox find", "m-1", reads},
	{"troupe expectation list", "", reads},
	{"troupe expectation list", "--counts", reads},
	{"troupe held retry", "order.payment.commands/3/1024 FLAGS", repairs},
	{"troupe held dead-letter", "order.payment.commands/3/1024 FLAGS --yes", repairs},
	{"troupe actions", "", []grants.Part{grants.Viewer}},
	{"troupe batch list", "", reads},
	{"troupe batch skip", "order.payment.commands/3/1024 FLAGS --yes", repairs},
	{"troupe saga list", "--status parked", seesIt},
	{"troupe saga list", "--counts", seesIt},
	{"troupe saga show", "order/o-1001", seesIt},
	{"troupe saga locks", "", seesIt},
	{"troupe saga fixture", "order/o-1001", seesIt},
	{"troupe saga replay", "--all", seesIt},
	{"troupe saga start", `order o-77 --data customer_id=c-7 --json {"amount_cents":1999,"title":7,"quantity":1} FLAGS`, acts},
	{"troupe saga start", `review o-78 --hop HOP --data customer_id=c-7 --json {"amount_cents":1999,"title":7,"quantity":1} FLAGS`, acts},
	{"troupe saga questions", "", seesIt},
	{"troupe saga answer", "loan/l-1 approval LoanApproved --field cents=5 FLAGS --yes", acts},
	{"troupe saga retry", "order/o-4 inventory FLAGS", acts},
	{"troupe saga retry", retriesAll, acts},
	{"troupe saga skip", "order/o-5 inventory FLAGS --yes", acts},
	{"troupe saga resolve", "order/o-6 inventory --happened no FLAGS --yes", acts},
	{"troupe saga compensate", "order/o-7 FLAGS --yes", acts},
	{"troupe saga migrate", "mended.saga.json FLAGS --yes", acts},
	{"troupe saga set", "order/o-1001 title=8 FLAGS --yes", acts},
	{"troupe saga resume", "review/o-78 FLAGS", acts},
	{"troupe saga start", `review o-79 --hop HOP --data customer_id=c-7 --json {"amount_cents":1999,"title":7,"quantity":1} FLAGS`, acts},
	{"troupe saga cancel", "review/o-79 FLAGS --yes", acts},
	{"troupe saga abandon", "order/o-1001 FLAGS --yes", acts},
	{"troupe schedule set", "other --cron @daily --topic t --type T FLAGS --yes", acts},
	{"troupe schedule list", "", seesIt},
	{"troupe schedule show", "nightly", seesIt},
	{"troupe schedule pause", "nightly FLAGS --yes", acts},
	{"troupe schedule resume", "nightly FLAGS --yes", acts},
	{"troupe schedule run", "nightly FLAGS --yes", acts},
	{"troupe schedule delete", "nightly FLAGS --yes", acts},
	{"troupe rebuild list", "", reads},
	{"troupe rebuild show", "1", reads},
	{"troupe rebuild cancel", "1 FLAGS --yes", repairs},
	{"troupe watch list", "", watches},
	{"troupe watch findings", "", watches},
	{"troupe watch show", "o-1001", watches},
	{"troupe trace", "o-1001 --since 1h", []grants.Part{grants.Viewer}},
	{"troupe doctor", "--timeout 2m --as PART", grants.Parts()},
	{"outbox-relay parked list", "", looksAt},
	{"outbox-relay parked show", retriedRow, looksAt},
	{"outbox-relay parked retry", retriedRow, relays},
	{"outbox-relay parked discard", discardedRow + " --reason r", relays},
	{"outbox-relay status", "", looksAt},
	{"outbox-relay pause", "--reason r", relays},
	{"outbox-relay resume", "", relays},
}

// byTest lists the programs, and the commands that other tests run with the printed rights, each with the test and its file.
var byTest = map[string][2]string{
	"troupe ambassador":    {"TestAnAmbassadorKilledBetweenPostAndCommitPostsTheSameKeyAgain", "internal/sidecar/ambassador_test.go"},
	"troupe console":       {"TestEachPageAndActionAsksForItsRole", "internal/console/role_test.go"},
	"troupe rebuild start": {"TestARebuildFromTheCommandLine", "cmd/troupe/rebuild_test.go"},
	"troupe erase":         {"TestAnOwnerErasesByCommand", "cmd/troupe/erase_test.go"},
	"troupe watch":         {"TestWatchPrintsWhatItFindsAndShowsEachFlow", "cmd/troupe/watch_test.go"},
	"outbox-relay check":   {"TestCheckSaysWhatWouldGoWrong", "internal/sidecar/inspect_test.go"},
	"outbox-relay run":     {"TestRunPublishesAndEndsWithZero", "internal/sidecar/run_test.go"},
	"outbox-relay migrate": {"TestAnOwnerMigratesAndGrantsWithOneRight", "internal/sidecar/migrate_test.go"},
	"outbox-relay retain":  {"TestAnOwnerRemovesClosedRecordsByCommand", "internal/sidecar/retain_test.go"},
}

// hasDatabase reports whether a command takes the URL of a database.
func hasDatabase(c *cobra.Command) bool {
	return c.Flags().Lookup("database") != nil || c.Flags().Lookup("database-url") != nil || c.CommandPath() == "troupe ambassador"
}

// TestEveryCommandWorksWithThePrintedRights runs each command of both programs that has a database, as roles with the printed
// rights. A new command fails this test until a list has it. Functions of another role in the schema public have no effect on any.
func TestEveryCommandWorksWithThePrintedRights(t *testing.T) {
	t.Parallel()
	for _, c := range append(shownCommands(newRoot()), shownCommands(sidecar.Program{}.Commands())...) {
		if c.HasSubCommands() && c.RunE == nil || !hasDatabase(c) {
			continue
		}
		listed := slices.ContainsFunc(byRights, func(one limited) bool { return one.command == c.CommandPath() })
		_, tested := byTest[c.CommandPath()]
		require.True(t, listed != tested, "%s: list how it runs with the printed rights, or the test that does", c.CommandPath())
	}
	for command, test := range byTest {
		text, err := os.ReadFile(filepath.Join(repository, test[1]))
		require.NoError(t, err, command)
		require.Contains(t, string(text), "func "+test[0]+"(", command)
	}

	s := newDocumentStage(t)
	for _, key := range []string{"o-5", "o-6", "o-7"} {
		s.tell(key+" ReserveStock", "fail")
		s.begin("order", key, saga.Parked)
	}
	s.tell("o-4 ReserveStock", "")
	s.exec("UPDATE troupe.dead_letters SET headers = $1 WHERE id = $2", envelope.MarshalHeaders([]envelope.Header{
		{Key: ce.HeaderID, Value: []byte("m-1")}, {Key: ce.HeaderType, Value: []byte("ChargePayment")}, {Key: ce.HeaderContentType, Value: []byte(envelope.JSON)},
	}), documentedLetter)
	s.exec("UPDATE troupe.held SET headers = (SELECT headers FROM troupe.dead_letters WHERE id = $1)", documentedLetter)
	s.exec(`INSERT INTO troupe.dead_letters (id, consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset",
			key, headers, payload, message_id, message_type, correlation_id, first_failed_at, last_failed_at)
		SELECT $1, consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, 1022,
			key, headers, payload, 'm-2', message_type, correlation_id, first_failed_at, last_failed_at
		FROM troupe.dead_letters WHERE id = $2`, otherLetter, documentedLetter)
	for _, id := range []string{retriedRow, discardedRow} {
		s.exec(`WITH one AS (INSERT INTO troupe.outbox (id, topic, key, type, payload)
				VALUES ($1, 'order.payment.commands', 'o-1', 'ChargePayment', '{}') RETURNING position, id, topic)
			INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, last_error)
			SELECT position, id, topic, '\x6f2d31', 'parked', 8, 8, 'no such topic' FROM one`, id)
	}
	review := s.definition(func(spec *saga.Spec) {
		spec.Saga, spec.Ends, spec.Cancel = "review", []saga.End{{When: "true", Then: saga.ThenPark}}, &saga.Cancel{Operator: true}
	})
	s.exec("INSERT INTO troupe.saga_definitions (hash, saga, version, definition) VALUES ($1, 'review', 1, $2)", review.Hash(), string(review.JSON()))
	mended := s.definition(func(spec *saga.Spec) { spec.Version, spec.Steps[2].Timeout = 2, saga.Duration(1e12) })
	require.NoError(t, os.WriteFile(filepath.Join(s.folder, "mended.saga.json"), mended.JSON(), 0o600))

	trapped := grantstest.Trap(t, s.pool)
	urls := make(map[grants.Part]string)
	for _, part := range grants.Parts() {
		urls[part] = grantstest.New(t, s.pool, part).URL()
	}
	lacks := regexp.MustCompile(`permission denied|lacks a right|SQLSTATE 42501`)
	for _, one := range byRights {
		for _, part := range one.parts {
			args := strings.Fields(one.command)[1:]
			for _, arg := range strings.Fields(one.args) {
				switch arg {
				case "FLAGS":
					args = append(args, "--actor", "ann", "--reason", "ticket 4711")
				case "HOP":
					args = append(args, s.flow+".order")
				case "PART":
					args = append(args, string(part))
				default:
					args = append(args, arg)
				}
			}
			env := []string{"DATABASE_URL=" + urls[part], "TROUPE_DATABASES=order=" + urls[part], "TROUPE_FLOW=" + s.watched, "KAFKA_BROKERS="}
			var o outcome
			if program, _, _ := strings.Cut(one.command, " "); program == "outbox-relay" {
				var stdout, stderr bytes.Buffer
				o.status = sidecar.Program{Args: args, Stdout: &stdout, Stderr: &stderr, Environ: env}.Main(t.Context())
				o.stdout, o.stderr = stdout.String(), stderr.String()
			} else {
				cmd := command(t, env, args...)
				cmd.Dir = s.folder
				o = finish(t, cmd)
			}
			cannotSee := one.command == "troupe doctor" // it warns of a check that the role cannot make
			if one.command == "troupe doctor" && part == grants.MappedRelay {
				require.Contains(t, o.stdout, "mapped-relay: has all its grants") // it lacks REPLICATION, which no GRANT gives
				o.status = exitDone
			}
			if o.status != exitDone || !cannotSee && lacks.MatchString(o.stdout+o.stderr) {
				t.Errorf("%s %s as %s: status %d\n%s%s", one.command, one.args, part, o.status, o.stdout, o.stderr)
			}
			if one.args == retriesAll { // the next commands are for parked sagas
				testkit.Wait(t, "three sagas that are parked again", func() (bool, error) {
					return s.count("SELECT count(*) FROM troupe.sagas WHERE key IN ('o-5', 'o-6', 'o-7') AND status = 'parked'") == 3, nil
				})
			}
		}
	}
	require.Empty(t, trapped())
	for table, n := range map[string]int{"repairs": 6, "outbox_repairs": 2, "relay_pauses": 2} {
		require.Equal(t, n, s.count("SELECT count(*) FROM troupe."+table), table)
	}
	var acts []string
	require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT array_agg(DISTINCT coalesce(event ->> 'act', kind) ORDER BY coalesce(event ->> 'act', kind))
		FROM troupe.saga_events WHERE actor = 'ann'`).Scan(&acts))
	require.Equal(t, []string{"abandon", "answer", "cancel", "compensate", "migrated", "resolve", "resume", "retry", "set", "skip", "started"}, acts)
}
