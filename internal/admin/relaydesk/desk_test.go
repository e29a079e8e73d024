package desk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

type stage struct {
	desk.Desk
	t    *testing.T
	pool *pgxpool.Pool
}

func newStage(t *testing.T) *stage {
	pool := testkit.Database(t)
	return &stage{desk.Desk{DB: pool}, t, pool}
}

func (s *stage) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), sql, args...)
	require.NoError(s.t, err)
}

func (s *stage) count(sql string) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), sql).Scan(&n))
	return n
}

// park writes as many parked rows of topic as rows says, one row that is retried and one that waits.
func (s *stage) park(topic string, rows int) {
	s.exec("INSERT INTO troupe.outbox (topic, key, type, payload) SELECT $1, 'k-' || n, 'Charge', '{}' FROM generate_series(1, $2 + 2) AS n", topic, rows)
	s.exec(`INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, next_try, last_error)
		SELECT position, id, topic, key::bytea,
		       CASE WHEN n <= $2 THEN 'parked' WHEN n = $2 + 1 THEN 'retrying' ELSE 'waiting' END, 5, 8, CASE WHEN n = $2 + 1 THEN now() END, 'MESSAGE_TOO_LARGE'
		FROM (SELECT *, row_number() OVER (ORDER BY position) AS n FROM troupe.outbox WHERE topic = $1) AS o`, topic, rows)
}

var ann = admin.Actor{Name: "ann", Reason: "ticket 7"}

// Parks more rows than one statement handles. Each is done once and recorded, and no other row is changed.
func TestAllParkedRowsOfATopicAreRetriedOrDiscarded(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.park("a.b.commands", 1003)
	s.park("a.c.commands", 3)
	n, err := s.RetryTopic(t.Context(), "a.b.commands", admin.Actor{Name: "ann"})
	require.NoError(t, err)
	require.Equal(t, 1003, n)
	require.Equal(t, 1004, s.count("SELECT count(*) FROM troupe.outbox_failures WHERE topic = 'a.b.commands' AND status = 'retrying'"))
	require.Equal(t, 1003, s.count("SELECT count(*) FROM troupe.outbox_repairs WHERE action = 'retry' AND actor = 'ann' AND topic = 'a.b.commands'"))

	_, err = s.DiscardTopic(t.Context(), "a.c.commands", admin.Actor{Name: "ann"})
	require.ErrorContains(t, err, "want a reason")
	n, err = s.DiscardTopic(t.Context(), "a.c.commands", ann)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox WHERE topic = 'a.c.commands'"))
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox_failures WHERE topic = 'a.c.commands'"))
	require.Equal(t, 3, s.count("SELECT count(*) FROM troupe.outbox_repairs WHERE action = 'discard' AND reason = 'ticket 7' AND payload IS NOT NULL"))
	n, err = s.DiscardTopic(t.Context(), "a.c.commands", ann)
	require.NoError(t, err)
	require.Zero(t, n)
}

// TestADiscardDoesNotChooseAmongRowsOfOneID: the copy of a dead letter and a redrive have the id of their message, so rows of two topics may
// be parked under it. An operator who has seen one of them must not discard the other.
func TestADiscardDoesNotChooseAmongRowsOfOneID(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.park("a.b.commands", 1)
	s.park("a.b.dlq", 1)
	var id uuid.UUID
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT id FROM troupe.outbox_failures WHERE status = 'parked' ORDER BY position LIMIT 1").Scan((*[16]byte)(&id)))
	s.exec("UPDATE troupe.outbox_failures SET id = $1 WHERE topic = 'a.b.dlq' AND status = 'parked'", [16]byte(id))
	s.exec("UPDATE troupe.outbox AS o SET id = t.id FROM troupe.outbox_failures AS t WHERE t.position = o.position")
	s.exec("UPDATE troupe.outbox_failures SET last_error = 'denied' WHERE topic = 'a.b.commands'") // it is read before the other row no more

	row, err := s.Show(t.Context(), desk.RowID{ID: id})
	require.NoError(t, err)
	require.Equal(t, "a.b.commands", row.Topic)
	_, err = s.Discard(t.Context(), desk.RowID{ID: id}, ann)
	require.ErrorIs(t, err, desk.ErrSeveral)
	require.ErrorContains(t, err, "a.b.commands, a.b.dlq")
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'"))

	row, err = s.Show(t.Context(), desk.RowID{ID: id, Topic: "a.b.dlq"})
	require.NoError(t, err)
	require.Equal(t, "a.b.dlq", row.Topic)
	done, err := s.Discard(t.Context(), desk.RowID{ID: id, Topic: "a.b.dlq"}, ann)
	require.NoError(t, err)
	require.Equal(t, "a.b.dlq", done.Topic)
	_, err = s.Discard(t.Context(), desk.RowID{ID: id, Topic: "a.b.dlq"}, ann)
	require.ErrorIs(t, err, desk.ErrNotParked)
	done, err = s.Discard(t.Context(), desk.RowID{ID: id}, ann)
	require.NoError(t, err)
	require.Equal(t, "a.b.commands", done.Topic)
}

