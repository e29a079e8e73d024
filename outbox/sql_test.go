package outbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/internal/sqlconn"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/testkit"
)

func open(t testing.TB, pool *pgxpool.Pool, mode pgx.QueryExecMode) *sql.DB {
	t.Helper()
	config := pool.Config().ConnConfig
	config.DefaultQueryExecMode = mode
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func stored(t testing.TB, pool *pgxpool.Pool) []outboxrow.Row {
	t.Helper()
	found, err := pool.Query(t.Context(), "SELECT "+outboxrow.Columns+" FROM troupe.outbox ORDER BY position")
	require.NoError(t, err)
	all, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (r outboxrow.Row, err error) { return r, row.Scan(r.Fields()...) })
	require.NoError(t, err)
	return all
}

// entries are entries of each form.
func entries() []outbox.Entry {
	all := []outbox.Entry{
		{Topic: "t", Key: "a", Body: ChargePayment{OrderID: "\"ü\n\\"}, ID: envelope.NewID()},
		{Topic: "t", Key: "b", Type: "Tombstone", ID: envelope.NewID()},
		{Topic: "t", Key: "c", Type: "Empty", Payload: []byte{}, ID: envelope.NewID()},
		{Topic: "t", KeyBytes: []byte{0, 0xff}, Type: "Bytes", Payload: []byte{0, '\'', '\\', 0xff}, ContentType: "x", ID: envelope.NewID()},
		{Topic: "t", Type: "NoKey", Payload: []byte("p"), Outcome: envelope.Success, SagaID: "s", ID: envelope.NewID()},
		{Topic: "t", Key: "d", Type: "Twice", ID: envelope.NewID(), Headers: []envelope.Header{{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte{0}}}},
		{Topic: "t", Key: "d", Type: "Quoted", ID: envelope.NewID(), Headers: []envelope.Header{{Key: "h", Value: []byte(`a"\'$1`)}, {Key: "n"}}},
	}
	for i := range 250 { // more than one statement takes
		all = append(all, outbox.Entry{Topic: "t", Key: fmt.Sprint(i), Type: "Many", Payload: []byte(fmt.Sprint(i)), ID: envelope.NewID()})
	}
	return all
}

// TestTheRowsAreThoseOfWrite writes the same entries with pgx and with database/sql.
func TestTheRowsAreThoseOfWrite(t *testing.T) {
	t.Parallel()
	all := entries()
	box, err := outbox.New(outbox.Config{Source: "shop", Trace: func(context.Context) (string, string) { return "00-a-b-01", "" }})
	require.NoError(t, err)
	pool := testkit.Database(t)
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return box.Write(t.Context(), tx, all...) }))
	want := stored(t, pool)
	require.Len(t, want, len(all))
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		pool := testkit.Database(t)
		tx, err := open(t, pool, mode).BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, box.WriteSQL(t.Context(), tx, all...), "%s", mode)
		require.Empty(t, stored(t, pool), "not committed")
		require.NoError(t, tx.Commit())
		got := stored(t, pool)
		require.Len(t, got, len(want))
		for i := range want {
			a, b := want[i], got[i]
			b.Position, b.CreatedAt = a.Position, a.CreatedAt
			require.Equal(t, a, b, "%s: row %d", mode, i)
		}
	}
}

func TestRollbackLeavesNothing(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	box, err := outbox.New(outbox.Config{})
	require.NoError(t, err)
	db := open(t, pool, pgx.QueryExecModeCacheStatement)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, box.WriteSQL(t.Context(), tx, outbox.Entry{Topic: "t", Type: "T"}))
	require.ErrorIs(t, box.WriteSQL(t.Context(), tx, outbox.Entry{Topic: "t", Type: "T", Payload: bytes.Repeat([]byte("x"), 1_000_001)}), outbox.ErrTooLarge)
	require.NoError(t, box.WriteSQL(t.Context(), tx), "no entry is no error, and a refused one leaves the transaction usable")
	require.NoError(t, box.WriteSQL(t.Context(), tx, outbox.Entry{Topic: "t", Type: "T"}))
	require.NoError(t, tx.Rollback())
	require.Empty(t, stored(t, pool))
	require.ErrorContains(t, box.WriteSQL(t.Context(), db, outbox.Entry{Topic: "t", Type: "T"}), "no transaction")
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.ErrorContains(t, box.WriteSQL(t.Context(), conn, outbox.Entry{Topic: "t", Type: "T"}), "no transaction")
	require.Empty(t, stored(t, pool))
}

// TestItNotifies listens as the relay does.
func TestItNotifies(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	for named, want := range map[bool][]string{false: {""}, true: {"a.b", "c-d"}} {
		box, err := outbox.New(outbox.Config{NotifyTopics: named})
		require.NoError(t, err)
		conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "LISTEN "+outboxrow.Channel)
		require.NoError(t, err)
		tx, err := open(t, pool, pgx.QueryExecModeCacheStatement).BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, box.WriteSQL(t.Context(), tx,
			outbox.Entry{Topic: "a.b", Type: "T"}, outbox.Entry{Topic: "c-d", Type: "T"}))
		require.NoError(t, tx.Commit())
		for _, topic := range want {
			n, err := conn.WaitForNotification(t.Context())
			require.NoError(t, err)
			require.Equal(t, topic, n.Payload)
		}
		require.NoError(t, conn.Close(t.Context()))
	}
}

// In a handler the entries are queued with the participant's own statements.
func TestUnderAPgxTransactionItWritesWithIt(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	box, err := outbox.New(outbox.Config{})
	require.NoError(t, err)
	queues := &queueing{}
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		queues.Tx = tx
		return sqlconn.With(t.Context(), queues, func(tx *sql.Tx) error {
			return box.WriteSQL(t.Context(), tx, outbox.Entry{Topic: "t", Type: "T"})
		})
	}))
	require.NotZero(t, queues.batch.Len())
	require.True(t, strings.Contains(queues.batch.QueuedQueries[0].SQL, "INSERT INTO troupe.outbox"))
}

// queueing queues as a participant's transaction does.
type queueing struct {
	pgx.Tx
	batch pgx.Batch
}

func (q *queueing) QueueBatch(b *pgx.Batch) error {
	q.batch.QueuedQueries = append(q.batch.QueuedQueries, b.QueuedQueries...)
	return nil
}

// executes is a transaction of a client other than database/sql that has the method WriteSQL needs.
type executes struct{ pgx.Tx }

func (tx executes) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	_, err := tx.Exec(ctx, query, args...)
	return nil, err
}
