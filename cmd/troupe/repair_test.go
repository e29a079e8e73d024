package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// ChargePayment is the command of the payments service in the operator's page.
type ChargePayment struct {
	OrderID  string `json:"order_id"`
	Cents    int    `json:"cents"`
	Currency string `json:"currency"`
}

// PaymentCharged is its answer.
type PaymentCharged struct {
	OrderID string `json:"order_id"`
}

// payments is a service whose bank can be switched off.
type payments struct {
	t       *testing.T
	pool    *pgxpool.Pool
	brokers []string
	hop     topics.Hop
	client  *kgo.Client
	record  *strings.Builder       // commands and their output, as on the operator's page
	as      map[grants.Part]string // database URLs
}

func newPayments(t *testing.T) *payments {
	s := &payments{t: t, pool: testkit.Database(t), brokers: testkit.Kafka(t), hop: topics.MustHop(testkit.Flow(t), "payment"), record: new(strings.Builder)}
	s.exec("CREATE TABLE bank (error text NOT NULL)")
	s.exec("CREATE TABLE payments (order_id text PRIMARY KEY, cents int NOT NULL)")
	var err error
	s.client, err = kafka.NewClient(s.brokers)
	require.NoError(t, err)
	t.Cleanup(s.client.Close)
	for _, name := range []string{s.hop.Commands(), s.hop.Events(), s.hop.DeadLetters()} {
		require.NoError(t, kafka.Provision(t.Context(), s.client, kafka.Topic{Name: name, Partitions: 1}))
	}
	return s
}

func (s *payments) serve(policy retry.Policy) (stop func()) {
	p, err := participant.New(participant.Config{
		Concurrency: 1, // the page shows them in this order
		Pool:        s.pool, Brokers: s.brokers, Hop: s.hop, Retry: policy, Immediate: -1, Log: testkit.Logger(s.t),
	})
	require.NoError(s.t, err)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[ChargePayment]) (participant.Outcome, error) {
		if c.Body.Currency != "EUR" {
			return participant.Outcome{}, retry.Permanent(fmt.Errorf("order %s: currency %q is not known", c.Body.OrderID, c.Body.Currency))
		}
		var text string
		err := tx.QueryRow(ctx, "SELECT error FROM bank").Scan(&text)
		if err == nil {
			return participant.Outcome{}, fmt.Errorf("charge card: %s (request %s)", text, envelope.NewID())
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return participant.Outcome{}, err
		}
		_, err = tx.Exec(ctx, "INSERT INTO payments VALUES ($1, $2)", c.Body.OrderID, c.Body.Cents)
		return participant.Succeed(PaymentCharged{OrderID: c.Body.OrderID}), err
	})
	return s.run(p.Run)
}

func (s *payments) relay() {
	r, err := relay.New(relay.Config{Source: relay.Poll, Pool: s.pool, Brokers: s.brokers, Service: "payment", Log: testkit.Logger(s.t)})
	require.NoError(s.t, err)
	s.run(r.Run)
}

func (s *payments) run(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(s.t, <-result)
		})
	}
	s.t.Cleanup(stop)
	return stop
}

func (s *payments) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), sql, args...)
	require.NoError(s.t, err)
}

func (s *payments) wait(want int, sql string) {
	s.t.Helper()
	testkit.Wait(s.t, sql, func() (bool, error) {
		var n int
		err := s.pool.QueryRow(s.t.Context(), sql).Scan(&n)
		return n == want, err
	})
}

func (s *payments) message(key string, body ChargePayment) envelope.Message {
	payload, err := json.Marshal(body)
	require.NoError(s.t, err)
	return envelope.Message{
		Topic: s.hop.Commands(), Key: []byte(key), Payload: payload, ID: envelope.NewID(), Type: "ChargePayment", Source: "order",
		Subject: key, ContentType: envelope.JSON, CorrelationID: "flow-" + key, Time: time.Now(),
	}
}

