package repair_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/internal/short"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

func TestMain(m *testing.M) {
	if task := os.Getenv(redriverEnv); task != "" {
		beRedriver(task)
		return
	}
	short.Only(
		"Example", "TestAnEditIsWhatARedriveSends", "TestFiltersNarrow", "TestRetryMakesTheNextTryDue",
	)
	testkit.Main(m)
}

var ann = admin.Actor{Name: "ann", Reason: "ticket 4711"}

// Charge is the command to a payment service. The table rules contains what its handler does.
type Charge struct {
	N     int    `json:"n"`
	Cents int    `json:"cents"`
	Note  string `json:"note,omitempty"`
}

// Charged is its answer.
type Charged struct {
	N int `json:"n"`
}

// stage is a hop with a participant, a relay and a desk. Its handler does what the row of the table rules for its key contains:
// fail with an error, fail for good, or, without a row, charge.
type stage struct {
	t       testing.TB
	pool    *pgxpool.Pool
	brokers []string
	hop     topics.Hop
	client  *kgo.Client
	desk    *repair.Desk
}

const tables = `
CREATE TABLE rules (key text PRIMARY KEY, error text NOT NULL, permanent boolean NOT NULL);
CREATE TABLE charges (position bigint GENERATED ALWAYS AS IDENTITY, key text NOT NULL, n int NOT NULL, cents int NOT NULL);`

func newStage(t testing.TB) *stage {
	s := &stage{t: t, pool: testkit.Database(t), brokers: testkit.Kafka(t), hop: topics.MustHop(testkit.Flow(t), "payment")}
	s.exec(tables)
	var err error
	s.client, err = kafka.NewClient(s.brokers, kgo.ProducerBatchMaxBytes(1_040_000))
	require.NoError(t, err)
	t.Cleanup(s.client.Close)
	s.desk, err = repair.New(repair.Config{Pool: s.pool})
	require.NoError(t, err)
	for _, name := range []string{s.hop.Commands(), s.hop.Events(), s.hop.DeadLetters()} {
		require.NoError(t, kafka.Provision(t.Context(), s.client, kafka.Topic{Name: name, Partitions: 2}))
	}
	return s
}

// participant runs the hop until the test ends or stop is called.
func (s *stage) participant(change ...func(*participant.Config)) (stop func()) {
	p, err := participant.New(s.config(change...))
	require.NoError(s.t, err)
	participant.Handle(p, charge)
	return s.run(p.Run)
}

func (s *stage) config(change ...func(*participant.Config)) participant.Config {
	cfg := participant.Config{
		Pool: s.pool, Brokers: s.brokers, Hop: s.hop, Partitions: 2, Log: testkit.Logger(s.t),
		Retry:           retry.Policy{Initial: 10 * time.Millisecond, Cap: 20 * time.Millisecond, Attempts: 2},
		UnknownTypeWait: -1,
	}
	for _, c := range change {
		c(&cfg)
	}
	return cfg
}

func charge(ctx context.Context, tx pgx.Tx, c participant.Command[Charge]) (participant.Outcome, error) {
	var text string
	var permanent bool
	key := string(c.Message.Key)
	err := tx.QueryRow(ctx, "SELECT error, permanent FROM rules WHERE key = $1 OR key = '*'", key).Scan(&text, &permanent)
	switch {
	case err == nil && permanent:
		return participant.Outcome{}, retry.Permanent(errors.New(text))
	case err == nil:
		return participant.Outcome{}, errors.New(text)
	case !errors.Is(err, pgx.ErrNoRows):
		return participant.Outcome{}, err
	}
	_, err = tx.Exec(ctx, "INSERT INTO charges (key, n, cents) VALUES ($1, $2, $3)", key, c.Body.N, c.Body.Cents)
	return participant.Succeed(Charged{N: c.Body.N}), err
}

// relay runs a relay until the test ends or stop is called.
func (s *stage) relay() (stop func()) {
	r, err := relay.New(relay.Config{Source: relay.Poll, Pool: s.pool, Brokers: s.brokers, Service: "payment", Interval: 50 * time.Millisecond, Log: testkit.Logger(s.t)})
	require.NoError(s.t, err)
	return s.run(r.Run)
}

