package watch_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/flow/watch"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/short"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

func TestMain(m *testing.M) {
	short.Only(
		"Example", "TestEveryStatementFitsTheTables", "TestAMissingMessageIsFoundAndResolvedWhenItComes",
	)
	testkit.Main(m)
}

// A stage has a flow's topics, and a database for the watcher.
type stage struct {
	t       testing.TB
	flow    string
	brokers []string
	client  *kgo.Client
	pool    *pgxpool.Pool
	sent    int
}

var hops = []string{"order", "payment", "inventory", "shipping"}

func newStage(t testing.TB) *stage {
	t.Helper()
	s := &stage{t: t, flow: testkit.Flow(t), brokers: testkit.Kafka(t), pool: testkit.Database(t)}
	var err error
	s.client, err = kafka.NewClient(s.brokers)
	require.NoError(t, err)
	t.Cleanup(s.client.Close)
	for _, hop := range hops {
		s.provision(hop)
	}
	return s
}

func (s *stage) provision(hop string) {
	s.t.Helper()
	h := topics.MustHop(s.flow, hop)
	testkit.Topics(s.t, s.client, 2, h.Commands(), h.Events(), h.DeadLetters())
}

func (s *stage) event(hop, typ string) flow.Message {
	return flow.Message{Topic: s.flow + "." + hop + ".events", Type: typ}
}

func (s *stage) last(hop, typ string) []flow.Message {
	m := s.event(hop, typ)
	m.Last = true
	return []flow.Message{m}
}

// declared declares the services of an order: it is paid and reserved, then shipped.
func (s *stage) declared() []flow.Declaration {
	placed := s.event("order", "Placed")
	return []flow.Declaration{
		{Hop: s.flow + ".order", Starts: []flow.Message{placed}},
		{Hop: s.flow + ".payment", Reactions: []flow.Reaction{
			{On: placed, Success: []flow.Message{s.event("payment", "Paid")}, Failure: []flow.Message{s.event("payment", "Declined")}},
		}},
		{Hop: s.flow + ".inventory", Reactions: []flow.Reaction{{On: placed, Success: []flow.Message{s.event("inventory", "Reserved")}}}},
		{Hop: s.flow + ".shipping", Joins: []flow.Join{{
			Name: "ready", Await: []flow.Message{s.event("payment", "Paid"), s.event("inventory", "Reserved")},
			Success: s.last("shipping", "Shipped"), Broken: []flow.Message{s.event("payment", "Declined")},
		}}},
	}
}

// A said is a message that a hop sends, at a time before now.
type said struct {
	hop, typ, key string
	id, cause     string
	flow          string // "": the key
	outcome       envelope.Outcome
	ago           time.Duration
	kind          string // "": events
	extra         []envelope.Header
}

func (s *stage) send(all ...said) {
	s.t.Helper()
	var records []*kgo.Record
	now := time.Now() // one value for all: a broker truncates times to milliseconds, and the test compares differences
	for _, m := range all {
		if m.kind == "" {
			m.kind = "events"
		}
		if m.flow == "" {
			m.flow = m.key
		}
		at := now.Add(-m.ago)
		r := kafka.Record(envelope.Message{
			Topic: s.flow + "." + m.hop + "." + m.kind, Key: []byte(m.key), Type: m.typ, ID: m.id, CorrelationID: m.flow, CausationID: m.cause,
			Outcome: m.outcome, Time: at, Extra: m.extra, Payload: []byte("{}"),
		})
		r.Timestamp = at
		records = append(records, r)
	}
	require.NoError(s.t, s.client.ProduceSync(s.t.Context(), records...).FirstErr())
	s.sent += len(all)
}

