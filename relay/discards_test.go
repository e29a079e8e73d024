package relay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// killBehindFailures lets a relay record a failed row and die before it has stored its checkpoint.
func (s *stage) killBehindFailures(c childConfig) {
	s.t.Helper()
	c.Holder, c.Lease, c.KillAt, c.KillNth = "victim", 1500*time.Millisecond, "failure", 1
	require.Equal(s.t, syscall.SIGKILL, s.spawn(c).wait(waitLimit).Signal())
}

// discard parks the only row of a topic that failed, and discards it.
func (s *stage) discard(table, topic string) {
	s.t.Helper()
	kept := "troupe.outbox_failures"
	if table != "" {
		kept = "troupe.mapped_failures"
	}
	s.exec("UPDATE "+kept+" SET status = 'parked', next_try = NULL WHERE topic = $1", topic)
	done, err := desk.Desk{DB: s.pool, Table: desk.Table{Name: table}}.
		DiscardTopic(s.t.Context(), topic, admin.Actor{Name: "ann", Reason: "wrong"})
	require.NoError(s.t, err)
	require.EqualValues(s.t, 1, done)
}

// A row is recorded as failed, the relay dies before it has stored its checkpoint, and an operator discards the row. The log
// has the row once more for the next relay.
func TestADiscardedRowThatTheLogHasOnceMoreIsPassedOver(t *testing.T) {
	t.Parallel()
	for _, delivery := range []relay.Delivery{relay.AtLeastOnce, relay.ExactlyOnce} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, written again %t", delivery, again), func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				cfg := s.config()
				cfg.Source, cfg.Delivery = relay.WAL, delivery
				first := s.startStreaming(cfg)
				require.NoError(t, first.stop())
				late := s.flow + ".late.commands"
				s.insert(late, "k", "discarded")
				s.killBehindFailures(childConfig{Source: relay.WAL, Delivery: delivery})
				s.discard("", late)
				s.provision(kafka.Topic{Name: late, Partitions: 1})
				want := []string{"last"}
				if again { // the row itself, from the audit: it is published after all
					s.exec(`INSERT INTO troupe.outbox (position, id, topic, key, type, payload) OVERRIDING SYSTEM VALUE
						SELECT row_position, row_id, topic, convert_from(order_key, 'UTF8'), type, 'again' FROM troupe.outbox_repairs`)
					want = []string{"again", "last"}
				}
				r := s.start(cfg)
				s.insert(late, "k", "last")
				s.waitStreamed()
				require.NoError(t, r.stop())
				require.Equal(t, want, values(s.committed(late)))
			})
		}
	}
}

// A server that is restored from an image of its disk between the two transactions would lack the later one, and is known by
// that.
func TestTheCheckpointNamesTheLastRowOfItsTransactionThoughThatWasDiscarded(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	cfg := s.exactly()
	first := s.startStreaming(cfg)
	require.NoError(t, first.stop())
	s.insert(s.topic, "k", "published")
	var between string
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT pg_current_wal_insert_lsn()::text").Scan(&between))
	s.insert(s.flow+".late.commands", "k", "discarded")
	s.killBehindFailures(childConfig{Source: relay.WAL, Delivery: relay.ExactlyOnce})
	s.discard("", s.flow+".late.commands")
	r := s.start(cfg)
	s.waitStreamed()
	require.NoError(t, r.stop())
	require.Equal(t, []string{"published"}, values(s.committed(s.topic)))
	var slot string
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()").Scan(&slot))
	var named struct {
		LSN      string
		Position int
	}
	for _, record := range s.committed(topics.Relay(slot)) {
		if string(record.Key) == slot {
			require.NoError(t, json.Unmarshal(record.Value, &named))
		}
	}
	// It is behind the first transaction only if the relay has read the second one when it commits the first one's row.
	want := "published"
	if s.count("SELECT ($1::text::pg_lsn > $2::text::pg_lsn)::int", named.LSN, between) == 1 {
		want = "discarded"
	}
	rows := map[int]string{named.Position: "published"}
	rows[s.count("SELECT row_position FROM troupe.outbox_repairs")] = "discarded"
	require.Equal(t, want, rows[named.Position])
}