func TestFailedRowsAreListedAndShown(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.park("a.b.commands", 3)
	rows, next, err := s.List(t.Context(), desk.Filter{}, desk.Page{Rows: 2})
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.NotZero(t, next)
	behind, next, err := s.List(t.Context(), desk.Filter{}, desk.Page{After: next, Rows: 10})
	require.NoError(t, err)
	require.Zero(t, next)
	require.Equal(t, []desk.Status{desk.Parked, desk.Retrying, desk.Waiting}, []desk.Status{behind[0].Status, behind[1].Status, behind[2].Status})
	waiting, _, err := s.List(t.Context(), desk.Filter{Status: desk.Waiting, Topic: "a.b.commands"}, desk.Page{Rows: 10})
	require.NoError(t, err)
	require.Len(t, waiting, 1)
	row, err := s.Show(t.Context(), desk.RowID{ID: waiting[0].ID})
	require.NoError(t, err)
	require.Equal(t, "{}", *row.Payload)
	require.Equal(t, "k-5", row.Key)
	_, err = s.Retry(t.Context(), desk.RowID{ID: row.ID}, ann)
	require.ErrorIs(t, err, desk.ErrNotParked)
	_, err = s.Show(t.Context(), desk.RowID{ID: uuid.New()})
	require.ErrorIs(t, err, desk.ErrNoFailure)
	require.Equal(t, 0, s.count("SELECT count(*) FROM troupe.outbox_repairs"))
}

// created_at is the writer's to set. JSON has years up to 9999 only: one such row must not hide the others.
func TestFailedRowsOfAnyTimeAreShownAsJSON(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.park("a.b.commands", 4)
	s.exec(`UPDATE troupe.outbox AS o SET created_at = at FROM (
		SELECT position, (ARRAY['infinity', '-infinity', '20000-01-01', '4000-01-01 BC'])[row_number() OVER (ORDER BY position)]::timestamptz AS at
		FROM troupe.outbox) AS t WHERE o.position = t.position AND at IS NOT NULL`)
	rows, _, err := s.List(t.Context(), desk.Filter{Status: desk.Parked}, desk.Page{Rows: 10})
	require.NoError(t, err)
	require.Len(t, rows, 4)
	for _, row := range rows {
		shown, err := s.Show(t.Context(), desk.RowID{ID: row.ID})
		require.NoError(t, err)
		_, err = json.Marshal([]any{row, shown})
		require.NoError(t, err)
	}
}

// A pause may be stored before any relay has run; the first relay still gets the first term.
// A service chooses the keys of its rows, which may have almost a megabyte each.
func TestAPageOfLargeKeysHasFewerRows(t *testing.T) {
	t.Parallel()
	const size, most = 900_000, 20
	s := newStage(t)
	s.exec("INSERT INTO troupe.outbox (topic, key, type, payload) SELECT 'a.b.commands', repeat('k', $1), 'Charge', '{}' FROM generate_series(1, $2)", size, most)
	s.exec(`INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, last_error)
		SELECT position, id, topic, key::bytea, 'parked', 8, 8, 'MESSAGE_TOO_LARGE' FROM troupe.outbox`)
	seen := map[int64]bool{}
	for after := int64(0); ; {
		rows, next, err := s.List(t.Context(), desk.Filter{}, desk.Page{After: after, Rows: 100})
		require.NoError(t, err)
		require.NotEmpty(t, rows)
		require.LessOrEqual(t, len(rows)*size, admin.PageBytes+size)
		for _, r := range rows {
			require.False(t, seen[r.Position])
			seen[r.Position] = true
		}
		if after = next; after == 0 {
			break
		}
	}
	require.Len(t, seen, most)
}