// order returns the messages of a complete order that began an hour ago, with a tenth of a second between any two.
func order(key string) []said {
	ago := func(n int) time.Duration { return time.Hour - time.Duration(n)*100*time.Millisecond }
	return []said{
		{hop: "order", typ: "Placed", key: key, id: key + "-1", ago: ago(0), outcome: envelope.Success},
		{hop: "payment", typ: "Paid", key: key, id: key + "-2", cause: key + "-1", ago: ago(1), outcome: envelope.Success},
		{hop: "inventory", typ: "Reserved", key: key, id: key + "-3", cause: key + "-1", ago: ago(2), outcome: envelope.Success},
		{hop: "shipping", typ: "Shipped", key: key, id: key + "-4", cause: key + "-3", ago: ago(3), outcome: envelope.Success},
	}
}

// A watching is a running watcher.
type watching struct {
	*stage
	mu    sync.Mutex
	found []watch.Finding
	stop  func()
}

func (s *stage) config() watch.Config {
	return watch.Config{
		Pool: s.pool, Brokers: s.brokers, Flow: s.flow, Declared: s.declared(), Answer: 5 * time.Second, Log: testkit.Logger(s.t),
	}
}

func (s *stage) watch(change ...func(*watch.Config)) *watching {
	s.t.Helper()
	w := &watching{stage: s}
	cfg := s.config()
	cfg.Found = func(_ context.Context, f watch.Finding) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.found = append(w.found, f)
	}
	for _, c := range change {
		c(&cfg)
	}
	watcher, err := watch.New(cfg)
	require.NoError(s.t, err)
	w.stop = s.run(watcher)
	return w
}

// run runs the watcher until the test ends or stop is called.
func (s *stage) run(watcher *watch.Watcher) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- watcher.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(s.t, <-ended)
	})
	s.t.Cleanup(stop)
	return stop
}

func (w *watching) texts() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.found {
		all = append(all, strings.ReplaceAll(string(f.Kind)+": "+f.Text, w.flow+".", ""))
	}
	return all
}

func (s *stage) desk() *watch.Desk {
	s.t.Helper()
	d, err := watch.OpenDesk(s.t.Context(), s.pool, s.flow)
	require.NoError(s.t, err)
	return d
}

// judged waits until all messages sent so far are stored and judged.
func (s *stage) judged() {
	s.t.Helper()
	now := time.Now()
	testkit.Wait(s.t, "the watcher", func() (bool, error) {
		d, err := watch.OpenDesk(s.t.Context(), s.pool, s.flow)
		if err != nil {
			return false, nil
		}
		// a topic that the watcher has not found yet was not judged
		if n := s.count("SELECT count(DISTINCT topic) FROM troupe.watch_offsets"); n < 3*len(hops) {
			return false, fmt.Errorf("%d topics found", n)
		}
		return d.SeenAt().After(now), nil
	})
}

func (s *stage) count(sql string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), sql, args...).Scan(&n))
	return n
}

func (s *stage) show(subject string) *watch.Flow {
	s.t.Helper()
	f, err := s.desk().Show(s.t.Context(), subject)
	require.NoError(s.t, err)
	return f
}

// TestAFlowThatWasOverBeforeTheWatcherCameIsSeenWhole starts the watcher late; it reads from the beginning of the log.
func TestAFlowThatWasOverBeforeTheWatcherCameIsSeenWhole(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.send(order("o-1")...)
	s.send(order("o-2")...)
	s.send(order("o-2")[1]) // delivered again
	s.send(said{hop: "order", typ: "Placed", key: "o-0", id: "o-0-1", ago: 8 * 24 * time.Hour})
	w := s.watch()
	s.judged()
	require.Empty(t, w.texts())
	require.Equal(t, 9, s.count("SELECT count(*) FROM troupe.watch_messages"), "but no message past the retention")

	f := s.show("o-2")
	require.Equal(t, watch.Completed, f.Status)
	require.Equal(t, "o-2", f.Key)
	require.Equal(t, 4, f.Count)
	var lines []string
	for _, m := range f.Messages {
		lines = append(lines, fmt.Sprint(strings.TrimPrefix(m.Hop, s.flow+"."), " ", m.Kind, " ", m.Type, " ", m.Outcome, " ", m.ID, " ", m.Cause, " ", m.Repeats))
	}
	require.Equal(t, []string{
		"order events Placed success o-2-1 -1 0", "payment events Paid success o-2-2 0 1", "inventory events Reserved success o-2-3 0 0",
		"shipping events Shipped success o-2-4 2 0",
	}, lines)
	flows, _, err := s.desk().Find(t.Context(), watch.Filter{}, 10, "")
	require.NoError(t, err)
	require.Len(t, flows, 2)
	_, err = s.desk().Show(t.Context(), "o-3")
	require.ErrorIs(t, err, watch.ErrNone)
}

