package timeline_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/timeline"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/demo/messages"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/testkit"
)

func TestAFlowIsShownOverAllHopsByKeyAndById(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.payments()
	s.shippings()
	s.relays()
	first := s.place("o-1", Charge{})
	for n := range 10 {
		s.place(fmt.Sprint("other-", n), Charge{})
	}
	whole := func(t *timeline.Timeline) bool { return len(t.Entries) == 4 && len(t.Findings) == 0 }
	got := s.until("o-1", whole)
	require.Equal(t, []line{
		{timeline.Command, "Charge", "", -1},
		{timeline.Event, "Charged", "success", 0},
		{timeline.Command, "Ship", "", 1},
		{timeline.Event, "Shipped", "success", 2},
	}, lines(got))
	require.Empty(t, got.Unseen)
	require.Equal(t, s.flow+".payment", got.Entries[0].Hop)
	require.JSONEq(t, `{}`, string(got.Entries[0].Payload))
	for i, e := range got.Entries {
		require.Equal(t, first, e.CorrelationID)
		require.Equal(t, "o-1", e.Key)
		require.NotNil(t, e.Record)
		require.Nil(t, e.Outbox)
		require.Equal(t, i > 0, e.After != 0)
	}

	for _, id := range []string{first, got.Entries[3].ID} {
		again := s.read(id)
		require.Equal(t, id, again.Subject)
		require.Equal(t, lines(got), lines(again))
		require.Greater(t, again.Partitions, got.Partitions, "an id does not tell the partition")
	}
	require.Equal(t, first, s.read(got.Entries[3].ID).Flow)
}

func TestAHeldMessageSaysHowItStandsAndWhoWaitsBehindIt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.payments()
	s.relays()
	s.place("o-1", Charge{Do: "fail"})
	s.place("o-1", Charge{})
	got := s.until("o-1", func(t *timeline.Timeline) bool {
		return len(t.Findings) == 2 && len(t.Entries) == 4 && strings.Count(strings.Join(texts(t), "\n"), "attempt 3 of 8") == 2
	})
	held := slices.DeleteFunc(slices.Clone(got.Entries), func(e timeline.Entry) bool { return e.Held == nil })
	require.Len(t, held, 2)
	all := strings.Join(texts(got), "\n")
	require.Regexp(t, `held since 20.* UTC: attempt 3 of 8 failed, next try in (59m\d+s|1h0m0s): transient: the bank is closed`, all)
	require.Regexp(t, `held since 20.* UTC behind offset 0 of its key, of which attempt 3 of 8 failed, next try in .*: transient: the bank is closed`, all)
	for _, e := range held {
		require.Equal(t, timeline.Command, got.Entries[e.Cause].Kind)
		require.Equal(t, e.ID, got.Entries[e.Cause].ID)
	}

	_, err := s.payment.Exec(t.Context(), "UPDATE troupe.held SET attempts = 0, error_class = 'rate_limited' WHERE next_try IS NOT NULL")
	require.NoError(t, err)
	all = strings.Join(texts(s.read("o-1")), "\n")
	require.Regexp(t, `held since 20.* UTC: no attempt has counted, next try in .*: rate_limited: the bank is closed`, all)
	require.Regexp(t, `held since 20.* UTC behind offset 0 of its key, of which no attempt has counted, next try in .*: rate_limited: the bank is closed`, all)
}

func TestADeadLetterIsShownOnceByItsRowElseByItsCopy(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.payments()
	s.relays()
	s.place("o-1", Charge{Do: "give up"})
	want := []line{
		{timeline.Command, "Charge", "", -1},
		{timeline.DeadLetter, "Charge", "", 0},
		{timeline.Event, "troupe.Exhausted", "exhausted", 0},
	}
	got := s.until("o-1", func(t *timeline.Timeline) bool {
		return len(t.Entries) == 3 && len(t.Findings) == 1 && strings.Contains(texts(t)[0], "waits for a person")
	})
	require.ElementsMatch(t, want, lines(got))
	require.Contains(t, got.Findings[0].Text, "waits for a person, see troupe dlq show: permanent after attempt 1: no such account")
	letter := got.Entries[got.Findings[0].Entry].DeadLetter
	require.Equal(t, "open", letter.Status)
	require.Equal(t, "payment", letter.Database)
	require.ElementsMatch(t, want, lines(s.read(letter.ID)), "and by its own id")

	topics := s.read("o-1", func(c *timeline.Config) { c.Databases = nil })
	require.ElementsMatch(t, want, lines(topics))
	require.Contains(t, texts(topics)[0], "by its copy on the topic: permanent after attempt 1: no such account; only the database of "+s.flow+".payment knows whether it is still open")

	_, err := s.payment.Exec(t.Context(), "UPDATE troupe.dead_letters SET status = 'discarded'")
	require.NoError(t, err)
	require.Empty(t, s.read("o-1").Findings)
}