func TestADiscardedRowOfAMappedTableThatTheLogHasOnceMoreIsPassedOver(t *testing.T) {
	t.Parallel()
	needsLog(t)
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("written again %t", again), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.exec(debeziumTable)
			cfg := s.mapped("public.outbox", s.routed(nil))
			first := s.start(cfg)
			s.waitTable(first)
			require.NoError(t, first.stop())
			s.insertEvent("late", "k", `"discarded"`)
			s.killBehindFailures(childConfig{Table: "public.outbox", Mapping: s.routed(nil)})
			s.discard("public.outbox", s.flow+".late.events")
			topic := s.eventTopic("late")
			want := []string{`"last"`}
			if again { // another row with the event's id: it is published
				s.exec(`INSERT INTO public.outbox SELECT row_id, 'late', 'k', 'T', '"again"' FROM troupe.outbox_repairs`)
				want = []string{`"again"`, `"last"`}
			}
			s.start(cfg)
			s.insertEvent("late", "k", `"last"`)
			consumer := testkit.Consume(t, s.brokers, topic)
			require.Equal(t, want, values(consumer.WaitN(len(want)))) // in the order of the key
		})
	}
}

// The next relay has read that a row is parked when it is discarded, and reaches that row in the log only then.
func TestARowOfAMappedTableThatIsDiscardedWhileTheLogIsReadOnceMoreIsNotPublished(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	s.exec(debeziumTable)
	cfg := s.mapped("public.outbox", s.routed(nil))
	first := s.start(cfg)
	s.waitTable(first)
	require.NoError(t, first.stop())
	other := s.eventTopic("other")
	const rows = 5000 // more than two windows hold
	s.exec(`INSERT INTO public.outbox
		SELECT troupe.uuidv7(), CASE WHEN n > $1 THEN 'late' ELSE 'other' END, CASE WHEN n > $1 THEN 'k' ELSE n::text END, 'T', to_jsonb(n)
		FROM generate_series(1, $1 + 1) AS n`, rows)
	s.killBehindFailures(childConfig{Table: "public.outbox", Mapping: s.routed(nil)})
	sends, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	cfg.Hooks.BeforeSend = func(int) {
		once.Do(func() {
			close(sends)
			<-goOn
		})
	}
	r := s.start(cfg)
	<-sends
	s.discard("public.outbox", s.flow+".late.events")
	topic := s.eventTopic("late")
	close(goOn)
	testkit.Wait(t, "all others", func() (bool, error) { return r.Status().Deleted >= rows, nil })
	s.insertEvent("late", "k", `"last"`)
	consumer := testkit.Consume(t, s.brokers, topic)
	require.Equal(t, []string{`"last"`}, values(consumer.WaitN(1)))
	testkit.Wait(t, "no failure", func() (bool, error) { return s.count("SELECT count(*) FROM troupe.mapped_failures") == 0, nil })
	require.Equal(t, []string{`"last"`}, values(consumer.Records()))
	require.NotEmpty(t, testkit.Consume(t, s.brokers, other).WaitN(rows))
}