func (s *payments) send(key string, body ChargePayment) envelope.Message {
	m := s.message(key, body)
	require.NoError(s.t, s.client.ProduceSync(s.t.Context(), kafka.Record(m)).FirstErr())
	return m
}

// troupe runs the command on the service's database with exactly the documented rights of its part.
func (s *payments) troupe(args ...string) outcome {
	s.t.Helper()
	part := grants.Operator
	if args[0] == "saga" || args[0] == "schedule" {
		part = grants.SagaOperator
	}
	if s.as == nil {
		s.as = make(map[grants.Part]string)
	}
	if s.as[part] == "" {
		s.as[part] = grantstest.New(s.t, s.pool, part).URL()
	}
	return finish(s.t, command(s.t, []string{"DATABASE_URL=" + s.as[part]}, args...))
}

// shows runs a command that must succeed, and records its output.
func (s *payments) shows(args ...string) string {
	s.t.Helper()
	o := s.troupe(args...)
	require.Equal(s.t, 0, o.status, "%s", o.stderr)
	_, _ = fmt.Fprintf(s.record, "$ troupe %s\n%s\n", shell(args), o.stdout)
	return o.stdout
}

func shell(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		if quoted[i] = a; strings.ContainsAny(a, " :") {
			quoted[i] = "'" + a + "'"
		}
	}
	return strings.Join(quoted, " ")
}

func (s *payments) json(into any, args ...string) {
	s.t.Helper()
	o := s.troupe(append(args, "--output", "json")...)
	require.Equal(s.t, 0, o.status, o.stderr)
	require.NoError(s.t, json.Unmarshal([]byte(o.stdout), into))
}