// TestAMissingMessageIsFoundAndResolvedWhenItComes checks a missing answer, and the join that waits for it.
func TestAMissingMessageIsFoundAndResolvedWhenItComes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	o := order("o-1")
	s.send(o[0], o[2])
	w := s.watch()
	testkit.Wait(t, "findings", func() (bool, error) { return len(w.texts()) == 2, nil })
	require.ElementsMatch(t, []string{
		"missing: payment has not sent Paid or Declined within 5s after Placed of order.events",
		"stuck join: shipping (ready) has not ended within 5s after Reserved of inventory.events: it waits for payment.events Paid",
	}, w.texts())
	require.Equal(t, watch.Deviant, s.show("o-1").Status)

	o[1].ago, o[3].ago = 0, 0
	s.send(o[1], o[3])
	testkit.Wait(t, "the late message", func() (bool, error) { return len(w.texts()) == 4, nil })
	s.judged()
	f := s.show("o-1")
	require.Equal(t, watch.Completed, f.Status)
	require.Len(t, f.Findings, 2)
	for _, one := range f.Findings {
		require.Equal(t, watch.Late, one.Kind)
		require.NotNil(t, one.CameAt)
	}
	open, err := s.desk().Findings(t.Context(), true, 10)
	require.NoError(t, err)
	require.Empty(t, open)
	require.Len(t, w.texts(), 4, "and no more")
}

// TestAMessageThatWasLateBeforeItWasReadIsReportedLate stops the watcher while the answer arrives.
func TestAMessageThatWasLateBeforeItWasReadIsReportedLate(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	o := order("o-1")
	o[1].ago -= 10 * time.Second
	o[3].ago -= 10 * time.Second
	s.send(o...)
	w := s.watch()
	s.judged()
	require.ElementsMatch(t, []string{
		"late: payment took 10.1s after Placed of order.events, not 5s: Paid or Declined",
		"late: shipping (ready) took 10.1s after Reserved of inventory.events, not 5s: Shipped",
	}, w.texts())
	require.Equal(t, watch.Completed, s.show("o-1").Status)
}

// TestExpectationsAreJudgedByTheKey checks that the expected message may arrive first, and that if it does not arrive, an
// event must report it.
func TestExpectationsAreJudgedByTheKey(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	expecting := func(c *watch.Config) {
		c.Declared[0].Expectations = []flow.Expectation{{
			Name: "shipped", After: s.event("payment", "Paid"), Expect: []flow.Message{s.event("shipping", "Shipped")},
			Within: "1m", Raise: s.event("order", "NotShipped"),
		}}
	}
	met, raised, unsaid := order("met"), order("raised"), order("unsaid")
	met[3].ago = time.Hour // before it is paid
	s.send(met...)
	s.send(raised[0], raised[1], said{hop: "order", typ: "NotShipped", key: "raised", id: "raised-5", cause: "raised-2", ago: 50 * time.Minute})
	s.send(unsaid[0], unsaid[1])
	w := s.watch(expecting)
	s.judged()
	var found []string
	for _, text := range w.texts() {
		if strings.Contains(text, "(shipped)") {
			found = append(found, text)
		}
	}
	require.ElementsMatch(t, []string{
		"missing: order (shipped) has not sent Shipped within 1m0s after Paid of payment.events",
		"missing: order (shipped) has not sent Shipped within 1m0s after Paid of payment.events",
		"missing: order (shipped) has not sent NotShipped or Shipped within 1m5s after Paid of payment.events",
		"late: order (shipped) took 9m59.9s after Paid of payment.events, not 1m5s: NotShipped or Shipped",
	}, found)
}