// Any text of up to 8 MiB may be the topic of a row.
func TestALongTopicIsCutInTheCountsOfFailedRows(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec("INSERT INTO troupe.relay_leases (shard, holder, term, expires_at) VALUES (0, 'relay', 1, now())")
	s.exec(`INSERT INTO troupe.outbox_failures (position, id, topic, status, attempts, max_attempts, last_error)
		SELECT n, gen_random_uuid(), repeat('t', 8000000) || n, 'parked', 8, 8, repeat('e', 8000000) FROM generate_series(1, 2) AS n`)
	s.exec(`INSERT INTO troupe.outbox_failures (position, id, topic, status, attempts, max_attempts, last_error)
		SELECT n, gen_random_uuid(), 'a.b.commands', 'parked', 8, 8, 'refused' FROM generate_series(11, 13) AS n`)
	all, err := desk.Look(t.Context(), s.pool)
	require.NoError(t, err)
	require.Len(t, all[0].Topics, 3)
	require.NotNil(t, all[0].Topics[0].Since)
	all[0].Topics[0].Since = nil
	require.Equal(t, desk.Topic{Topic: "a.b.commands", Parked: 3, Error: "refused"}, all[0].Topics[0])
	for _, long := range all[0].Topics[1:] {
		require.Equal(t, 1, long.Parked)
		require.Equal(t, strings.Repeat("t", 300), long.Topic)
		require.Len(t, long.Error, 2000)
	}
}

func TestAnOutboxIsPausedAndResumedWithARecord(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	require.ErrorIs(t, s.Resume(t.Context(), ann), desk.ErrNotPaused)
	require.ErrorContains(t, s.Pause(t.Context(), admin.Actor{Name: "ann"}), "want a reason")
	require.NoError(t, s.Pause(t.Context(), ann))
	require.ErrorIs(t, s.Pause(t.Context(), admin.Actor{Name: "bob", Reason: "mine"}), desk.ErrPaused)
	all, err := desk.Look(t.Context(), s.pool)
	require.NoError(t, err)
	require.Equal(t, ann, admin.Actor{Name: all[0].Paused.Actor, Reason: all[0].Paused.Reason})
	require.Empty(t, all[0].Leases, "no relay has run")
	require.NoError(t, s.Resume(t.Context(), admin.Actor{Name: "bob"}))
	all, err = desk.Look(t.Context(), s.pool)
	require.NoError(t, err)
	require.Nil(t, all[0].Paused)
	turns, err := s.Turns(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, []string{"resume", "pause"}, []string{turns[0].Action, turns[1].Action})
	require.Equal(t, []string{"bob", "ann"}, []string{turns[0].Actor, turns[1].Actor})

	other := desk.Desk{DB: s.pool, Table: desk.Table{Name: "public.events"}}
	require.ErrorIs(t, other.Pause(t.Context(), ann), desk.ErrNoRelay)
}

