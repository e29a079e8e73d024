package relay_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/short"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	short.Only(
		"Example", "Example_mapping", "TestEveryStatementFitsTheTables", "TestRowsArePublishedAndThenGone",
		"TestARowThatCommitsLateIsNotLost", "TestRowsThatRolledBackAreNeverSent", "TestARowThatIsTooLargeParksOnlyItsKey", "TestOfTwoRelaysOneIsActive",
	)
	testkit.Main(m)
}

// source is the source of the tests' relays. The suite runs with each. TROUPE_SOURCE=poll leaves out the tests that need the log.
var source = relay.Source(cmp.Or(os.Getenv("TROUPE_SOURCE"), string(relay.Poll)))

// delivery is their delivery guarantee; the suite also runs with exactly-once, if the source is the log.
var delivery = relay.Delivery(cmp.Or(os.Getenv("TROUPE_DELIVERY"), string(relay.AtLeastOnce)))

// stage has what nearly every test needs: a database, a broker and a topic of its own.
type stage struct {
	t       testing.TB
	pool    *pgxpool.Pool
	brokers []string
	flow    string
	topic   string
}

func newStage(t testing.TB) *stage {
	s := &stage{t: t, pool: testkit.Database(t), brokers: testkit.Kafka(t), flow: testkit.Flow(t)}
	s.topic = s.createTopic("main", 3)
	return s
}

func (s *stage) createTopic(name string, partitions int32) string {
	s.t.Helper()
	topic := s.flow + "." + name + ".commands"
	s.provision(kafka.Topic{Name: topic, Partitions: partitions})
	return topic
}

// provision creates a topic, with settings.
func (s *stage) provision(topic kafka.Topic) {
	s.t.Helper()
	client, err := kafka.NewClient(s.brokers)
	require.NoError(s.t, err)
	defer client.Close()
	require.NoError(s.t, kafka.Provision(s.t.Context(), client, topic))
	testkit.Topics(s.t, client, topic.Partitions, topic.Name)
}

// config has a short interval, so that tests need not wait, and a lease that is long enough for a machine that is busy with
// other tests, or stalls for ten seconds between a row's acknowledgement and its delete; tests of a lease that expires set
// it.
func (s *stage) config() relay.Config {
	return relay.Config{
		Pool: s.pool, Brokers: s.brokers, Service: "shop",
		Source: source, Delivery: delivery, Interval: 50 * time.Millisecond, Lease: 30 * time.Second, Log: testkit.Logger(s.t),
	}
}

// A running relay, stopped by stop or at Cleanup.
type running struct {
	*relay.Relay
	stop func() error // stops it and returns the result of Run
	// stopping reports whether stop was called.
	stopping func() bool
}

// needsLog skips a test with relays that read the log if TROUPE_SOURCE asks for polling.
func needsLog(t testing.TB) {
	if os.Getenv("TROUPE_SOURCE") == string(relay.Poll) {
		t.Skip("it reads the log, and TROUPE_SOURCE is poll")
	}
}

func (s *stage) start(cfg relay.Config) running {
	s.t.Helper()
	r, err := relay.New(cfg)
	require.NoError(s.t, err)
	return s.run(r)
}

func (s *stage) run(r *relay.Relay) running {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	var result error
	go func() {
		defer close(ended)
		result = r.Run(ctx)
	}()
	stop := func() error {
		cancel()
		<-ended
		return result
	}
	s.t.Cleanup(func() { require.NoError(s.t, stop()) })
	return running{r, stop, func() bool { return ctx.Err() != nil }}
}

func waitRole(t testing.TB, r running, role relay.Role) {
	t.Helper()
	testkit.Wait(t, string(role), func() (bool, error) { return r.Status().Role == role, nil })
}

func (s *stage) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.pool.Exec(context.Background(), sql, args...)
	require.NoError(s.t, err, sql)
}

func (s *stage) insert(topic, key, payload string) {
	s.t.Helper()
	s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, 'Thing', $3)`, topic, key, []byte(payload))
}

func (s *stage) count(sql string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(context.Background(), sql, args...).Scan(&n), sql)
	return n
}

// left counts rows that are not published.
func (s *stage) left() string {
	left := "SELECT count(*) FROM troupe.outbox"
	if source == relay.WAL {
		left += ` o WHERE EXISTS (SELECT FROM troupe.outbox_failures t WHERE t.position = o.position)
			OR NOT pg_visible_in_snapshot(o.xid, coalesce((SELECT published FROM troupe.relay_state), '1:1:'))`
	}
	return left
}

// waitEmpty waits until no row is unpublished: if published rows are removed, until the table is empty.
func (s *stage) waitEmpty() {
	s.t.Helper()
	testkit.Wait(s.t, "an empty outbox", func() (bool, error) {
		if n := s.count(s.left()); n > 0 {
			return false, fmt.Errorf("%d rows", n)
		}
		return true, nil
	})
}

func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// values returns the payloads of first copies: at least once, a row may be repeated under its id, whenever a stream or a
// lease is lost. The id of an EventRouter's record is in another header.
func values(records []*kgo.Record) (vs []string) {
	seen := make(map[string]bool)
	for _, r := range records {
		id := cmp.Or(header(r, "ce_id"), header(r, "id"))
		if id == "" || !seen[id] {
			vs = append(vs, string(r.Value))
		}
		seen[id] = true
	}
	return vs
}

func TestRowsArePublishedAndThenGone(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r := s.start(s.config())
	for n := range 10 {
		s.insert(s.topic, "k", fmt.Sprint(n))
	}
	records := testkit.Consume(t, s.brokers, s.topic).WaitN(10)
	require.Equal(t, []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, values(records))
	require.Equal(t, "shop", header(records[0], "ce_source"))
	s.waitEmpty()
	testkit.Wait(t, "the count of deleted rows", func() (bool, error) { return r.Status().Deleted == 10, nil })
	status := r.Status()
	require.Equal(t, relay.Active, status.Role)
	require.EqualValues(t, 1, status.Term)
	require.EqualValues(t, 10, status.Published)
	require.NoError(t, r.Ready())
	require.NoError(t, r.stop())
	require.ErrorContains(t, r.Ready(), "stopped")
}