func TestARedrivenMessageIsNoRepeatAndHasAnAnswerOfItsOwn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.payments()
	s.relays()
	s.place("o-1", Charge{Do: "give up"})
	s.until("o-1", func(t *timeline.Timeline) bool { return len(t.Entries) == 3 })
	_, err := s.payment.Exec(t.Context(), `
WITH redriven AS (UPDATE troupe.dead_letters SET status = 'redriven' RETURNING *)
INSERT INTO troupe.outbox (id, topic, key, type, headers, payload)
SELECT message_id::uuid, topic, 'o-1', message_type, '{"__troupe.redrive": "1", "content-type": "application/json"}', '{}' FROM redriven`)
	require.NoError(t, err)
	got := s.until("o-1", func(t *timeline.Timeline) bool { return len(t.Entries) == 5 && len(t.Findings) == 0 })
	require.Equal(t, line{timeline.Command, "Charge", "", -1}, lines(got)[3])
	require.Equal(t, 1, got.Entries[3].Redrive)
	require.Equal(t, line{timeline.Event, "Charged", "success", 3}, lines(got)[4])
}

func TestAMessageOnARetryTopicFollowsFromTheCommand(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.unordered()
	s.relays()
	s.place("o-1", Charge{})
	got := s.until("o-1", func(t *timeline.Timeline) bool {
		return len(t.Entries) == 3 && len(t.Findings) == 1 && strings.Contains(texts(t)[0], "retry.7200s")
	})
	require.Equal(t, []line{
		{timeline.Command, "Charge", "", -1}, {timeline.Retry, "Charge", "", 0}, {timeline.Retry, "Charge", "", 0},
	}, lines(got))
	require.Len(t, got.Findings, 1)
	require.Equal(t, 2, got.Findings[0].Entry)
	require.Regexp(t, `^waits on .*\.payment\.retry\.7200s, next try in (2h0m0s|1h59m)`, texts(got)[0])
	require.Contains(t, got.Entries[2].Record.Topic, ".payment.retry.7200s")
}

func TestARowThatIsNotPublishedIsShownWithItsFailure(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(s.hop("payment").Commands(), 1)
	s.place("o-1", Charge{})
	got := s.read("o-1")
	require.Equal(t, []line{{timeline.Command, "Charge", "", -1}}, lines(got))
	require.Regexp(t, `^not published yet: row 1 of the outbox of order is .* old, and no attempt failed: is the relay of order running\?$`, texts(got)[0])

	const pause = `INSERT INTO troupe.relay_leases (shard, holder, term, expires_at, paused_at, paused_by, paused_why) VALUES (0, '', 0, 'epoch', now(), $1, $2)`
	_, err := s.order.Exec(t.Context(), pause, "ann", "ticket 4711")
	require.NoError(t, err)
	require.Regexp(t, `^not published yet: row 1 .* old, and the relays of order are paused since .* UTC by ann: ticket 4711: outbox-relay resume ends it$`,
		texts(s.read("o-1"))[0])
	_, err = s.order.Exec(t.Context(), "DELETE FROM troupe.relay_leases")
	require.NoError(t, err)

	s.write(s.hop("nobody").Commands(), "o-2", Charge{})
	s.place("o-2", Charge{})
	s.relays(func(c *relay.Config) { c.UnknownTopic = time.Nanosecond })
	got = s.until("o-2", func(t *timeline.Timeline) bool {
		return len(t.Findings) == 2 && strings.Contains(strings.Join(texts(t), "\n"), "parked")
	})
	require.Regexp(t, `not published: row 2 of the outbox of order is parked after attempt \d+: .*UNKNOWN_TOPIC.*; its key waits`, texts(got)[0])
	require.Regexp(t, `not published: row 3 of the outbox of order waits behind row 2 of its key, which is parked: .*UNKNOWN_TOPIC`, texts(got)[1])
}