func (s *stage) run(run func(context.Context) error) (stop func()) {
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

// fails makes the handler fail for a key, or for all keys: "*".
func (s *stage) fails(key, text string, permanent bool) {
	s.exec("INSERT INTO rules VALUES ($1, $2, $3)", key, text, permanent)
}

func (s *stage) command(key string, body Charge) envelope.Message {
	payload, err := json.Marshal(body)
	require.NoError(s.t, err)
	id := envelope.NewID()
	return envelope.Message{
		Topic: s.hop.Commands(), Key: []byte(key), Payload: payload, ID: id, Type: "Charge", Source: "test", Subject: key,
		ContentType: envelope.JSON, CorrelationID: "flow-" + key, IdempotencyKey: id, Time: time.Now(),
	}
}

func (s *stage) send(messages ...envelope.Message) {
	s.t.Helper()
	records := make([]*kgo.Record, len(messages))
	for i, m := range messages {
		records[i] = kafka.Record(m)
	}
	require.NoError(s.t, s.client.ProduceSync(s.t.Context(), records...).FirstErr())
}

func (s *stage) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), sql, args...)
	require.NoError(s.t, err)
}

func (s *stage) count(sql string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), sql, args...).Scan(&n))
	return n
}

func (s *stage) waitCount(want int, sql string, args ...any) {
	s.t.Helper()
	testkit.Wait(s.t, sql, func() (bool, error) {
		n := s.count(sql, args...)
		if n != want {
			return false, fmt.Errorf("want %d, there are %d", want, n)
		}
		return true, nil
	})
}

// waitAll is waitCount for numbers that may take longer than one wait: it continues as long as the count grows.
func (s *stage) waitAll(want int, sql string, args ...any) {
	s.t.Helper()
	n := 0
	for before := 0; n < want; before = n {
		testkit.Wait(s.t, sql, func() (bool, error) {
			if n = s.count(sql, args...); n <= before {
				return false, fmt.Errorf("want %d, there are %d", want, n)
			}
			return true, nil
		})
	}
	require.Equal(s.t, want, n)
}

// entries returns the outbox's rows for a topic, as messages, in their order.
func (s *stage) entries(topic string) []envelope.Message {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), "SELECT "+outboxrow.Columns+" FROM troupe.outbox WHERE topic = $1 ORDER BY position", topic)
	require.NoError(s.t, err)
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (envelope.Message, error) {
		var r outboxrow.Row
		if err := row.Scan(r.Fields()...); err != nil {
			return envelope.Message{}, err
		}
		return r.Message(outboxrow.Defaults{})
	})
	require.NoError(s.t, err)
	return all
}

// read waits for n messages of a topic, in the order of their partitions. A message that a relay sent twice counts once.
func (s *stage) read(topic string, n int) (all []envelope.Message) {
	s.t.Helper()
	records := testkit.Consume(s.t, s.brokers, topic)
	testkit.Wait(s.t, fmt.Sprintf("%d messages", n), func() (bool, error) {
		all = nil
		seen := make(map[string]bool)
		for _, record := range records.Records() {
			m, err := kafka.Message(record)
			if err != nil {
				return false, err
			}
			if is := fmt.Sprintf("%s %s %s", m.ID, header(m, deadletter.HeaderRedrive), m.Payload); !seen[is] {
				seen[is] = true
				all = append(all, m)
			}
		}
		if len(all) < n {
			return false, fmt.Errorf("%d so far", len(all))
		}
		return true, nil
	})
	require.Len(s.t, all, n)
	return all
}

// letters returns all open dead letters.
func (s *stage) letters() []repair.DeadLetter {
	s.t.Helper()
	all, next, err := s.desk.List(s.t.Context(), repair.Filter{}, repair.Page{Limit: 10_000})
	require.NoError(s.t, err)
	require.Empty(s.t, next)
	return all
}

const openLetters = "SELECT count(*) FROM troupe.dead_letters WHERE status = 'open'"

func header(m envelope.Message, key string) string {
	for _, h := range m.Extra {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}