// TestUndeclaredMessagesAreReportedOnceAndCounted also checks that a hop's dead letters and exhausted events are not unexpected.
func TestUndeclaredMessagesAreReportedOnceAndCounted(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	w := s.watch()
	for i := range 5 {
		s.send(said{hop: "payment", typ: "Payed", key: "o-1", id: fmt.Sprint("p-", i)})
	}
	s.send(said{hop: "payment", typ: "troupe.Exhausted", key: "o-1", id: "x", cause: "o-1-1", outcome: envelope.Exhausted})
	s.send(said{hop: "payment", kind: "dlq", typ: "Placed", key: "o-1", id: "o-1-1",
		extra: []envelope.Header{{Key: deadletter.HeaderMessageID, Value: []byte("o-1-1")}}})
	s.judged()
	require.Equal(t, []string{"unexpected: Payed on payment.events is declared by no service"}, w.texts())
	found, err := s.desk().Findings(t.Context(), false, 10)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.EqualValues(t, 5, found[0].Messages)
	require.Equal(t, "o-1", found[0].Correlation)
	require.Equal(t, watch.Parked, s.show("o-1").Status)
}

// TestAWatcherThatIsStoppedAnywhereCountsNothingTwice stops and starts watchers, two of them at a time, while messages
// arrive.
func TestAWatcherThatIsStoppedAnywhereCountsNothingTwice(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	small := func(c *watch.Config) { c.Batch = 7 }
	const orders = 40
	for i := range orders {
		s.send(order(fmt.Sprint("o-", i))...)
		s.send(said{hop: "order", typ: "Other", key: "k", id: fmt.Sprint("other-", i)})
		if i == 0 {
			first := s.watch(small)
			testkit.Wait(t, "a finding for the undeclared message", func() (bool, error) { return len(first.texts()) == 1, nil })
			first.stop()
		}
		if i%10 == 5 {
			stored := s.count("SELECT count(*) FROM troupe.watch_messages")
			a, b := s.watch(small), s.watch(small)
			testkit.Wait(t, "something stored", func() (bool, error) {
				return s.count("SELECT count(*) FROM troupe.watch_messages") > stored, nil
			})
			a.stop()
			b.stop()
			require.Empty(t, append(a.texts(), b.texts()...), "findings that were reported before")
		}
	}
	w := s.watch(small)
	s.judged()
	require.Equal(t, s.sent, s.count("SELECT count(*) FROM troupe.watch_messages"))
	require.Equal(t, s.sent, s.count(`SELECT count(DISTINCT (topic, partition, "offset")) FROM troupe.watch_messages`))
	require.Equal(t, orders, s.count("SELECT sum(messages)::int FROM troupe.watch_unexpected"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.watch_findings"))
	require.Empty(t, w.texts(), "findings that were reported before")
}

// TestAnotherDeclarationJudgesAnew checks that stored messages are judged again, too.
func TestAnotherDeclarationJudgesAnew(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.send(order("o-1")...)
	first := s.watch()
	s.judged()
	first.stop()
	require.Empty(t, first.texts())
	other := s.watch(func(c *watch.Config) {
		c.Declared[2].Reactions[0].Success[0].Type = "Taken"
		c.Declared[3].Joins[0].Await[1].Type = "Taken"
	})
	s.judged()
	other.stop()
	require.Equal(t, []string{"missing: inventory has not sent Taken within 5s after Placed of order.events"}, other.texts())
	found, err := s.desk().Findings(t.Context(), false, 10)
	require.NoError(t, err)
	require.Len(t, found, 2)
	require.Equal(t, watch.Unexpected, found[0].Kind)
	require.Equal(t, "Reserved", found[0].Type)
	s.watch()
	s.judged()
	found, err = s.desk().Findings(t.Context(), false, 10)
	require.NoError(t, err)
	require.Empty(t, found)
}

// TestAFlowUnderWayIsNoFinding also creates the flow's topics one by one.
func TestAFlowUnderWayIsNoFinding(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	w := s.watch(func(c *watch.Config) { c.Answer = time.Hour })
	s.judged()
	s.provision("extra")
	o := order("o-1")
	o[0].ago, o[2].ago = 0, 0
	s.send(o[0], o[2], said{hop: "extra", typ: "Seen", key: "o-1", id: "e", cause: "o-1-1", outcome: envelope.Success})
	testkit.Wait(t, "all messages", func() (bool, error) { return s.count("SELECT count(*) FROM troupe.watch_messages") == 3, nil })
	testkit.Wait(t, "the finding", func() (bool, error) { return len(w.texts()) > 0, nil }) // Found is called after the finding was stored
	f := s.show("o-1")
	require.Equal(t, watch.UnderWay, f.Status)
	require.Len(t, f.Waiting, 2)
	require.Equal(t, []string{"unexpected: Seen on extra.events is declared by no service"}, w.texts())
}

// TestMessagesOfAnotherFlowAreStoredAndNotJudged checks that a topic of another flow is read if a reaction names it, and that all
// of its types are accepted.
func TestMessagesOfAnotherFlowAreStoredAndNotJudged(t *testing.T) {
	t.Parallel()
	s, other := newStage(t), newStage(t)
	other.send(said{hop: "order", typ: "Opened", key: "k", id: "1", ago: time.Hour}, said{hop: "order", typ: "Closed", key: "k", id: "2", ago: time.Hour})
	w := s.watch(func(c *watch.Config) {
		c.Declared[0].Reactions = []flow.Reaction{{
			On:      flow.Message{Topic: other.flow + ".order.events", Type: "Opened"},
			Success: []flow.Message{s.event("order", "Welcomed")},
		}}
	})
	s.judged()
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.watch_messages"))
	found := strings.ReplaceAll(strings.Join(w.texts(), " "), other.flow, "other")
	require.Equal(t, "missing: order has not sent Welcomed within 5s after Opened of other.order.events", found)
}

// TestATopicThatIsMadeAnewIsReadFromItsBeginning recreates a topic with fewer messages than the old one had.
func TestATopicThatIsMadeAnewIsReadFromItsBeginning(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for i := range 5 {
		s.send(said{hop: "order", typ: "Other", key: "k", id: fmt.Sprint("old-", i)})
	}
	w := s.watch()
	s.judged()
	w.stop()
	topic := s.flow + ".order.events"
	before, err := kafka.TopicIDs(t.Context(), s.client, topic)
	require.NoError(t, err)
	_, err = kadm.NewClient(s.client).DeleteTopic(t.Context(), topic)
	require.NoError(t, err)
	testkit.Wait(t, "the topic to be another", func() (bool, error) {
		if err := kafka.Provision(t.Context(), s.client, kafka.Topic{Name: topic, Partitions: 2}); err != nil {
			return false, nil // it is being deleted
		}
		after, err := kafka.TopicIDs(t.Context(), s.client, topic)
		return err == nil && len(after) == 1 && after[topic] != before[topic], err
	})
	testkit.Wait(t, "a message on it", func() (bool, error) {
		fresh, err := kafka.NewClient(s.brokers)
		require.NoError(t, err)
		defer fresh.Close()
		err = fresh.ProduceSync(t.Context(), kafka.Record(envelope.Message{Topic: topic, Key: []byte("k"), Type: "New", ID: "new"})).FirstErr()
		return err == nil, err
	})
	s.watch()
	testkit.Wait(t, "the new message", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.watch_messages WHERE id_text = 'new'") >= 1, nil
	})
	require.Equal(t, 5, s.count("SELECT count(*) FROM troupe.watch_messages WHERE id_text LIKE 'old-%'"))
}

// TestATopicThatIsDeletedStopsNoJudgement deletes the topic of a service that was renamed, while the watcher runs.
func TestATopicThatIsDeletedStopsNoJudgement(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	topic := topics.MustHop(s.flow, "billing").Events()
	require.NoError(t, kafka.Provision(t.Context(), s.client, kafka.Topic{Name: topic, Partitions: 2}))
	s.send(order("o-1")...)
	w := s.watch()
	testkit.Wait(t, "the watcher to read the topic", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.watch_offsets AS o JOIN troupe.watch_names AS n ON n.id = o.topic WHERE n.name = $1", topic) == 2, nil
	})
	s.judged()
	_, err := kadm.NewClient(s.client).DeleteTopic(t.Context(), topic)
	require.NoError(t, err)
	s.send(said{hop: "order", typ: "Placed", key: "o-2", id: "o-2-1", ago: time.Minute})
	testkit.Wait(t, "the missing answers", func() (bool, error) {
		return len(w.texts()) == 2, nil
	})
}