// alike replaces the parts of text that differ in every run.
func alike(text string) string {
	for _, r := range []struct{ pattern, with string }{
		{`t-[0-9a-f]{12}`, "order"},
		{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-([0-9a-f]{12}|[0-9a-f]*…)`, "UUID"},
		{`\(role \S+\)`, "(role ROLE)"},
		{`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z`, "TIME"},
		{`\b[0-9a-f]{64}\b`, "HASH"},
		{`\b[0-9a-f]{12}\b`, "CAUSE"},
		{`\b\d+[smhd] ago`, "AGO"},
		{`, after [0-9.]+m?s\b`, ", after LONG"},
		{`[ ]+`, " "},
		{` *\n *`, "\n"},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.with)
	}
	return strings.TrimSpace(text)
}

// TestTheOperatorsPage follows docs/dead-letters.md, with a service, a relay and the commands, and compares the page with
// their output. Run it with -v to see a page's worth of output.
func TestTheOperatorsPage(t *testing.T) {
	s := newPayments(t)
	// The bank is away for twelve orders; three messages are invalid; one key waits for its next attempt.
	s.exec("INSERT INTO bank VALUES ('bank answered 503 after 1.2s')")
	stop := s.serve(retry.Policy{Initial: time.Millisecond, Cap: time.Millisecond, Attempts: 3})
	for n := range 12 {
		s.send(fmt.Sprintf("o-%d", 1001+n), ChargePayment{fmt.Sprintf("o-%d", 1001+n), 1999, "EUR"})
	}
	broken := s.send("o-2001", ChargePayment{"o-2001", 4500, "EURO"})
	s.send("o-2002", ChargePayment{"o-2002", 700, "€"})
	test := s.command("o-3001", `{"order_id": "o-3001", "cents": "a test"}`)
	s.wait(15, "SELECT count(*) FROM troupe.dead_letters")
	stop()
	stop = s.serve(retry.Policy{Initial: time.Hour, Cap: time.Hour, Attempts: 8, NoJitter: true})
	s.send("o-4001", ChargePayment{"o-4001", 100, "EUR"})
	waiting := s.send("o-4001", ChargePayment{"o-4001-b", 100, "EUR"})
	s.wait(2, "SELECT count(*) FROM troupe.held")
	s.wait(1, "SELECT count(*) FROM troupe.held WHERE attempts = 1")
	stop()

	require.Contains(t, s.shows("dlq", "list"), "15 dead letters of 3 causes")
	var groups struct{ Causes []repair.Cause }
	s.json(&groups, "dlq", "list")
	require.Len(t, groups.Causes, 3)
	var letters struct {
		Letters []repair.DeadLetter `json:"dead_letters"`
	}
	s.shows("dlq", "list", "--cause", groups.Causes[1].ID)
	s.json(&letters, "dlq", "list", "--cause", groups.Causes[1].ID)
	require.Len(t, letters.Letters, 2)
	id := letters.Letters[0].ID.String()
	require.Contains(t, s.shows("dlq", "show", id), `"currency": "EURO"`)

	home, err := os.Getwd()
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("fixed.json", []byte(`{"order_id": "o-2001", "cents": 4500, "currency": "EUR"}`), 0o600))
	s.exec("DELETE FROM bank") // the bank is back
	s.relay()
	stop = s.serve(retry.Policy{Initial: time.Hour, Cap: time.Hour, Attempts: 8, NoJitter: true})
	s.shows("dlq", "edit", id, "--payload", "fixed.json", "--actor", "ann", "--reason", "ticket 4711: EURO is EUR")
	s.shows("dlq", "redrive", id, "--actor", "ann", "--yes")
	s.wait(1, "SELECT count(*) FROM payments WHERE order_id = 'o-2001'")
	require.Contains(t, s.shows("inbox", "find", broken.ID), "handled")
	s.shows("dlq", "redrive", "--cause", groups.Causes[0].ID, "--rate", "20", "--actor", "ann", "--reason", "the bank is back", "--yes")
	s.wait(13, "SELECT count(*) FROM payments")
	var all struct {
		Letters []repair.DeadLetter `json:"dead_letters"`
	}
	s.json(&all, "dlq", "list", "--letters", "--class", "poison")
	require.Equal(t, test, all.Letters[0].MessageID)
	s.shows("dlq", "discard", all.Letters[0].ID.String(), "--actor", "ann", "--reason", "a test of ours", "--yes")
	s.shows("dlq", "show", id)
	s.shows("dlq", "list")

	stop()
	var held struct{ Held []struct{ Place string } }
	s.shows("held", "list")
	s.json(&held, "held", "list")
	place := held.Held[0].Place
	s.shows("held", "retry", place, "--actor", "ann", "--reason", "the bank is back")
	s.shows("held", "dead-letter", place, "--actor", "ann", "--reason", "ticket 4712: the one behind it is urgent", "--yes")
	s.shows("inbox", "find", waiting.ID)
	s.serve(retry.Policy{})
	s.wait(14, "SELECT count(*) FROM payments")

	shown := regexp.MustCompile(regexp.QuoteMeta(s.hop.Flow())+`(\S*  )`).ReplaceAllString(s.record.String(), "order$1"+strings.Repeat(" ", len(s.hop.Flow())-5))
	shown = strings.ReplaceAll(shown, s.hop.Flow(), "order")
	t.Log("\n" + shown)
	page, err := os.ReadFile(filepath.Join(home, "../../docs/dead-letters.md"))
	require.NoError(t, err)
	for block := range strings.SplitSeq(shown, "\n$ ") {
		require.True(t, strings.Contains(alike(string(page)), alike(block)), "docs/dead-letters.md does not show\n%s", block)
	}
}

func (s *payments) command(key, payload string) (id string) {
	m := envelope.Message{
		Topic: s.hop.Commands(), Key: []byte(key), Payload: []byte(payload), ID: envelope.NewID(), Type: "ChargePayment", Source: "order",
		Subject: key, ContentType: envelope.JSON, CorrelationID: "flow-" + key, Time: time.Now(),
	}
	require.NoError(s.t, s.client.ProduceSync(s.t.Context(), kafka.Record(m)).FirstErr())
	return m.ID
}

func TestActionsNeedASelectionAReasonAndAConfirmation(t *testing.T) {
	t.Parallel()
	const id = "01a1fe33-de97-72fc-bfe6-c9ad34e682bf"
	here := []string{"DATABASE_URL=postgres://nobody:secret@127.0.0.1:1/none"}
	for args, want := range map[string]string{
		"dlq": "Usage:", "held": "Usage:", "inbox": "Usage:", "dlq dance": `unknown command "dance"`,
		"dlq redrive":                           "--all",
		"dlq redrive --all " + id:               "one or the other",
		"dlq redrive 17":                        `id "17"`,
		"dlq redrive --all --rate 0":            "--rate 0",
		"dlq redrive --all --rate NaN":          "--rate NaN",
		"dlq discard " + id:                     "--reason: want a reason",
		"dlq discard --reason r":                "--all",
		"dlq list --class bad":                  "want one of transient",
		"dlq list --status gone":                `status "gone"`,
		"dlq list --limit 0x":                   "invalid argument",
		"dlq list --limit 10001":                "want 1 to 10000",
		"dlq list --since yesterday":            "how long ago",
		"dlq list --hop payment":                "want flow.hop",
		"dlq show":                              "accepts 1 arg",
		"dlq edit " + id:                        "--reason: want a reason",
		"dlq edit --reason r " + id:             "--payload is not set",
		"held retry":                            "give places or a filter",
		"held retry a/1":                        `place "a/1"`,
		"held dead-letter a/1/2":                "--reason: want a reason",
		"held dead-letter a/1/2 --reason r":     "use --yes",
		"batch skip a/1/2":                      "--reason: want a reason",
		"batch skip a/1 --reason r --yes":       `place "a/1"`,
		"batch list --limit 0":                  "--limit 0",
		"held dead-letter a/1 --reason r --yes": `place "a/1"`,
		"inbox find":                            "accepts 1 arg",
		"dlq list --registry nowhere":           "unknown flag",
		"dlq show --registry nowhere " + id:     "--registry: ",
		"dlq list --database-url 17://":         "not shown",
	} {
		o := finish(t, command(t, here, strings.Fields(args)...))
		require.Equal(t, exitUsage, o.status, "%s: %+v", args, o)
		require.Contains(t, o.stderr, want, args)
		require.Empty(t, o.stdout, args)
	}
	o := finish(t, command(t, []string{"DATABASE_URL="}, "dlq", "list"))
	require.Equal(t, exitUsage, o.status)
	require.Contains(t, o.stderr, "--database-url is not set")
	o = finish(t, command(t, here, "dlq", "list"))
	require.Equal(t, exitFailed, o.status)
	require.Contains(t, o.stderr, "127.0.0.1")
	require.NotContains(t, o.stderr, "secret")
}

// TestCommandsWithNothingToDoSaySo includes missing objects, and confirmations without a terminal.
func TestCommandsWithNothingToDoSaySo(t *testing.T) {
	t.Parallel()
	s := newPayments(t)
	const none = "01a1fe33-de97-72fc-bfe6-c9ad34e682bf"
	for args, want := range map[string]struct {
		status         int
		stdout, stderr string
	}{
		"dlq list":                                 {0, "No dead letters.\n", ""},
		"dlq list --letters":                       {0, "No dead letters.\n", ""},
		"dlq list --letters --after x":             {2, "", "--after: \"x\": want the cursor"},
		"dlq list --output json":                   {0, `{"causes":[],"next":""}` + "\n", ""},
		"dlq list --letters --output json":         {0, `{"dead_letters":[],"next":""}` + "\n", ""},
		"held list":                                {0, "No key is held.\n", ""},
		"expectation list":                         {0, "No expectation matches.\n", ""},
		"held retry a/-1/7":                        {1, "", "no key was changed"},
		"held dead-letter a/-1/7 --reason r --yes": {1, "", "never was local work in this database"},
		"batch list":                               {0, "No batch has blocked a partition.\n", ""},
		"batch list --output json":                 {0, `{"batches":[]}` + "\n", ""},
		"batch skip a/1/2 --reason r --yes":        {1, "", "not found"},
		"held list --output json":                  {0, `{"held":[],"next":""}` + "\n", ""},
		"expectation list --output json":           {0, `{"expectations":[],"next":""}` + "\n", ""},
		"dlq redrive --all":                        {0, "No open dead letters fit: there is nothing to do.\n", ""},
		"dlq redrive --all --yes":                  {0, "No open dead letters fit: there is nothing to do.\n", ""},
		"dlq discard --all --reason r":             {0, "No open dead letters fit: there is nothing to do.\n", ""},
		"dlq show " + none:                         {1, "", "not found in this database"},
		"dlq discard --reason r --yes " + none:     {1, "", "not found in this database"},
		"held retry --all":                         {1, "", "no key was changed"},
		"held dead-letter a/1/2 --reason r --yes":  {1, "", "not held any more"},
		"inbox find charge-17":                     {1, "", "charge-17 is not known here"},
		"inbox find charge-17 --output json":       {1, "[]\n", "charge-17 is not known here"},
	} {
		o := s.troupe(strings.Fields(args)...)
		require.Equal(t, want.status, o.status, "%s: %+v", args, o)
		require.Equal(t, want.stdout, o.stdout, args)
		require.Contains(t, o.stderr, want.stderr, args)
	}
	o := s.troupe("dlq", "redrive", "--yes", none)
	require.Equal(t, exitFailed, o.status)
	require.Contains(t, o.stdout, "Refused:  "+none+": not found")
	o = s.troupe("dlq", "redrive", "--all", "--yes", "--output", "json")
	require.Equal(t, 0, o.status)
	require.Contains(t, o.stdout, `"redriven":0`)

	s.exec(`INSERT INTO troupe.dead_letters (consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset",
			headers, message_id, message_type, correlation_id, first_failed_at, last_failed_at)
		VALUES ('g', 'g/T', 'panic', E'boom\x1b[2J\nsecond line', 1, 'a.b.commands', gen_random_uuid(), 0, 0, '', 'm', 'T', 'c', now(), now())`)
	o = s.troupe("dlq", "redrive", "--all")
	require.Equal(t, exitUsage, o.status)
	require.Contains(t, o.stderr, "it would redrive 1 dead letter, at most 50 a second, as ")
	require.Contains(t, o.stderr, "use --yes")
	o = s.troupe("dlq", "list", "--letters")
	require.Contains(t, o.stdout, "boom·[2J·second line", "a terminal is not told what to do")
	require.Contains(t, o.stdout, "  -  ", "no key")
}

func TestABatchIsSkippedOnceWithANameAndAReason(t *testing.T) {
	t.Parallel()
	s := newPayments(t)
	s.exec(`INSERT INTO troupe.unreadable_batches (consumer_group, topic, topic_id, partition, "offset", next_offset, bytes)
		VALUES ('order.payment', 'order.payment.commands', gen_random_uuid(), 3, 1024, 1026, 27481)`)
	skip := []string{"batch", "skip", "order.payment.commands/3/1024", "--actor", "ann", "--reason", "ticket 4711"}
	require.Equal(t, "Would skip 2 offsets of order.payment.commands/3 for group order.payment, from offset 1024 to 1025, in a batch of "+
		"27481 bytes compressed.\nNothing was done.\n", s.troupe(append(skip, "--dry-run")...).stdout)
	require.Equal(t, "Skipped: the participant continues at offset 1026.\n", s.troupe(append(skip, "--yes")...).stdout)
	require.Contains(t, s.troupe(append(skip, "--yes")...).stderr, "not open any more: it was skipped at ")
	listed := s.troupe("batch", "list").stdout
	require.Regexp(t, `order.payment.commands/3/1024 +2 +27481 +order.payment +\S+ \S+ +\S+ \S+ +ann +ticket 4711`, listed)
}
