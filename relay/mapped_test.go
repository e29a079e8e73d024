package relay_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/wal"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// debeziumTable creates the table of Debezium's documentation.
const debeziumTable = `CREATE TABLE public.outbox (
	id uuid NOT NULL, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb)`

// mapped returns a configuration for a table with Debezium's options, always from the log.
func (s *stage) mapped(table string, options map[string]string) relay.Config {
	s.t.Helper()
	needsLog(s.t)
	c := s.config()
	c.Source, c.Table, c.Mapping = relay.Auto, table, options
	if options == nil {
		c.Mapping = map[string]string{}
	}
	return c
}

// routed inserts EventRouter's headers and options that lead to topics of the stage's own, which have two partitions.
func (s *stage) routed(more map[string]string) map[string]string {
	options := map[string]string{"headers": "eventrouter", "route.topic.replacement": s.flow + ".${routedByValue}.events"}
	for name, value := range more {
		options[name] = value
	}
	return options
}

func (s *stage) eventTopic(name string) string {
	topic := s.flow + "." + name + ".events"
	s.provision(kafka.Topic{Name: topic, Partitions: 2})
	return topic
}

// waitTable waits until the relay of a table streams.
func (s *stage) waitTable(r running) {
	s.t.Helper()
	testkit.Wait(s.t, "a stream", func() (bool, error) {
		var active bool
		err := s.pool.QueryRow(context.Background(), `SELECT EXISTS (SELECT FROM troupe.relay_leases l
			JOIN troupe.mapped_tables m ON m.shard = l.shard AND m.name = $1
			JOIN pg_replication_slots s ON s.slot_name = l.slot AND s.active)`, r.Status().Table).Scan(&active)
		return active, err
	})
}

func headersOf(r *kgo.Record) (all []string) {
	for _, h := range r.Headers {
		all = append(all, h.Key+"="+string(h.Value))
	}
	return all
}

