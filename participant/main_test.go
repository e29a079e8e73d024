package participant_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/internal/short"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

func TestMain(m *testing.M) {
	if task := os.Getenv(memberEnv); task != "" {
		beMember(task)
		return
	}
	short.Only(
		"Example", "ExampleCall", "ExampleOnDeadline", "ExampleReact", "TestStatementsFitTheSchema", "TestConfigIsChecked",
		"TestDuplicatesChangeNothing", "TestABatchIsHandedOverAtOnce", "TestAHeldKeyWaitsInOrderWhileOthersGoOn",
		"TestUsedUpAttemptsBecomeADeadLetter", "TestARedrivenMessageIsNoDuplicate", "TestSchedulingAgainReplaces",
		"TestLocalWorkIsAnsweredLikeAnyOther",
	)
	testkit.Main(m)
}

// Count increments the counter of its key, so that a second effect shows.
type Count struct {
	N    int    `json:"n"`              // the number of the command within its key
	Fail string `json:"fail,omitempty"` // how the handler shall fail instead
}

// Counted is the answer to Count.
type Counted struct {
	N     int `json:"n"`
	Total int `json:"total"`
}

// TooMany is the refusal of Count.
type TooMany struct {
	Limit int `json:"limit"`
}

// stage is a hop with a database, a broker and a counter per key.
type stage struct {
	t       testing.TB
	pool    *pgxpool.Pool
	brokers []string
	hop     topics.Hop
	client  *kgo.Client
	batch   int // of the members
	local   bool
}

const counters = `
CREATE TABLE counters (key text PRIMARY KEY, total int NOT NULL DEFAULT 0);
CREATE TABLE done (position bigint GENERATED ALWAYS AS IDENTITY, key text NOT NULL, n int NOT NULL, attempt int NOT NULL);`

// forget empties the inbox, as if its retention were over.
const forget = "DELETE FROM troupe.inbox; DELETE FROM troupe.inbox_recent; DELETE FROM troupe.answers"

func newStage(t testing.TB) *stage {
	s := &stage{t: t, pool: testkit.Database(t), brokers: testkit.Kafka(t), hop: topics.MustHop(testkit.Flow(t), "payment")}
	_, err := s.pool.Exec(t.Context(), counters)
	require.NoError(t, err)
	// Retry topics are created by the participant: a broker under load takes 250 ms or more for each of these attempts.
	s.client, err = kafka.NewClient(s.brokers, kgo.ProducerBatchMaxBytes(1_040_000), kgo.UnknownTopicRetries(200))
	require.NoError(t, err)
	t.Cleanup(s.client.Close)
	return s
}

// quick returns short group time-outs for members that die, freeze or do not leave the group, for which others wait: Apache
// Kafka allows no session below 6 s, the embedded broker does. A process that is paused so long loses its partitions, and a
// test must tolerate it.
func quick() []kgo.Opt {
	session := time.Second
	if os.Getenv("TROUPE_KAFKA") != "" {
		session = 6 * time.Second
	}
	return []kgo.Opt{kgo.SessionTimeout(session), kgo.RebalanceTimeout(session * 9 / 10), kgo.HeartbeatInterval(100 * time.Millisecond)}
}

func (s *stage) config() participant.Config {
	return participant.Config{
		Pool: s.pool, Brokers: s.brokers, Local: s.local, Hop: s.hop, Partitions: 2, Log: testkit.Logger(s.t),
		Kafka: []kgo.Opt{kgo.HeartbeatInterval(100 * time.Millisecond)}, // to notice soon when another one joins
		Retry: retry.Policy{Initial: 10 * time.Millisecond, Cap: 20 * time.Millisecond, Attempts: 4},
	}
}

// provision creates the hop's topics before a participant does.
func (s *stage) provision(partitions int32) {
	s.t.Helper()
	testkit.Topics(s.t, s.client, partitions, s.hop.Commands(), s.hop.Events(), s.hop.DeadLetters())
}

// rewind makes the group read everything again. The group must be empty.
func (s *stage) rewind() {
	s.t.Helper()
	s.rewindGroup(s.hop.String())
}

func (s *stage) rewindGroup(group string) {
	s.t.Helper()
	admin := kadm.NewClient(s.client)
	offsets, err := admin.FetchOffsets(s.t.Context(), group)
	require.NoError(s.t, err)
	require.NotEmpty(s.t, offsets, "nothing was committed")
	again := make(kadm.Offsets)
	offsets.Each(func(o kadm.OffsetResponse) { again.AddOffset(o.Topic, o.Partition, 0, -1) })
	s.commit(group, again)
}

// skipTo sets the group's offset of the commands topic's first partition, as a tool does. The group must be empty.
func (s *stage) skipTo(offset int64) {
	s.t.Helper()
	offsets := make(kadm.Offsets)
	offsets.AddOffset(s.hop.Commands(), 0, offset, -1)
	s.commit(s.hop.String(), offsets)
}

// commit sets a group's offsets. A member that could not leave in time is in the group until its session ends, and until then
// no other client may commit.
func (s *stage) commit(group string, offsets kadm.Offsets) {
	s.t.Helper()
	testkit.Wait(s.t, "the group to take offsets from outside", func() (bool, error) {
		err := kadm.NewClient(s.client).CommitAllOffsets(s.t.Context(), group, offsets)
		return err == nil, err
	})
}