// TestDaysPastTheRetentionAreEmptied checks that their partitions are truncated.
func TestDaysPastTheRetentionAreEmptied(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.send(order("o-1")...)
	first := s.watch()
	s.judged()
	first.stop()
	today := int(time.Now().Unix() / 86400)
	for _, ago := range []int{2, 8, 14} { // as if the watcher had run then
		slot := (today - ago) % 16
		_, err := s.pool.Exec(t.Context(), `INSERT INTO troupe.watch_messages (slot, flow, topic, partition, "offset", at, written_at, type, outcome, id, correlation, key)
			SELECT $1, 1, 1, 0, 0, to_timestamp($2), to_timestamp($2), 1, 0, gen_random_uuid(), gen_random_uuid(), 'old'`, slot, (today-ago)*86400)
		require.NoError(t, err)
		_, err = s.pool.Exec(t.Context(), "UPDATE troupe.watch_days SET day = $2 WHERE slot = $1", slot, today-ago)
		require.NoError(t, err)
	}
	s.watch()
	s.judged()
	require.Equal(t, 4+1, s.count("SELECT count(*) FROM troupe.watch_messages"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.watch_days WHERE day = $1 - 2", today))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.watch_days WHERE day BETWEEN 1 AND $1 - 4", today))
}

// TestALimitBeyondTheRetentionIsLogged: the message after which the other one is expected is deleted before the time is over.
func TestALimitBeyondTheRetentionIsLogged(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var log bytes.Buffer
	w := s.watch(func(c *watch.Config) {
		c.Retention, c.Log = 48*time.Hour, zerolog.New(&log)
		for within, typ := range map[string]string{"47h": "Shipped", "72h": "Returned"} {
			c.Declared[0].Expectations = append(c.Declared[0].Expectations, flow.Expectation{
				Name: strings.ToLower(typ), After: s.event("order", "Placed"), Within: within,
				Expect: []flow.Message{s.event("shipping", typ)}, Raise: s.event("order", typ+"Late"),
			})
		}
	})
	s.judged()
	w.stop()
	require.Equal(t, 2, strings.Count(log.String(), "a missing answer is not found"), log.String())
	require.Contains(t, log.String(), "expectation returned: Returned within 72h0m0s")
	require.NotContains(t, log.String(), "expectation shipped")
}