// TestEventRoutersExamples: each documented example, as rows of its own table in one database, is published as Debezium sends
// it.
func TestEventRoutersExamples(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const id = "406c07f3-26f0-4eea-a50c-109940064b8f"
	at := time.Date(2019, 3, 24, 20, 52, 59, 123_000_000, time.UTC)
	nothing := "<null>"
	for n, c := range []struct {
		name    string
		columns string // in addition to the documentation's
		values  string
		options map[string]string
		topic   string
		headers []string
		payload string
		check   func(r *kgo.Record)
	}{
		{
			name: "as documented", values: `'{"id": 1, "customerId": 123}'`,
			headers: []string{"id=" + id}, payload: `{"id": 1, "customerId": 123}`,
		},
		{
			name: "expanded", values: `'{"id": 1, "note": null, "customerId": 123}'`,
			options: map[string]string{"table.expand.json.payload": "true"},
			headers: []string{"id=" + id}, payload: `{"id":1,"customerId":123}`,
		},
		{
			name: "header, partition and timestamp", columns: ", part int, at timestamp(3)", values: `'{}', 1, '2019-03-24 20:52:59.123'`,
			options: map[string]string{"table.fields.additional.placement": "type:header:eventType,part:partition",
				"table.field.event.timestamp": "at"},
			headers: []string{"id=" + id, "eventType=OrderCreated"}, payload: "{}",
			check: func(r *kgo.Record) {
				require.EqualValues(t, 1, r.Partition)
				require.Equal(t, at, r.Timestamp.UTC())
			},
		},
		{
			name: "envelope", columns: ", version int", values: `'{"a": 1}', 7`,
			options: map[string]string{"table.fields.additional.placement": "version:envelope:eventVersion,type:envelope",
				"table.expand.json.payload": "true"},
			headers: []string{"id=" + id}, payload: `{"payload":{"a":1},"eventVersion":7,"type":"OrderCreated"}`,
		},
		{
			name: "tombstone", values: `NULL`,
			options: map[string]string{"route.tombstone.on.empty.payload": "true"},
			headers: []string{"id=" + id}, payload: nothing,
		},
		{
			name: "another topic and types that only the catalog knows", columns: ", mood mood, short label", values: `'{}', 'glad', 'x'`,
			options: map[string]string{"route.by.field": "mood", "table.field.event.key": "short",
				"table.fields.additional.placement": "mood:header"},
			topic:   "glad",
			headers: []string{"id=" + id, "mood=glad"}, payload: "{}",
			check: func(r *kgo.Record) { require.Equal(t, "x", string(r.Key)) },
		},
		{
			name: "partitioned table, trace", columns: ", tracingspancontext text",
			values: `'{}', E'traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n'`, headers: []string{
				"traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "id=" + id}, payload: "{}",
		},
	} {
		if n == 0 {
			s.exec("CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE DOMAIN label AS varchar(40)")
		}
		table := fmt.Sprintf("public.example_%d", n)
		partitioned := ""
		if c.name == "partitioned table, trace" {
			partitioned = " PARTITION BY LIST (aggregatetype)"
		}
		s.exec("CREATE TABLE " + table + ` (id uuid NOT NULL, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL,
			type varchar(255) NOT NULL, payload jsonb` + c.columns + ")" + partitioned)
		if partitioned != "" {
			s.exec("CREATE TABLE public.leaf PARTITION OF " + table + " DEFAULT")
		}
		routed := "order" + strconv.Itoa(n)
		if c.topic == "" {
			c.topic = routed
		}
		topic := s.eventTopic(c.topic)
		r := s.start(s.mapped(table, s.routed(c.options)))
		s.waitTable(r)
		// As many services do: the row is deleted when its transaction commits.
		s.exec("WITH gone AS (SELECT) INSERT INTO " + table + " VALUES ('" + id + "', '" + routed + "', '1', 'OrderCreated', " + c.values + ")")
		s.exec("DELETE FROM " + table)
		got := testkit.Consume(t, s.brokers, topic).WaitN(1)[0]
		require.Equal(t, c.headers, headersOf(got), c.name)
		if c.check == nil || n != 5 {
			require.Equal(t, "1", string(got.Key), c.name)
		}
		payload := nothing
		if got.Value != nil {
			payload = string(got.Value)
		}
		require.Equal(t, c.payload, payload, c.name)
		if c.check != nil {
			c.check(got)
		}
	}
}

// insertEvent inserts a row in Debezium's shape and deletes it in the same transaction: only the log has it.
func (s *stage) insertEvent(kind, key, payload string) {
	s.t.Helper()
	s.exec(`WITH new AS (SELECT troupe.uuidv7() AS id)
		INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload) SELECT id, $1, $2, 'T', $3::jsonb FROM new`, kind, key, payload)
	s.exec("DELETE FROM public.outbox")
}

// TestARowOfAMappedTableWithoutATopicIsParked: its column that routes is null or empty. Other rows are published.
func TestARowOfAMappedTableWithoutATopicIsParked(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(debeziumTable + "; ALTER TABLE public.outbox ALTER aggregatetype DROP NOT NULL")
	topic := s.eventTopic("order")
	r := s.start(s.mapped("public.outbox", s.routed(nil)))
	s.waitTable(r)
	s.exec(`INSERT INTO public.outbox VALUES
		(troupe.uuidv7(), 'order', 'a', 'T', '1'), (troupe.uuidv7(), NULL, 'b', 'T', '2'), (troupe.uuidv7(), '', 'c', 'T', '3'),
		(troupe.uuidv7(), 'order', 'd', 'T', '4')`)
	require.ElementsMatch(t, []string{"1", "4"}, values(s.gatherEvents(2, topic)))
	testkit.Wait(t, "the other rows to be parked", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.mapped_failures WHERE last_error LIKE '%column aggregatetype: is %'") == 2, nil
	})
	require.NoError(t, r.stop())
}