func TestALookTellsOfShardsSlotsAndTablesWithAMapping(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.park("a.b.commands", 2)
	s.exec(`INSERT INTO troupe.relay_leases (shard, holder, term, expires_at, shards, layout, source, source_why) VALUES
		(0, 'r-1', 3, now() + interval '1 minute', 2, 5, 'poll', 'by configuration'), (1, 'r-2', 4, now() - interval '1 minute', 1, 5, NULL, NULL),
		(2, 'r-9', 4, now() - interval '1 hour', 1, 4, NULL, NULL)`)
	s.exec("INSERT INTO troupe.mapped_tables (name) VALUES ('public.events')")
	s.exec(`INSERT INTO troupe.relay_leases (shard, holder, term, expires_at, source, source_why)
		SELECT shard, 'r-3', 1, now() + interval '1 minute', 'wal', 'it can' FROM troupe.mapped_tables`)
	s.exec(`INSERT INTO troupe.relay_slot_samples (shard, minute, at, slot, retained)
		SELECT t.shard, n, now() - n * interval '1 minute', 'gone', n FROM troupe.mapped_tables t, generate_series(0, 1439) AS n`)
	s.exec(`INSERT INTO troupe.mapped_failures (table_name, id, event_id, topic, order_key, status, attempts, max_attempts, last_error, row)
		VALUES ('public.events', gen_random_uuid(), 'e-1', 'a.d.commands', 'k', 'parked', 1, 8, 'no topic', '{}')`)
	all, err := desk.Look(t.Context(), s.pool)
	require.NoError(t, err)
	require.Len(t, all, 2)
	own, events := all[0], all[1]
	require.Equal(t, "poll", own.Source)
	require.Equal(t, 2, own.Shards)
	require.Equal(t, []bool{true, false}, []bool{own.Leases[0].Held, own.Leases[1].Held}, "the lease of a former layout is not listed")
	require.NotNil(t, own.Topics[0].Since)
	own.Topics[0].Since = nil
	require.Equal(t, []desk.Topic{{Topic: "a.b.commands", Parked: 2, Retrying: 1, Waiting: 1, Error: "MESSAGE_TOO_LARGE"}}, own.Topics)
	require.Empty(t, own.Samples)
	require.Equal(t, "public.events", events.Table)
	require.Equal(t, "gone", events.SlotName)
	require.Nil(t, events.Slot)
	require.InDelta(t, 288, len(events.Samples), 1)
	require.Equal(t, 1, events.Topics[0].Parked)

	of := desk.Desk{DB: s.pool, Table: desk.Table{Name: "public.events"}}
	rows, _, err := of.List(t.Context(), desk.Filter{Status: desk.Parked}, desk.Page{Rows: 10})
	require.NoError(t, err)
	require.Equal(t, "k", rows[0].Key)
	n, err := of.RetryTopic(t.Context(), "a.d.commands", ann)
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

func TestADatabaseThatIsNotMigratedIsSaidToBe(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), testkit.EmptyDatabase(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = desk.Look(t.Context(), pool)
	require.ErrorContains(t, err, "outbox-relay migrate")
}

func ExampleDesk_RetryTopic() {
	mended := func(ctx context.Context, conn *pgx.Conn) error {
		d := desk.Desk{DB: conn} // troupe.outbox
		n, err := d.RetryTopic(ctx, "order.payment.commands", admin.Actor{Name: "ann", Reason: "ticket 4711: the topic is there now"})
		fmt.Println(n, "rows are tried again")
		return err
	}
	_ = mended
	// Output:
}

// A look reads some topics only. Invented topics hide neither the ones of another outbox nor the action on one.
func TestManyTopicsWithFailedRowsHideNoOther(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.park("a.b.commands", 1)
	role := grantstest.New(t, s.pool, grants.MappedRelay)
	s.exec("CREATE TABLE public.letters (id uuid); GRANT SELECT ON public.letters TO " + role.Name)
	for _, sql := range []string{
		"INSERT INTO troupe.mapped_tables (name) VALUES ('public.letters')",
		`INSERT INTO troupe.mapped_failures (table_name, id, event_id, topic, status, attempts, max_attempts, last_error, row)
			SELECT 'public.letters', gen_random_uuid(), '', 't' || n / 2, 'parked', 1, 1, 'e', '{}' FROM generate_series(0, 399) AS n`,
	} {
		_, err := role.Pool().Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	all, err := desk.Look(t.Context(), s.pool)
	require.NoError(t, err)
	require.Len(t, all[0].Topics, 1)
	require.Equal(t, "a.b.commands", all[0].Topics[0].Topic)

	s.exec(`INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, last_error)
		SELECT 1000 + n, gen_random_uuid(), 't' || n / 2, 'k', 'parked', 8, 8, 'e' FROM generate_series(0, 399) AS n`)
	all, err = desk.Look(t.Context(), s.pool)
	require.NoError(t, err)
	require.Len(t, all[0].Topics, 200)
	for table, want := range map[string]int{"": 1, "public.letters": 0} {
		n, err := desk.Desk{DB: s.pool, Table: desk.Table{Name: table}}.Parked(t.Context(), "a.b.commands")
		require.NoError(t, err)
		require.Equal(t, want, n, table)
	}
}

// TestTheRelayOfATableFillsNoMemory: its role may write any text into the lease of its table, which each page about relays reads, and into the records
// of failed rows, which are listed.
func TestTheRelayOfATableFillsNoMemory(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	role := grantstest.New(t, s.pool, grants.MappedRelay)
	s.exec("CREATE TABLE public.letters (id uuid); GRANT SELECT ON public.letters TO " + role.Name)
	for _, sql := range []string{
		"INSERT INTO troupe.mapped_tables (name) VALUES ('public.letters')",
		`INSERT INTO troupe.relay_leases (shard, holder, wanted, source_why, slot)
			SELECT shard, repeat('h', 10000000), repeat('w', 10000000), repeat('y', 10000000), repeat('s', 10000000) FROM troupe.mapped_tables`,
		"INSERT INTO troupe.relay_slot_samples (shard, minute, at, slot, retained) SELECT shard, 1, now(), repeat('s', 10000000), 1 FROM troupe.mapped_tables",
		`INSERT INTO troupe.mapped_failures (table_name, id, event_id, topic, order_key, status, attempts, max_attempts, last_error, row)
			VALUES ('public.letters', gen_random_uuid(), repeat('i', 10000000), repeat('t', 10000000), convert_to(repeat('k', 10000000), 'UTF8'), 'parked', 8, 8, repeat('e', 10000000), '{}')`,
	} {
		_, err := role.Pool().Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	all, err := desk.Look(t.Context(), s.pool)
	require.NoError(t, err)
	text, err := json.Marshal(all)
	require.NoError(t, err)
	require.Contains(t, string(text), "public.letters")
	require.Less(t, len(text), 10_000)
	rows, _, err := desk.Desk{DB: s.pool, Table: desk.Table{Name: "public.letters"}}.List(t.Context(), desk.Filter{}, desk.Page{Rows: 10})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	text, err = json.Marshal(rows)
	require.NoError(t, err)
	require.Less(t, len(text), 10_000)
}