func TestACommandThatNobodyHasReachedIsToldFromOneWithoutAnswer(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.relays()
	s.provision(s.hop("payment").Commands(), 1)
	s.place("o-1", Charge{})
	got := s.until("o-1", func(t *timeline.Timeline) bool { return len(t.Entries) == 1 && t.Entries[0].Record != nil })
	require.Contains(t, texts(got)[0], "no answer, and nothing is held: no group has read anything of "+s.hop("payment").Commands())

	stop := s.payments()
	s.until("o-1", func(t *timeline.Timeline) bool { return len(t.Entries) == 2 && len(t.Findings) == 0 })
	s.caughtUp("payment")
	stop()
	s.place("o-2", Charge{})
	s.place("o-3", Charge{})
	s.until("o-3", func(t *timeline.Timeline) bool { return len(t.Entries) == 1 && t.Entries[0].Record != nil })
	got = s.until("o-2", func(t *timeline.Timeline) bool {
		return strings.HasSuffix(strings.Join(texts(t), "\n"), "no members now")
	})
	require.Equal(t, "no answer, and nothing is held: group "+s.flow+".payment has not reached it: it is 2 messages behind on partition 0, and has no members now", texts(got)[0])

	none, err := timeline.Read(t.Context(), timeline.Config{Brokers: testkit.Kafka(t), Topics: []string{s.hop("payment").Commands()}, Groups: []string{"nobody"}}, "o-1")
	require.NoError(t, err)
	require.Equal(t, []timeline.Unseen{{What: "group nobody", Why: "there is none of that name"}}, none.Unseen)
}

func TestAnEventThatAGroupHasNotReachedIsAFinding(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.payments()
	stop := s.shippings()
	s.relays()
	s.place("o-1", Charge{})
	s.until("o-1", func(t *timeline.Timeline) bool { return len(t.Entries) == 4 && len(t.Findings) == 0 })
	s.caughtUp("shipping")
	stop()
	s.place("o-1", Charge{})
	got := s.until("o-1", func(t *timeline.Timeline) bool {
		return len(t.Entries) == 6 && len(t.Findings) == 1 &&
			strings.Contains(texts(t)[0], "group "+s.flow+".shipping has not reached it: it is 1 message behind")
	})
	require.Equal(t, "Charged", got.Entries[got.Findings[0].Entry].Type)
}

func TestUnreachableServersAreNamedAndTheRestIsShown(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.place("o-1", Charge{})
	away, err := pgxpool.New(t.Context(), "postgres://someone:secret@127.0.0.1:1/away")
	require.NoError(t, err)
	defer away.Close()
	empty, err := pgxpool.New(t.Context(), testkit.EmptyDatabase(t))
	require.NoError(t, err)
	defer empty.Close()
	got := s.read("o-1", func(c *timeline.Config) {
		c.Databases = append(c.Databases, timeline.Database{Name: "away", Pool: away}, timeline.Database{Name: "empty", Pool: empty})
		c.Brokers, c.Timeout = []string{"127.0.0.1:1"}, 15*time.Second // it takes that long: a client retries until then
	})
	require.Len(t, got.Entries, 1)
	var what []string
	for _, u := range got.Unseen {
		what = append(what, u.What)
		require.NotContains(t, u.Why, "secret")
	}
	require.Equal(t, []string{"brokers 127.0.0.1:1", "database away", "troupe.outbox of empty", "troupe.held of empty", "troupe.dead_letters of empty"}, what)
	require.Contains(t, got.Unseen[2].Why, "outbox-relay migrate")

	nothing := s.read("o-1", func(c *timeline.Config) { c.Flow = testkit.Flow(t) })
	require.Equal(t, "topics", nothing.Unseen[0].What)
	missing := s.read("o-1", func(c *timeline.Config) { c.Topics, c.Flow = []string{s.flow + ".no.commands"}, "" })
	require.Equal(t, "topic "+s.flow+".no.commands", missing.Unseen[0].What)
}

func TestAKeyIsLookedForWhereKafkaClientsPutItElseEverywhere(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	name := s.hop("payment").Commands()
	s.provision(name, 5)
	for n := range 5 {
		s.produce(&kgo.Record{Topic: name, Partition: int32(n), Key: []byte("other")})
	}
	s.relays()
	s.place("o-1", Charge{})
	published := func(t *timeline.Timeline) bool { return len(t.Entries) == 1 && t.Entries[0].Record != nil }
	own := s.until("o-1", published)
	require.Equal(t, 1, own.Partitions)
	require.Equal(t, int64(2), own.Records)
	all := s.read("o-1", func(c *timeline.Config) { c.ScanAll = true })
	require.Equal(t, 5, all.Partitions)
	require.Equal(t, int64(6), all.Records)

	_, err := kadm.NewClient(s.client).CreatePartitions(t.Context(), 8, name)
	require.NoError(t, err)
	moved := s.until("o-1", func(t *timeline.Timeline) bool { return published(t) && t.Partitions > 1 })
	require.Equal(t, own.Entries, moved.Entries, "found by the look everywhere")
	require.Equal(t, 5, moved.Partitions, "partitions with records")
}