// A parked row is recorded whole, since its table may no longer have it. Its key waits, others continue, and a corrected
// mapping publishes it in its place.
func TestAParkedRowOfAMappedTableOutlivesIt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(debeziumTable + "; ALTER TABLE public.outbox ADD part int")
	topic := s.eventTopic("order")
	placed := map[string]string{"table.fields.additional.placement": "part:partition"}
	cfg := s.mapped("public.outbox", s.routed(placed))
	seen := publishFailures(&cfg)
	r := s.start(cfg)
	s.waitTable(r)
	s.exec(`INSERT INTO public.outbox VALUES (troupe.uuidv7(), 'order', 'a', 'T', '0', 99);
		INSERT INTO public.outbox VALUES (troupe.uuidv7(), 'order', 'a', 'T', '1', 1);
		INSERT INTO public.outbox VALUES (troupe.uuidv7(), 'order', 'b', 'T', '"free"', 1);
		INSERT INTO public.outbox VALUES (troupe.uuidv7(), 'order', 'c', 'T', '0', -1);
		DELETE FROM public.outbox`)
	consumer := testkit.Consume(t, s.brokers, topic)
	require.Equal(t, []string{`"free"`}, values(consumer.WaitN(1)))
	parked := 0
	for parked < 2 {
		if failure := <-seen; failure.Parked {
			parked++
			require.NotZero(t, failure.ID)
		}
	}
	require.Equal(t, 1, s.count(`SELECT count(*) FROM troupe.mapped_failures
		WHERE status = 'parked' AND last_error LIKE '%the topic has no such partition: 99%'`))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.mapped_failures WHERE status = 'parked' AND last_error LIKE '%column part: is -1%'"))
	testkit.Wait(t, "the row behind", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.mapped_failures WHERE status = 'waiting'") == 1, nil
	})
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox_failures"))
	require.NoError(t, r.stop())

	s.exec(`UPDATE troupe.mapped_failures SET status = 'retrying', next_try = clock_timestamp() + interval '1 hour' -- by a clock that was ahead
		WHERE status = 'parked' AND order_key = 'c'`)
	r = s.start(s.mapped("public.outbox", s.routed(nil)))
	s.waitTable(r)
	s.insertEvent("order", "a", "2")
	s.exec("UPDATE troupe.mapped_failures SET status = 'retrying', next_try = clock_timestamp() WHERE status = 'parked'")
	records := consumer.WaitN(5)
	require.Equal(t, []string{"0", "1", "2"}, values(ofKey(records, "a")))
	require.Equal(t, []string{"0"}, values(ofKey(records, "c")))
	testkit.Wait(t, "no failure", func() (bool, error) { return s.count("SELECT count(*) FROM troupe.mapped_failures") == 0, nil })
}

// A row without an event id is parked, whether it is read from the table or from the log, and no other column is used as its
// id. When the mapping names a column that has ids, it is published; rows that are equal in all columns are one message then.
func TestARowWithoutAnEventIDIsParked(t *testing.T) {
	t.Parallel()
	needsLog(t)
	for _, path := range []string{"table", "log"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			topic := s.eventTopic("order")
			s.exec(`CREATE TABLE public.outbox (id uuid, aggregatetype text, aggregateid text, type text, payload jsonb, ref text)`)
			insert := func() {
				s.exec(`INSERT INTO public.outbox VALUES
					(NULL, 'order', 'a', 'T', '0', 'first'), (NULL, 'order', 'a', 'T', '0', 'first'),
					(NULL, 'order', 'b', 'T', '0', 'second'), (gen_random_uuid(), 'order', 'a', 'T', '1', 'third'),
					(gen_random_uuid(), 'order', 'c', 'T', '0', 'fourth')`)
			}
			if path == "table" {
				insert()
			}
			r := s.start(s.mapped("public.outbox", s.routed(nil)))
			s.waitTable(r)
			if path == "log" {
				insert()
			}
			consumer := testkit.Consume(t, s.brokers, topic)
			require.Equal(t, "c", string(consumer.WaitN(1)[0].Key))
			testkit.Wait(t, "parked rows", func() (bool, error) {
				return s.count("SELECT count(*) FROM troupe.mapped_failures WHERE status = 'parked' AND event_id = ''") == 2 &&
					s.count("SELECT count(*) FROM troupe.mapped_failures WHERE status = 'waiting'") == 1, nil
			})
			require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.mapped_failures WHERE last_error LIKE '%column id: is null%table.field.event.id%'"))
			require.NoError(t, r.stop())

			s.start(s.mapped("public.outbox", s.routed(map[string]string{"table.field.event.id": "ref"})))
			s.exec("UPDATE troupe.mapped_failures SET status = 'retrying', next_try = clock_timestamp() WHERE status = 'parked'")
			testkit.Wait(t, "no failure", func() (bool, error) { return s.count("SELECT count(*) FROM troupe.mapped_failures") == 0, nil })
			var ids map[string][]string
			testkit.Wait(t, "the rows that were parked", func() (bool, error) {
				ids = make(map[string][]string)
				for _, record := range consumer.Records() {
					key, id := string(record.Key), header(record, "id")
					if !slices.Contains(ids[key], id) {
						ids[key] = append(ids[key], id)
					}
				}
				return len(ids["a"]) == 2 && len(ids["b"]) == 1, nil
			})
			require.Equal(t, []string{"first", "third"}, ids["a"])
			require.Equal(t, []string{"second"}, ids["b"])
		})
	}
}