func (s *stage) new(change ...func(*participant.Config)) *participant.Participant {
	cfg := s.config()
	for _, c := range change {
		c(&cfg)
	}
	p, err := participant.New(cfg)
	require.NoError(s.t, err)
	return p
}

// start runs p until the test ends or the returned function was called, which waits for Run.
func (s *stage) start(p *participant.Participant) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- p.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-result:
				require.NoError(s.t, err)
			case <-time.After(4 * time.Minute):
				s.t.Fatal("Run did not end")
			}
		})
	}
	s.t.Cleanup(stop)
	return stop
}

// command returns a message for the hop with an id of its own.
func (s *stage) command(key string, body Count) envelope.Message {
	payload, err := json.Marshal(body)
	require.NoError(s.t, err)
	id := envelope.NewID()
	return envelope.Message{
		Topic: s.hop.Commands(), Key: []byte(key), Payload: payload, ID: id, Type: "Count", Source: "test", Subject: key,
		ContentType: envelope.JSON, CorrelationID: "flow-" + key, IdempotencyKey: id,
	}
}

// keys returns one key for each of a topic's partitions.
func (s *stage) keys(partitions int) []string {
	all := make([]string, partitions)
	pick := kgo.StickyKeyPartitioner(nil).ForTopic("")
	for found, n := 0, 0; found < partitions; n++ {
		key := fmt.Sprintf("k-%d", n)
		if at := pick.Partition(&kgo.Record{Key: []byte(key)}, partitions); all[at] == "" {
			all[at] = key
			found++
		}
	}
	return all
}

func (s *stage) send(messages ...envelope.Message) {
	s.t.Helper()
	records := make([]*kgo.Record, len(messages))
	for i, m := range messages {
		records[i] = kafka.Record(m)
	}
	s.produce(records...)
}

func (s *stage) produce(records ...*kgo.Record) {
	s.t.Helper()
	s.provision(2)
	require.NoError(s.t, s.client.ProduceSync(s.t.Context(), records...).FirstErr())
}

// records returns n commands for a key, padded.
func (s *stage) records(key string, n int, padding string) (all []*kgo.Record) {
	for range n {
		all = append(all, kafka.Record(s.command(key, Count{Fail: padding})))
	}
	return all
}

// committed returns the group's offset of a partition of the commands topic.
func (s *stage) committed(partition int32) int64 {
	s.t.Helper()
	return s.committedOf(s.hop.Commands(), partition)
}

func (s *stage) committedOf(topic string, partition int32) int64 {
	s.t.Helper()
	offsets, err := kadm.NewClient(s.client).FetchOffsets(s.t.Context(), s.hop.String())
	if errors.Is(err, kerr.GroupIDNotFound) || errors.Is(err, kerr.CoordinatorNotAvailable) {
		return 0 // no member has joined yet; of a new cluster, the broker may still create the topic of offsets
	}
	require.NoError(s.t, err)
	o, _ := offsets.Lookup(topic, partition)
	return o.At
}

func (s *stage) topic(name string) {
	s.t.Helper()
	testkit.Topics(s.t, s.client, 2, name)
}

// entries returns the outbox's rows for a topic, as messages, in their order.
func (s *stage) entries(topic string) []envelope.Message {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), "SELECT "+outboxrow.Columns+" FROM troupe.outbox WHERE topic = $1 ORDER BY position", topic)
	require.NoError(s.t, err)
	defer rows.Close()
	var all []envelope.Message
	for rows.Next() {
		var r outboxrow.Row
		require.NoError(s.t, rows.Scan(r.Fields()...))
		m, err := r.Message(outboxrow.Defaults{})
		require.NoError(s.t, err)
		all = append(all, m)
	}
	require.NoError(s.t, rows.Err())
	return all
}

func (s *stage) waitEvents(n int) []envelope.Message {
	s.t.Helper()
	var events []envelope.Message
	testkit.Wait(s.t, "events", func() (bool, error) {
		events = s.entries(s.hop.Events())
		return len(events) >= n, nil
	})
	require.Len(s.t, events, n)
	return events
}

func (s *stage) count(sql string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), sql, args...).Scan(&n))
	return n
}

func (s *stage) waitCount(want int, sql string, args ...any) {
	s.t.Helper()
	testkit.Wait(s.t, sql, func() (bool, error) { return s.count(sql, args...) == want, nil })
}

// waitAll waits for a count of many as long as it rises: the time they take depends on the load of the machine.
func (s *stage) waitAll(what string, want int, count func() int) {
	s.t.Helper()
	for n := count(); n < want; {
		before := n
		testkit.Wait(s.t, fmt.Sprintf("%s: %d of %d and no more", what, before, want), func() (bool, error) {
			n = count()
			return n > before, nil
		})
	}
}

func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	testkit.Wait(t, what, func() (bool, error) { return cond(), nil })
}

func entry(topic string, body any) outbox.Entry {
	return outbox.Entry{Topic: topic, Key: "a", Body: body}
}

func marshal(body any) []byte {
	b, err := json.Marshal(body)
	must(err)
	return b
}