// The checkpoint of exactly-once delivery names a row that an operator has discarded since. It is a checkpoint of this server still.
func TestExactlyOnceContinuesFromACheckpointWhoseRowWasDiscarded(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	cfg := s.exactly()
	cfg.Slot = "troupe_" + strings.ReplaceAll(s.flow, "-", "_")
	first := s.startStreaming(cfg)
	require.NoError(t, first.stop())
	s.insert(s.topic, "k", "before the checkpoint")
	s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'k', 'Thing', 'discarded')`, s.topic)
	var id string
	var position int64
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT position, id FROM troupe.outbox ORDER BY position DESC LIMIT 1").Scan(&position, &id))
	at := s.checkpointOfLastCommit(cfg.Slot)
	at["position"], at["id"] = position, id
	s.storeCheckpoint(cfg.Slot, at)
	s.exec(`INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, last_error)
		VALUES ($1, $2, $3, 'k', 'parked', 1, 1, 'e')`, position, id, s.topic)
	s.discard("", s.topic)
	r := s.start(cfg)
	s.insert(s.topic, "k", "behind the checkpoint")
	s.waitStreamed()
	require.Empty(t, r.Status().Repeats)
	require.NoError(t, r.stop())
	require.Equal(t, []string{"behind the checkpoint"}, values(s.committed(s.topic)))
}

// A restored dump has discards with the LSNs of the cluster that it comes from, which may be ahead of this one's.
func TestADiscardOfAnotherClusterHidesNoRow(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	cfg := s.wal()
	first := s.startStreaming(cfg)
	require.NoError(t, first.stop())
	const id = "01a20bac-edb1-708f-b3e7-c02220f7811e"
	s.exec(`INSERT INTO troupe.outbox_repairs (actor, action, reason, row_position, row_id, topic, attempts, last_error, lsn)
		VALUES ('ann', 'discard', 'r', 7, $1, $2, 1, 'e', 'FFFF/0')`, id, s.topic)
	s.insert(s.topic, "k", "before the stream")
	s.start(cfg)
	s.exec(`INSERT INTO troupe.outbox (position, id, topic, key, type, payload) OVERRIDING SYSTEM VALUE
		VALUES (7, $1, $2, 'k', 'Thing', 'written again')`, id, s.topic)
	require.ElementsMatch(t, []string{"before the stream", "written again"}, values(s.gather(2, s.topic)))
}

// mostRows is a pgx.QueryTracer. It stores the largest number of rows that a statement has returned.
type mostRows struct{ atomic.Int64 }

func (*mostRows) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (m *mostRows) TraceQueryEnd(_ context.Context, _ *pgx.Conn, d pgx.TraceQueryEndData) {
	for now := m.Load(); d.CommandTag.Select() && d.CommandTag.RowsAffected() > now && !m.CompareAndSwap(now, d.CommandTag.RowsAffected()); now = m.Load() {
	}
}

// A relay's operator may record any number of discards, also while the relay is paused and the log waits. A relay reads only the ones of rows that the
// log has.
func TestAnyNumberOfDiscardsFillsNoMemory(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	require.NoError(t, s.startStreaming(s.wal()).stop())
	_, err := grantstest.New(t, s.pool, grants.RelayOperator).Pool().Exec(t.Context(), `
		INSERT INTO troupe.outbox_repairs (actor, action, reason, row_position, row_id, topic, attempts, last_error)
		SELECT 'ann', 'discard', 'r', n, troupe.uuidv7(), 't', 1, 'e' FROM generate_series(1, 20000) AS n`)
	require.NoError(t, err)
	var most mostRows
	pool := s.pool.Config()
	pool.ConnConfig.Tracer = &most
	cfg := s.wal()
	cfg.Pool, err = pgxpool.NewWithConfig(t.Context(), pool)
	require.NoError(t, err)
	t.Cleanup(cfg.Pool.Close)
	s.insert(s.topic, "k", "a")
	r := s.start(cfg)
	require.Equal(t, []string{"a"}, values(s.gather(1, s.topic)))
	require.NoError(t, r.stop())
	require.Less(t, most.Load(), int64(1000))
}

// The relay's role learns which rows were discarded, and no more, and it cannot write that a row was. Without the right, which
// older versions did not grant, it streams all the same.
func TestTheRoleOfARelayOnlyReadsWhichRowsWereDiscarded(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	for _, part := range []grants.Part{grants.Relay, grants.MappedRelay} {
		pool := grantstest.New(t, s.pool, part).Pool()
		_, err := pool.Exec(t.Context(), "SELECT action, lsn, row_id, row_position, table_name FROM troupe.outbox_repairs")
		require.NoError(t, err)
		for _, forged := range []string{
			"INSERT INTO troupe.outbox_repairs (actor, action, reason, row_position, row_id, topic, attempts, last_error) " +
				"VALUES ('ann', 'discard', 'r', 1, troupe.uuidv7(), 't', 1, 'e')",
			"UPDATE troupe.outbox_repairs SET lsn = '0/1'",
			"DELETE FROM troupe.outbox_repairs",
			"SELECT payload FROM troupe.outbox_repairs",
			"SELECT actor, reason FROM troupe.outbox_repairs",
		} {
			_, err := pool.Exec(t.Context(), forged)
			require.ErrorContains(t, err, "permission denied", forged)
		}
	}
	role := grantstest.New(t, s.pool, grants.Relay)
	s.exec("ALTER ROLE " + role.Name + " REPLICATION")
	s.exec("REVOKE SELECT (action, lsn, row_id, row_position, table_name) ON troupe.outbox_repairs FROM " + role.Name)
	cfg := s.wal()
	cfg.Pool = role.Pool()
	r := s.start(cfg)
	s.waitStream()
	s.insert(s.topic, "k", "0")
	require.Equal(t, []string{"0"}, values(s.gather(1, s.topic)))
	require.NoError(t, r.stop())
}