func TestOldRecordsAndThoseOverTheLimitAreNotRead(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	name := s.hop("payment").Commands()
	s.provision(name, 2)
	now := time.Now()
	for n := range 30 {
		s.produce(&kgo.Record{Topic: name, Partition: 1, Key: fmt.Append(nil, "k-", n), Timestamp: now.Add(time.Duration(n-29) * time.Hour)})
	}
	got := s.read("nothing", func(c *timeline.Config) { c.Since = 10*time.Hour - time.Minute })
	require.Equal(t, int64(10), got.Records)
	require.Empty(t, got.Unseen)
	require.Empty(t, got.Entries)
	got = s.read("nothing", func(c *timeline.Config) { c.Since, c.MaxRecords = 100*time.Hour, 7 })
	require.Equal(t, int64(7), got.Records)
	require.Len(t, got.Unseen, 1)
	require.Equal(t, "topic "+name+"/1 from offset 7 to 29", got.Unseen[0].What)
	require.Contains(t, got.Unseen[0].Why, "the limit of 7 records")
}

func TestTransactionsThatEndATopicDoNotKeepTheReaderWaiting(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	name := s.hop("payment").Commands()
	s.provision(name, 1)
	client, err := kafka.NewClient(testkit.Kafka(t), kgo.TransactionalID(s.flow))
	require.NoError(t, err)
	defer client.Close()
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		require.NoError(t, client.BeginTransaction())
		require.NoError(t, client.ProduceSync(t.Context(), kafka.Record(envelope.Message{Topic: name, Key: []byte("o-1"), ID: envelope.NewID(), Type: "Charge"})).FirstErr())
		require.NoError(t, client.EndTransaction(t.Context(), end))
	}
	got := s.until("o-1", func(t *timeline.Timeline) bool { return len(t.Entries) == 1 && len(t.Unseen) == 0 })
	require.Equal(t, int64(0), got.Entries[0].Record.Offset)
}

func TestIdsThatGoRoundAndBadHeadersAreShownAllTheSame(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	name := s.hop("payment").Events()
	s.provision(name, 1)
	message := func(id, cause string, at int64) *kgo.Record {
		return kafka.Record(envelope.Message{Topic: name, Key: []byte("o-1"), ID: id, CausationID: cause, Type: "T", Time: time.Unix(at, 0)})
	}
	odd := &kgo.Record{Topic: name, Key: []byte("o-1"), Value: []byte("\x1b[2J"), Headers: make([]kgo.RecordHeader, envelope.MaxHeaders+1)}
	s.produce(
		message("a", "b", 3), message("b", "a", 2), message("self", "self", 1), // cycles
		message("late", "", 50), message("early", "late", 40), message("last", "early", 45), // a clock that is behind
		message("again", "", 60), message("again", "", 60), message("orphan", "gone", 61), odd,
	)
	got := s.read("o-1")
	index := make(map[string]int)
	for i, e := range got.Entries {
		index[e.ID] = i
	}
	require.Len(t, got.Entries, 9)
	require.Less(t, index["late"], index["early"])
	require.Less(t, index["early"], index["last"])
	require.Equal(t, index["early"], got.Entries[index["last"]].Cause)
	require.Equal(t, -1, got.Entries[index["self"]].Cause)
	require.Equal(t, 1, got.Entries[index["again"]].Record.Repeats)
	require.Contains(t, got.Entries[index[""]].PayloadNote, "257 of them, the limit is 256")
	require.Contains(t, strings.Join(texts(got), "\n"), "what caused it, message gone, was not found")
}