func ofKey(records []*kgo.Record, key string) (some []*kgo.Record) {
	for _, r := range records {
		if string(r.Key) == key {
			some = append(some, r)
		}
	}
	return some
}

// judgeEvents compares records with the events written; their id is in the header id, and their payload is n.
func judgeEvents(records []*kgo.Record, committed map[string]int) verdict {
	same := make([]*kgo.Record, len(records))
	for n, r := range records {
		c := *r
		c.Headers = []kgo.RecordHeader{{Key: "ce_id", Value: []byte(header(r, "id"))}}
		same[n] = &c
	}
	return judge(same, committed)
}

// gatherEvents waits for n different ids and for the ends of the topics.
func (s *stage) gatherEvents(n int, topic string) []*kgo.Record {
	s.t.Helper()
	consumer := testkit.Consume(s.t, s.brokers, topic)
	testkit.Wait(s.t, fmt.Sprintf("%d different events", n), func() (bool, error) {
		ids := make(map[string]bool)
		for _, r := range consumer.Records() {
			ids[header(r, "id")] = true
		}
		return len(ids) >= n, nil
	})
	client, err := kafka.NewClient(s.brokers)
	require.NoError(s.t, err)
	defer client.Close()
	testkit.Wait(s.t, "the ends", func() (bool, error) {
		offsets, err := kadm.NewClient(client).ListEndOffsets(context.Background(), topic)
		if err == nil {
			err = offsets.Error()
		}
		var ends int64
		offsets.Each(func(o kadm.ListedOffset) { ends += o.Offset })
		return int64(len(consumer.Records())) >= ends, err
	})
	return consumer.Records()
}

// Restarts under load lose no row and keep the order of each key.
func TestAMappedTableThroughRestarts(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(debeziumTable)
	topic := s.eventTopic("order")
	cfg := s.mapped("public.outbox", s.routed(nil))
	s.waitTable(s.start(cfg)) // a second one is a standby
	committed := map[string]int{}
	r := s.start(cfg)
	for round := range 5 {
		for n := range 40 {
			key := fmt.Sprint("k", n%7)
			s.insertEvent("order", key, strconv.Itoa(committed[key]))
			committed[key]++
		}
		if round < 4 {
			require.NoError(t, r.stop())
			r = s.start(cfg)
		}
	}
	judgeEvents(s.gatherEvents(200, topic), committed).requireSound(t)
}

// Rows that were written while no slot existed are read from the table: exactly these if a column has the transaction id,
// else all rows.
func TestALostSlotOfAMappedTableIsHealedFromTheTable(t *testing.T) {
	t.Parallel()
	needsLog(t)
	for name, xid := range map[string]bool{"with a column of transaction ids": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.exec(debeziumTable + `; ALTER TABLE public.outbox ADD position bigint GENERATED ALWAYS AS IDENTITY,
				ADD xid xid8 NOT NULL DEFAULT pg_current_xact_id()`)
			topic := s.eventTopic("order")
			more := map[string]string{"table.field.position": "position"}
			if xid {
				more["table.field.xid"] = "xid"
			}
			cfg := s.mapped("public.outbox", s.routed(more))
			insert := func(from, to int) {
				s.exec(`INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload)
					SELECT troupe.uuidv7(), 'order', 'k', 'T', to_jsonb(n) FROM generate_series($1::int, $2::int) AS n`, from, to)
			}
			insert(0, 9) // before a relay has read the table
			r := s.start(cfg)
			s.waitTable(r)
			insert(10, 19)
			s.gatherEvents(20, topic)
			testkit.Wait(t, "a stored snapshot that sees all", func() (bool, error) {
				return s.count(`SELECT count(*) FROM public.outbox WHERE NOT coalesce(pg_visible_in_snapshot(xid,
					(SELECT published FROM troupe.mapped_tables)), false)`) == 0, nil
			})
			require.NoError(t, r.stop())
			testkit.Wait(t, "a slot without a holder", func() (bool, error) { // the server takes a moment to release it
				_, err := s.pool.Exec(context.Background(),
					"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()")
				return err == nil, err
			})
			insert(20, 29)
			r = s.start(cfg)
			for n := 30; n < 130; n++ { // the slot is created meanwhile: it delivers some rows that are in the table too
				insert(n, n)
			}
			s.waitTable(r)
			v := judgeEvents(s.gatherEvents(130, topic), map[string]int{"k": 130})
			v.requireSound(t)
			if xid {
				v.requireOnce(t, r.Status().LastError)
			} else {
				require.GreaterOrEqual(t, v.repeated, 20)
			}
			require.Equal(t, 130, s.count("SELECT count(*) FROM public.outbox"), "it is left alone")
		})
	}
}

