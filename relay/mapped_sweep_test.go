package relay_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// A sweep that loses its connection, or whose statement the server cancels, continues at the last batch if the mapping names a
// column that orders it.
func TestASweepOfAMappedTableGoesOnWhereItWasCut(t *testing.T) {
	t.Parallel()
	needsLog(t)
	const rows, batch, cuts = 8000, 500, 6
	for _, c := range []struct {
		name, table string
		options     map[string]string
		repeats     int
	}{
		{name: "without an order", repeats: cuts * rows},
		{name: "in partitions without an order", table: " PARTITION BY HASH (aggregateid)", repeats: cuts * rows},
		{name: "by position", options: map[string]string{"table.field.position": "position"}, repeats: cuts * (batch + 1)},
		{name: "by position in partitions", table: " PARTITION BY HASH (aggregateid)",
			options: map[string]string{"table.field.position": "position"}, repeats: cuts * (batch + 1)},
		{name: "by a timestamp with ties and nulls", options: map[string]string{"table.field.event.timestamp": "at"}, repeats: cuts * (batch + 1000)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			topic := s.eventTopic("thing")
			s.exec(`CREATE TABLE public.outbox (id uuid NOT NULL, aggregatetype text, aggregateid text, type text, payload jsonb,
				position bigint, at timestamptz)` + c.table)
			if c.table != "" {
				s.exec(`CREATE TABLE public.outbox_0 PARTITION OF public.outbox FOR VALUES WITH (MODULUS 2, REMAINDER 0);
					CREATE TABLE public.outbox_1 PARTITION OF public.outbox FOR VALUES WITH (MODULUS 2, REMAINDER 1)`)
			}
			s.exec(`INSERT INTO public.outbox SELECT gen_random_uuid(), 'thing', 'k' || n % 50, 'T', to_jsonb(n / 50) || jsonb_build_object('pad', repeat(md5(n::text), 40)),
				n, CASE WHEN n < $1 / 2 THEN timestamptz '2020-01-01' + n / 1000 * interval '1 s' END FROM generate_series(0, $1::int - 1) n`, rows)
			cfg := s.mapped("public.outbox", s.routed(c.options))
			cfg.Batch = batch
			var cut atomic.Int64
			cfg.Hooks.Acked = func(int, time.Duration) {
				if cut.Add(1) <= cuts {
					_, err := s.pool.Exec(context.Background(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
						WHERE datname = current_database() AND query LIKE 'SELECT %AS o WHERE%' AND query NOT LIKE '%terminate%' AND pid <> pg_backend_pid()`)
					require.NoError(t, err)
				}
			}
			r := s.start(cfg)
			s.waitTable(r)
			records := s.gatherEvents(rows, topic)
			require.LessOrEqual(t, len(records), rows+c.repeats)
			seen := make(map[string]bool)
			last := make(map[string]int)
			for _, record := range records {
				if id := header(record, "id"); !seen[id] {
					seen[id] = true
					last[string(record.Key)]++
				}
			}
			require.Len(t, seen, rows)
			require.Len(t, last, 50)
			testkit.Wait(t, "readiness", func() (bool, error) { return r.Ready() == nil, r.Ready() })
		})
	}
}

// The settings of the role decide how the server writes a time as text. This one writes the time zones of India and Israel alike.
func TestASweepThatWasCutGoesOnWhateverTheFormOfTimes(t *testing.T) {
	t.Parallel()
	needsLog(t)
	const rows, batch = 8000, 500
	s := newStage(t)
	topic := s.eventTopic("thing")
	config := s.pool.Config()
	s.exec("ALTER DATABASE " + config.ConnConfig.Database + " SET datestyle = 'SQL, DMY'")
	s.exec("ALTER DATABASE " + config.ConnConfig.Database + " SET timezone = 'Asia/Kolkata'")
	s.exec("CREATE TABLE public.outbox (id uuid NOT NULL, aggregatetype text, aggregateid text, type text, payload jsonb, at timestamptz)")
	s.exec(`INSERT INTO public.outbox SELECT gen_random_uuid(), 'thing', 'k', 'T', jsonb_build_object('n', n, 'pad', repeat(md5(n::text), 40)),
		timestamptz '2026-01-01' + n * interval '1 min' FROM generate_series(0, $1::int - 1) n`, rows)
	cfg := s.mapped("public.outbox", s.routed(map[string]string{"table.field.event.timestamp": "at"}))
	cfg.Pool, cfg.Batch = poolWith(t, config), batch
	var once sync.Once
	cfg.Hooks.Acked = func(int, time.Duration) {
		once.Do(func() {
			_, err := s.pool.Exec(context.Background(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND query LIKE 'SELECT %AS o WHERE%' AND query NOT LIKE '%terminate%' AND pid <> pg_backend_pid()`)
			require.NoError(t, err)
		})
	}
	s.waitTable(s.start(cfg))
	s.gatherEvents(rows, topic)
}

// While a sweep is interrupted, rows may move within their table: the service updates them, or the table is rewritten by
// CLUSTER, which had waited for the sweep's lock. A row that moved in front of the place of the interruption is published all
// the same.
func TestASweepThatWasCutPublishesRowsThatMovedMeanwhile(t *testing.T) {
	t.Parallel()
	needsLog(t)
	const rows, batch = 4000, 500
	for name, options := range map[string]map[string]string{
		"without an order":         nil,
		"by position":              {"table.field.position": "position"},
		"by a timestamp with ties": {"table.field.event.timestamp": "at"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			topic := s.eventTopic("thing")
			s.exec(`CREATE TABLE public.outbox (id uuid NOT NULL, aggregatetype text, aggregateid text, type text, payload jsonb,
				position bigint, at timestamptz);
				CREATE INDEX backwards ON public.outbox (position DESC)`)
			s.exec(`INSERT INTO public.outbox SELECT gen_random_uuid(), 'thing', 'k', 'T', to_jsonb(n) || jsonb_build_object('pad', repeat(md5(n::text), 40)),
				n, timestamptz '2020-01-01' FROM generate_series(0, $1::int - 1) n`, rows)
			cfg := s.mapped("public.outbox", s.routed(options))
			cfg.Batch = batch
			var cut atomic.Int64
			cfg.Hooks.Acked = func(int, time.Duration) {
				if cut.Add(1) == 2 {
					_, err := s.pool.Exec(context.Background(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
						WHERE datname = current_database() AND query LIKE 'SELECT %AS o WHERE%' AND query NOT LIKE '%terminate%' AND pid <> pg_backend_pid()`)
					require.NoError(t, err)
					_, err = s.pool.Exec(context.Background(), "CLUSTER public.outbox USING backwards")
					require.NoError(t, err)
				}
			}
			s.waitTable(s.start(cfg))
			s.gatherEvents(rows, topic)
		})
	}
}

// A slot may be lost while a large table is read for it. The rows that were read then are published, and the sweep for the next
// slot leaves them out: else a relay whose slot is lost in each sweep would publish the whole table for ever.
func TestRowsThatWereReadForALostSlotAreNotReadForTheNextOne(t *testing.T) {
	t.Parallel()
	const rows = 20
	s := newStage(t)
	topic := s.eventTopic("order")
	s.exec(debeziumTable + `; ALTER TABLE public.outbox ADD position bigint GENERATED ALWAYS AS IDENTITY, ADD xid xid8 NOT NULL DEFAULT pg_current_xact_id()`)
	insert := func(n int) {
		s.exec(`INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload) VALUES (troupe.uuidv7(), 'order', 'k', 'T', to_jsonb($1::int))`, n)
	}
	var want []string
	for n := range rows {
		insert(n)
		want = append(want, strconv.Itoa(n))
	}
	cfg := s.mapped("public.outbox", s.routed(map[string]string{"table.field.xid": "xid", "table.field.position": "position"}))
	cfg.Batch = rows
	reading, lost := make(chan struct{}), make(chan struct{})
	var once sync.Once
	cfg.Hooks.BeforeSend = func(int) {
		once.Do(func() {
			close(reading)
			<-lost
		})
	}
	r := s.start(cfg)
	<-reading
	s.exec("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()")
	insert(rows) // no slot has this row
	close(lost)
	s.waitTable(r)
	insert(rows + 1)
	want = append(want, strconv.Itoa(rows), strconv.Itoa(rows+1))
	require.Equal(t, want, texts(s.gatherEvents(len(want), topic)))
	require.NoError(t, r.stop())
}

// Two relays sweep one after the other for a slot that the second one has created. The first one does not take its snapshot from before
// its own, earlier slot for the state of this sweep.
func TestASweepForTheSlotOfAnotherRelayDoesNotSetTheStateBack(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	s.exec(debeziumTable + `; ALTER TABLE public.outbox ADD xid xid8 NOT NULL DEFAULT pg_current_xact_id()`)
	s.exec("CREATE TABLE states (n bigint GENERATED ALWAYS AS IDENTITY, published pg_snapshot)")
	topic := s.eventTopic("order")
	cfg := s.mapped("public.outbox", s.routed(map[string]string{"table.field.xid": "xid"}))
	cfg.Lease = time.Second
	insert := func(payload string) {
		s.exec("INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload) VALUES (troupe.uuidv7(), 'order', 'k', 'T', $1::text::jsonb)", payload)
	}
	gone := func() {
		testkit.Wait(t, "an unused slot", func() (bool, error) {
			_, err := s.pool.Exec(context.Background(), "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()")
			return err == nil, err
		})
	}

	ended, again := make(chan struct{}), make(chan struct{})
	var once sync.Once
	first := cfg
	first.Holder = "first"
	first.Hooks.Standing = func(error) {
		once.Do(func() { close(ended) })
		<-again
	}
	r := s.start(first)
	s.waitTable(r)
	insert("0")
	require.Equal(t, []string{"0"}, values(s.gatherEvents(1, topic)))
	testkit.Wait(t, "a stored snapshot that sees the row", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.mapped_tables m, public.outbox o WHERE pg_visible_in_snapshot(o.xid, m.published)") == 1, nil
	})
	s.exec("UPDATE troupe.relay_leases SET term = term + 1, expires_at = 'epoch', slot = NULL")
	s.exec("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
	<-ended
	gone()

	second := cfg
	second.Holder = "second"
	made, err := relay.New(second)
	require.NoError(t, err)
	made.Pause() // it creates the slot, and does not sweep
	other := s.run(made)
	testkit.Wait(t, "the slot of the second relay", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.mapped_tables WHERE source = 'wal' AND sweep IS NOT NULL") == 1, nil
	})
	require.NoError(t, other.stop())
	s.exec(`CREATE FUNCTION keep_state() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.states (published) VALUES (NEW.published); RETURN NULL; END';
		CREATE TRIGGER keep_state AFTER UPDATE ON troupe.mapped_tables FOR EACH ROW EXECUTE FUNCTION keep_state()`)

	close(again)
	s.waitTable(r)
	insert("1")
	require.Equal(t, []string{"0", "1"}, values(s.gatherEvents(2, topic)))
	require.NotZero(t, s.count("SELECT count(*) FROM states"))
	require.Zero(t, s.count("SELECT count(*) FROM states WHERE NOT coalesce(pg_visible_in_snapshot((SELECT min(xid::text::bigint)::text::xid8 FROM public.outbox), published), false)"))
}