func TestPayloadsAreShownAsJSONWhateverTheyAreWrittenAs(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	name := s.hop("payment").Commands()
	s.provision(name, 1)
	registry, err := schemas.NewRegistry(testkit.Registry(t))
	require.NoError(t, err)
	codec, err := schemas.New(t.Context(), schemas.Config{Registry: registry, Types: messages.Types()})
	require.NoError(t, err)
	encoded, err := codec.Encode(name, messages.ChargePayment{OrderID: "o-1", CustomerID: "c-1", AmountCents: 2933})
	require.NoError(t, err)
	for _, m := range []envelope.Message{
		{Type: "Avro", ContentType: encoded.ContentType, Payload: encoded.Payload},
		{Type: "Broken", ContentType: envelope.Avro, Payload: []byte{0, 0, 0}},
		{Type: "JSON", ContentType: "application/json; charset=utf-8", Payload: []byte(`{"a":1}`)},
		{Type: "NoJSON", ContentType: envelope.JSON, Payload: []byte(`{"a"`)},
		{Type: "Text", ContentType: "text/plain", Payload: []byte("hello")},
		{Type: "Large", ContentType: envelope.JSON, Payload: fmt.Appendf(nil, `"%s"`, strings.Repeat("x", 5000))},
		{Type: "Tombstone"},
	} {
		m.Topic, m.Key, m.ID = name, []byte("o-1"), envelope.NewID()
		s.produce(kafka.Record(m))
	}
	shown := func(registry *schemas.Registry) map[string]string {
		all := make(map[string]string)
		for _, e := range s.read("o-1", func(c *timeline.Config) { c.Registry = registry }).Entries {
			all[e.Type] = string(e.Payload) + e.PayloadNote
		}
		return all
	}
	got := shown(registry)
	require.JSONEq(t, `{"order_id": "o-1", "customer_id": "c-1", "amount_cents": 2933}`, got["Avro"])
	require.Contains(t, got["Broken"], "3 bytes: unreadable payload")
	require.Equal(t, `{"a":1}`, got["JSON"])
	require.Equal(t, "4 bytes: no JSON, though its content type says so", got["NoJSON"])
	require.Contains(t, got["Text"], "5 bytes: ")
	require.Equal(t, "5002 bytes as JSON, more than is shown", got["Large"])
	require.Equal(t, "none", got["Tombstone"])
	require.Contains(t, shown(nil)["Avro"], "application/avro, and no registry is set that has its schema")

	dead, err := schemas.NewRegistry("http://127.0.0.1:1")
	require.NoError(t, err)
	require.Contains(t, shown(dead)["Avro"], "registry http://127.0.0.1:1")
}

func TestBadConfigurationsAreRefused(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	good := timeline.Config{Databases: []timeline.Database{{Name: "order", Pool: pool}}}
	for want, change := range map[string]func(*timeline.Config){
		"neither a database nor brokers":   func(c *timeline.Config) { c.Databases = nil },
		"brokers without a flow":           func(c *timeline.Config) { c.Brokers = []string{"127.0.0.1:1"} },
		"topics or groups without brokers": func(c *timeline.Config) { c.Groups = []string{"g"} },
		"database 0 without a name":        func(c *timeline.Config) { c.Databases = []timeline.Database{{Pool: pool}} },
		"want none below zero":             func(c *timeline.Config) { c.Since = -1 },
		`flow "Order": not a topic name`:   func(c *timeline.Config) { c.Flow, c.Brokers = "Order", []string{"127.0.0.1:1"} },
	} {
		cfg := good
		change(&cfg)
		_, err := timeline.Read(t.Context(), cfg, "o-1")
		require.ErrorContains(t, err, want)
	}
	for _, subject := range []string{"", "a\x00b", "\xff", strings.Repeat("x", 1025)} {
		_, err := timeline.Read(t.Context(), good, subject)
		require.ErrorContains(t, err, "key or id", "%q", subject)
	}
}

// TestADeadlineNamesWhatHadNotCome checks the message of an expectation's deadline, as package flow writes it.
func TestADeadlineNamesWhatHadNotCome(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	_, err := s.order.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, headers, payload)
		VALUES ($1, 'o-1', 'troupe.Deadline', jsonb_build_object('content-type', 'application/json', $2::text, 'order.order/expect.shipped'),
		  '{"expects": ["order.shipping.events OrderShipped"]}')`, s.hop("order").Commands(), ce.HeaderDeadline)
	require.NoError(t, err)
	got := s.read("o-1")
	require.Len(t, got.Entries, 1)
	require.Equal(t, "expect.shipped", got.Entries[0].Deadline)
	require.Equal(t, []string{"order.shipping.events OrderShipped"}, got.Entries[0].Expects)
}

// An arriving calls arrive after each answer to a query of offsets.
type arriving struct{ arrive func() }

func (a arriving) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == int16(kmsg.ListOffsets) {
		a.arrive()
	}
}

func TestAMessageThatArrivesWhileATimelineBeginsIsShown(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	name := s.hop("payment").Commands()
	s.provision(name, 1)
	long := time.Now().Add(-time.Hour) // no message is found by its time, as if each had arrived right after that query
	got := s.read("o-1", func(c *timeline.Config) {
		c.Since = time.Minute
		c.Kafka = append(c.Kafka, kgo.WithHooks(arriving{func() {
			s.produce(&kgo.Record{Topic: name, Key: []byte("o-1"), Timestamp: long})
		}}))
	})
	require.Empty(t, got.Unseen)
	require.NotEmpty(t, got.Entries)
	require.Zero(t, got.Entries[0].Record.Offset)
}