// The slot is in use by a connector that still runs.
func TestASlotThatOthersStreamIsLeftToThem(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(debeziumTable)
	var slot string
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT 'dbz_' || substr(md5(current_database()), 1, 20)").Scan(&slot))
	s.exec("CREATE PUBLICATION dbz FOR ALL TABLES")
	s.exec("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot)
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Slot, cfg.Publication = slot, "dbz"
	busy, err := wal.Connect(t.Context(), s.pool.Config())
	require.NoError(t, err)
	defer busy.Close()
	require.NoError(t, busy.Start(t.Context(), slot, "dbz", 0))
	r := s.start(cfg)
	testkit.Wait(t, "the refusal", func() (bool, error) { return r.Status().LastError != "", nil })
	require.Contains(t, r.Status().LastError, "is streamed by process")
	require.NoError(t, r.stop())
	require.Equal(t, 1, s.count("SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND active", slot))
}

// Rows written before the relay's first start are in the slot alone.
func TestASlotMadeByHandIsGoneOnWith(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(debeziumTable + "; ALTER TABLE public.outbox ADD PRIMARY KEY (id)") // without it, a publication of deletes refuses them
	topic := s.eventTopic("order")
	var slot string
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT 'dbz_' || substr(md5(current_database()), 1, 20)").Scan(&slot))
	s.exec("CREATE PUBLICATION dbz FOR ALL TABLES")
	s.exec("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot)
	s.insertEvent("order", "k", "0")
	s.exec("INSERT INTO public.outbox VALUES (troupe.uuidv7(), 'order', 'k', 'T', '1'); UPDATE public.outbox SET type = 'U'")
	cfg := s.mapped("public.outbox", s.routed(map[string]string{"table.op.invalid.behavior": "error"}))
	cfg.Slot, cfg.Publication = slot, "dbz"
	r := s.start(cfg)
	s.waitTable(r)
	s.insertEvent("order", "k", "2")
	require.Equal(t, []string{"0", "1", "2"}, values(s.gatherEvents(3, topic)))
	require.NoError(t, r.stop())

	cfg = s.mapped("public.outbox", s.routed(map[string]string{"table.op.invalid.behavior": "fatal"}))
	cfg.Slot, cfg.Publication = slot, "dbz"
	s.exec("INSERT INTO public.outbox VALUES (troupe.uuidv7(), 'order', 'k', 'T', '3'); UPDATE public.outbox SET type = 'U'")
	fatal, err := relay.New(cfg)
	require.NoError(t, err)
	require.ErrorContains(t, fatal.Run(t.Context()), "a row of public.outbox was updated")
}

// The error for a mapping that does not fit the table names everything that is wrong, and nothing is changed.
func TestAMappingThatDoesNotFitIsTold(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec("CREATE TABLE public.outbox (id uuid, payload text)")
	r := s.start(s.mapped("public.outbox", s.routed(nil)))
	testkit.Wait(t, "the error", func() (bool, error) { return r.Status().LastError != "", nil })
	require.Contains(t, r.Status().LastError, `route.by.field: the table has no column "aggregatetype"`)
	require.Contains(t, r.Status().LastError, `table.field.event.key: the table has no column "aggregateid"`)
	require.Zero(t, s.count("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"))
}

// The log does not show rows of these tables as the table does, so a relay would publish them from the one and not from the other.
func TestATableWhoseLogLacksRowsOrColumnsIsRefused(t *testing.T) {
	t.Parallel()
	needsLog(t)
	for name, c := range map[string]struct{ table, want string }{
		"inherited": {debeziumTable + "; CREATE TABLE public.later () INHERITS (public.outbox)", "other tables inherit from it"},
		"generated": {`CREATE TABLE public.outbox (id uuid, aggregatetype text, type text, payload text,
			aggregateid text GENERATED ALWAYS AS (payload || '1') STORED)`, `the table has no column "aggregateid", or it is generated`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.exec(c.table)
			r := s.start(s.mapped("public.outbox", s.routed(nil)))
			testkit.Wait(t, "the error", func() (bool, error) { return r.Status().LastError != "", nil })
			require.Contains(t, r.Status().LastError, c.want)
			require.Zero(t, s.count("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"))
		})
	}
}

func TestUnsupportedSettingsOfAMappedTableAreRefused(t *testing.T) {
	t.Parallel()
	s := &stage{t: t, pool: testkit.Database(t), brokers: []string{"127.0.0.1:1"}, flow: "x"}
	for want, change := range map[string]func(*relay.Config){
		"source poll is for troupe.outbox alone":     func(c *relay.Config) { c.Source = relay.Poll },
		"table public.outbox: want a mapping":        func(c *relay.Config) { c.Mapping = nil },
		"a mapping is for a table other than":        func(c *relay.Config) { c.Table = "" },
		`table "outbox": want schema.table`:          func(c *relay.Config) { c.Table = "outbox" },
		"max_slot_wal_keep_size bounds the slot too": func(c *relay.Config) { c.SlotLimit = 1 << 30 },
	} {
		cfg := s.mapped("public.outbox", nil)
		change(&cfg)
		_, err := relay.New(cfg)
		require.ErrorContains(t, err, want)
	}
}

// Under exactly-once a restart repeats no row, and troupe.outbox in the same database has a relay of its own.
func TestAMappedTableExactlyOnceBesideTheOutbox(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	s.exec(debeziumTable)
	topic := s.eventTopic("order")
	own := s.config()
	own.Source, own.Delivery = relay.WAL, relay.AtLeastOnce
	s.start(own)
	s.waitStream()
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Delivery = relay.ExactlyOnce
	r := s.start(cfg)
	s.waitTable(r)
	for n := range 20 {
		s.insertEvent("order", "k", strconv.Itoa(n))
		if n%5 == 4 {
			require.NoError(t, r.stop())
			r = s.start(cfg)
			s.waitTable(r)
		}
	}
	s.insert(s.topic, "k", "own")
	require.Equal(t, []string{"own"}, values(s.gather(1, s.topic)))
	testkit.Wait(t, "all of them", func() (bool, error) { return len(s.committed(topic)) >= 20, nil })
	var want []string
	for n := range 20 {
		want = append(want, strconv.Itoa(n))
	}
	require.Equal(t, want, texts(s.committed(topic)), "none twice")
	testkit.Wait(t, "published rows to leave the outbox", func() (bool, error) { return s.count(s.left()) == 0 || source == relay.Poll, nil })
}

// Rows in the log have the columns of the time when they were written, also where a domain was the type of a column that has another type now.
func TestARowOfTheLogIsReadWithTheTypesThatItsColumnsHad(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(`CREATE DOMAIN number AS bigint; CREATE TYPE mood AS ENUM ('sad', 'glad');
		CREATE TABLE public.outbox (id uuid NOT NULL, aggregatetype text, aggregateid number, type mood, payload text)`)
	topic := s.eventTopic("order")
	cfg := s.mapped("public.outbox", s.routed(map[string]string{"table.fields.additional.placement": "type:header"}))
	r := s.start(cfg)
	s.waitTable(r)
	require.NoError(t, r.stop())
	insert := func() {
		s.exec("INSERT INTO public.outbox VALUES (troupe.uuidv7(), 'order', '7', 'glad', 'x')")
	}
	insert()
	s.exec("ALTER TABLE public.outbox ALTER aggregateid TYPE text, ALTER type TYPE text")
	insert()
	s.start(cfg)
	for _, record := range s.gatherEvents(2, topic) {
		require.Equal(t, "7", string(record.Key))
		require.Equal(t, "glad", header(record, "type"))
	}
}