// TestWhateverARecordHoldsIsStored writes records without Troupe's headers, as other producers may.
func TestWhateverARecordHoldsIsStored(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	long := strings.Repeat("k", 3000)
	records := []*kgo.Record{
		{}, {Key: []byte{0, 0xff}, Value: []byte("x")}, {Key: []byte(long)},
		{Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte(long)}, {Key: "ce_type", Value: []byte{0}}, {Key: "ce_correlationid", Value: []byte("ü")}}},
		{Headers: []kgo.RecordHeader{{Key: "ce_id"}, {Key: "ce_time", Value: []byte("soon")}, {Key: "ce_outcome", Value: []byte("maybe")}}},
		{Timestamp: time.Now().Add(30 * time.Minute)},
		{Headers: []kgo.RecordHeader{{Key: "ce_time", Value: []byte("9999-12-31T23:59:59-12:00")}}}, // a year that JSON does not have
	}
	for _, r := range records {
		r.Topic = s.flow + ".order.events"
	}
	require.NoError(t, s.client.ProduceSync(t.Context(), records...).FirstErr())
	s.watch()
	s.judged()
	require.Equal(t, len(records), s.count("SELECT count(*) FROM troupe.watch_messages"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.watch_messages WHERE at > now() OR written_at >= '10000-01-01 00:00Z'"))
	require.Equal(t, "ü", s.show("ü").ID)
	require.Equal(t, 1, s.show(long).Count, "keys are hashed where they are long, and found all the same")
}

// TestNothingOfTheFlowChanges checks that there is no new group, offset or record, with only the rights that the package
// comment names.
func TestNothingOfTheFlowChanges(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	admin := kadm.NewClient(s.client)
	s.send(order("o-1")...)
	var offsets kadm.Offsets
	offsets.AddOffset(s.flow+".order.events", 0, 1, -1)
	require.NoError(t, admin.CommitAllOffsets(t.Context(), s.flow+".payment", offsets))
	state := func() string {
		committed, err := admin.FetchOffsets(t.Context(), s.flow+".payment")
		require.NoError(t, err)
		groups, err := admin.ListGroups(t.Context())
		require.NoError(t, err)
		var ours []string
		for _, g := range groups.Groups() {
			if strings.HasPrefix(g, s.flow) {
				ours = append(ours, g)
			}
		}
		ends, err := admin.ListEndOffsets(t.Context(), s.topics()...)
		require.NoError(t, err)
		topics, err := admin.ListTopics(t.Context())
		require.NoError(t, err)
		var names []string
		for _, name := range topics.Names() {
			if strings.HasPrefix(name, s.flow) {
				names = append(names, name)
			}
		}
		text := fmt.Sprint(ours, names, committed.Offsets().Sorted())
		for _, end := range ends.Offsets().Sorted() {
			text += fmt.Sprint(end.Topic, end.Partition, end.At)
		}
		return text
	}
	before := state()

	limited := grantstest.New(t, s.pool, grants.Watch).Pool()
	_, err := s.pool.Exec(t.Context(), "UPDATE troupe.watch_days SET day = 1 WHERE slot = 1") // so that it is truncated
	require.NoError(t, err)
	w := s.watch(func(c *watch.Config) { c.Pool = limited })
	s.judged()
	require.Equal(t, watch.Completed, s.show("o-1").Status)
	w.stop()
	require.Equal(t, before, state())
	_, err = limited.Exec(t.Context(), "DELETE FROM troupe.outbox")
	require.ErrorContains(t, err, "permission denied")
}

func (s *stage) topics() (names []string) {
	for _, hop := range hops {
		names = append(names, s.flow+"."+hop+".commands", s.flow+"."+hop+".events", s.flow+"."+hop+".dlq")
	}
	return names
}

func TestEveryStatementFitsTheTables(t *testing.T) {
	t.Parallel()
	conn, err := testkit.Database(t).Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	files, err := filepath.Glob("sql/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		sql, err := os.ReadFile(file)
		require.NoError(t, err)
		text, _, err := pgx.NamedArgs{}.RewriteQuery(t.Context(), conn.Conn(), string(sql), nil)
		require.NoError(t, err)
		_, err = conn.Conn().Prepare(t.Context(), "", text)
		require.NoError(t, err, file)
	}
}

func TestAConfigThatCannotBeMeantIsRefused(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	good := func() watch.Config {
		return watch.Config{Pool: pool, Brokers: []string{"127.0.0.1:1"}, Flow: "order", Declared: []flow.Declaration{{
			Hop: "order.order", Starts: []flow.Message{{Topic: "order.order.events", Type: "Placed"}},
		}}}
	}
	_, err := watch.New(good())
	require.NoError(t, err)
	for want, change := range map[string]func(*watch.Config){
		"no Pool":           func(c *watch.Config) { c.Pool = nil },
		"no Brokers":        func(c *watch.Config) { c.Brokers = nil },
		"none below zero":   func(c *watch.Config) { c.Answer = -1 },
		"want at most 336h": func(c *watch.Config) { c.Retention = 15 * 24 * time.Hour },
		"nothing Declared":  func(c *watch.Config) { c.Declared = nil },
		"not a topic name":  func(c *watch.Config) { c.Flow = "Order" },
		"is of another":     func(c *watch.Config) { c.Flow = "shop" },
		"takes no part":     func(c *watch.Config) { c.Declared[0].Starts = nil },
	} {
		cfg := good()
		change(&cfg)
		_, err := watch.New(cfg)
		require.ErrorContains(t, err, want)
	}
}

func TestADatabaseWithoutItsTablesEndsTheRun(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), testkit.EmptyDatabase(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	w, err := watch.New(watch.Config{Pool: pool, Brokers: testkit.Kafka(t), Flow: "order", Declared: []flow.Declaration{{
		Hop: "order.order", Starts: []flow.Message{{Topic: "order.order.events", Type: "Placed"}},
	}}})
	require.NoError(t, err)
	require.ErrorContains(t, w.Run(t.Context()), "troupe.watch_names")
}

// TestAReaderDoesNotStopTheWatcher: a viewer, or a dump, keeps a transaction open that has read the messages. No partition can be truncated
// meanwhile.
func TestAReaderDoesNotStopTheWatcher(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	first := s.watch()
	s.judged()
	first.stop()
	today := int(time.Now().Unix() / 86400)
	old := (today - 8) % 16
	_, err := s.pool.Exec(t.Context(), `INSERT INTO troupe.watch_messages (slot, flow, topic, partition, "offset", at, written_at, type, outcome, id, correlation, key)
		SELECT $1, 1, 1, 0, 0, to_timestamp($2), to_timestamp($2), 1, 0, gen_random_uuid(), gen_random_uuid(), 'old'`, old, (today-8)*86400)
	require.NoError(t, err)
	_, err = s.pool.Exec(t.Context(), "UPDATE troupe.watch_days SET day = $2 WHERE slot = $1", old, today-8)
	require.NoError(t, err)
	_, err = s.pool.Exec(t.Context(), "UPDATE troupe.watch_days SET day = 0 WHERE day = $1", today) // as if today had just begun
	require.NoError(t, err)
	reader, err := grantstest.New(t, s.pool, grants.Viewer).Pool().Begin(t.Context())
	require.NoError(t, err)
	defer reader.Rollback(context.Background())
	_, err = reader.Exec(t.Context(), "SELECT FROM troupe.watch_messages")
	require.NoError(t, err)

	s.send(order("o-1")...)
	watching := s.watch()
	s.judged()
	require.Equal(t, 4, s.count("SELECT count(*) FROM troupe.watch_messages WHERE slot <> $1", old))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.watch_messages WHERE slot = $1", old))
	watching.stop()
	require.NoError(t, reader.Rollback(t.Context()))
	s.watch()
	s.judged()
	require.Zero(t, s.count("SELECT count(*) FROM troupe.watch_messages WHERE slot = $1", old))
}
