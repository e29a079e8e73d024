package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func newOutbox(t testing.TB, cfg outbox.Config) *outbox.Outbox {
	t.Helper()
	box, err := outbox.New(cfg)
	require.NoError(t, err)
	return box
}

func write(t testing.TB, pool *pgxpool.Pool, box *outbox.Outbox, entries ...outbox.Entry) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return box.Write(t.Context(), tx, entries...)
	}))
}

// rows returns all rows of the table, in the order of their positions.
func rows(t testing.TB, pool *pgxpool.Pool) []outboxrow.Row {
	t.Helper()
	found, err := pool.Query(t.Context(), "SELECT "+outboxrow.Columns+" FROM troupe.outbox ORDER BY position")
	require.NoError(t, err)
	all, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (r outboxrow.Row, err error) {
		return r, row.Scan(r.Fields()...)
	})
	require.NoError(t, err)
	return all
}

func only(t testing.TB, pool *pgxpool.Pool) envelope.Message {
	t.Helper()
	all := rows(t, pool)
	require.Len(t, all, 1)
	m, err := all[0].Message(outboxrow.Defaults{Source: "shop"})
	require.NoError(t, err)
	return m
}

type ChargePayment struct {
	OrderID string `json:"order_id"`
	Cents   int64  `json:"cents"`
}

func TestAnEntryBecomesItsMessage(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	box := newOutbox(t, outbox.Config{Source: "order"})
	write(t, pool, box, outbox.Entry{
		Topic: "order.payment.commands", Key: "o-1", Body: ChargePayment{"o-1", 2933}, IdempotencyKey: "o-1/charge",
		SagaID: "s", SagaStep: "charge", SagaOperation: "forward", Outcome: envelope.Success,
		Headers: []envelope.Header{{Key: "tenant", Value: []byte("é")}},
	})
	m := only(t, pool)
	id, err := uuid.Parse(m.ID)
	require.NoError(t, err)
	require.EqualValues(t, 7, id.Version())
	require.WithinDuration(t, time.Now(), m.Time, time.Minute)
	m.Time = time.Time{}
	require.Equal(t, envelope.Message{
		Topic: "order.payment.commands", Key: []byte("o-1"), Payload: []byte(`{"order_id":"o-1","cents":2933}`),
		ID: m.ID, CorrelationID: m.ID, Source: "order", Type: "ChargePayment", Subject: "o-1", ContentType: envelope.JSON,
		IdempotencyKey: "o-1/charge", SagaID: "s", SagaStep: "charge", SagaOperation: "forward", Outcome: envelope.Success,
		Extra: []envelope.Header{{Key: "tenant", Value: []byte("é")}},
	}, m)
}

// Any language: all columns but topic, type and payload have a default.
func TestAPlainInsertIsAnEntry(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	_, err := pool.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, payload)
		VALUES ('order.payment.commands', 'o-1', 'ChargePayment', '{"order_id": "o-1"}')`)
	require.NoError(t, err)
	m := only(t, pool)
	require.Equal(t, "shop", m.Source)
	require.Equal(t, "o-1", m.Subject)
	require.Equal(t, envelope.JSON, m.ContentType)
	require.Equal(t, m.ID, m.CorrelationID)
	require.EqualValues(t, 7, uuid.MustParse(m.ID).Version())
	require.False(t, m.Time.IsZero())
}

func TestTheTableRefusesInvalidRows(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	for _, c := range []struct{ name, columns, values string }{
		{"an empty topic", "topic, type", "'', 'T'"},
		{"no topic", "type", "'T'"},
		{"an empty type", "topic, type", "'t', ''"},
		{"headers that are no object", "topic, type, headers", "'t', 'T', '[1]'"},
		{"a forged position", "topic, type, position", "'t', 'T', 1"},
	} {
		_, err := pool.Exec(t.Context(), "INSERT INTO troupe.outbox ("+c.columns+") VALUES ("+c.values+")")
		require.Error(t, err, c.name)
	}
	require.Empty(t, rows(t, pool))
}

// The documented rights are sufficient, and none of them is unnecessary.
func TestAServiceNeedsOnlyToInsertByColumn(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	role := grantstest.New(t, pool, grants.Writer).Name
	as := func(do func(tx pgx.Tx) error) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SET LOCAL ROLE "+role); err != nil {
				return err
			}
			return do(tx)
		})
	}
	box := newOutbox(t, outbox.Config{})
	require.NoError(t, as(func(tx pgx.Tx) error {
		return box.Write(t.Context(), tx, outbox.Entry{Topic: "t", Type: "T"})
	}))
	for _, forged := range []string{
		"INSERT INTO troupe.outbox (topic, type, xid) VALUES ('t', 'T', '3')",
		"INSERT INTO troupe.outbox (topic, type, position) OVERRIDING SYSTEM VALUE VALUES ('t', 'T', 3)",
		"SELECT nextval('troupe.outbox_position_seq')",
		"DELETE FROM troupe.outbox",
	} {
		err := as(func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), forged)
			return err
		})
		var refused *pgconn.PgError
		require.ErrorAs(t, err, &refused, forged)
		require.Equal(t, "42501", refused.Code, forged)
	}
}

// The message is in the transaction that changes the service's own rows: both are committed, or neither.
func TestARollbackWritesNothing(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	box := newOutbox(t, outbox.Config{})
	declined := errors.New("declined")
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		require.NoError(t, box.Write(t.Context(), tx, outbox.Entry{Topic: "t", Type: "T"}))
		return declined
	})
	require.ErrorIs(t, err, declined)
	require.Empty(t, rows(t, pool))
}

// TestAWriterWithAnotherEncodingKeepsItsKeys checks a role whose client_encoding is not the one of Go, and that its transaction keeps it.
func TestAWriterWithAnotherEncodingKeepsItsKeys(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	cfg := pool.Config()
	cfg.ConnConfig.RuntimeParams["client_encoding"] = "LATIN1"
	role, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(role.Close)
	box := newOutbox(t, outbox.Config{Source: "shop"})
	require.NoError(t, pgx.BeginFunc(t.Context(), role, func(tx pgx.Tx) error {
		if err := box.Write(t.Context(), tx, outbox.Entry{Topic: "order.payment.commands", Key: "zoë", Type: "Thing", Payload: []byte("{}")}); err != nil {
			return err
		}
		var is string
		require.NoError(t, tx.QueryRow(t.Context(), "SHOW client_encoding").Scan(&is))
		require.Equal(t, "LATIN1", is)
		return nil
	}))
	require.Equal(t, "zoë", string(only(t, pool).Key))
}

func TestEntriesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	var entries []outbox.Entry
	for n := range 100 {
		entries = append(entries, outbox.Entry{Topic: "t", Key: "k", Type: "T", Payload: fmt.Append(nil, n)})
	}
	write(t, pool, newOutbox(t, outbox.Config{}), entries...)
	for n, row := range rows(t, pool) {
		require.Equal(t, fmt.Sprint(n), string(row.Payload))
	}
}

// An invalid entry is refused before anything is sent, so the transaction can continue.
func TestARefusedEntryLeavesTheTransactionAsItWas(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	box := newOutbox(t, outbox.Config{MaxBytes: 10})
	good := outbox.Entry{Topic: "t", Type: "T"}
	for _, c := range []struct {
		name string
		bad  outbox.Entry
		want string
	}{
		{"no topic", outbox.Entry{Type: "T"}, "entry 1: entry without a topic"},
		{"neither body nor type", outbox.Entry{Topic: "t"}, "neither a body nor a type"},
		{"a body without a name", outbox.Entry{Topic: "t", Body: struct{}{}}, "no name"},
		{"a body that does not encode", outbox.Entry{Topic: "t", Body: unencodable{}}, "encode unencodable"},
		{"an outcome that is none", outbox.Entry{Topic: "t", Type: "T", Outcome: "maybe"}, `outcome "maybe"`},
		{"an id that is none", outbox.Entry{Topic: "t", Type: "T", ID: "1"}, `id "1" is no UUID`},
		{"too large", outbox.Entry{Topic: "t", Type: "T", Payload: make([]byte, 11)}, "payload of 11 bytes"},
		{"too many headers", outbox.Entry{Topic: "t", Type: "T", Headers: make([]envelope.Header, 300)}, "bad headers"},
	} {
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			err := box.Write(t.Context(), tx, good, c.bad)
			require.ErrorContains(t, err, c.want, c.name)
			if c.name == "too large" {
				require.ErrorIs(t, err, outbox.ErrTooLarge)
			}
			return box.Write(t.Context(), tx, good)
		}))
	}
	require.Len(t, rows(t, pool), 8)
}

type unencodable struct{ F func() }

func TestWritingNothingSendsNothing(t *testing.T) {
	t.Parallel()
	require.NoError(t, newOutbox(t, outbox.Config{}).Write(t.Context(), nil))
}

// A handler that runs again emits the same ids; correlation and causation come from its message.
func TestEntriesOfAHandlerFollowFromItsMessage(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	box := newOutbox(t, outbox.Config{})
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	run := func() {
		ctx := envelope.WithCause(t.Context(), &envelope.Cause{
			Message: envelope.Message{ID: "in", CorrelationID: "flow", TraceParent: "tp", TraceState: "ts"},
			Handler: "payment", At: at,
		})
		require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			return box.Write(ctx, tx, outbox.Entry{Topic: "t", Type: "T"}, outbox.Entry{Topic: "t", Type: "T"})
		}))
	}
	run()
	run()
	all := rows(t, pool)
	require.Len(t, all, 4)
	require.Equal(t, all[0].ID, all[2].ID)
	require.Equal(t, all[1].ID, all[3].ID)
	require.NotEqual(t, all[0].ID, all[1].ID)
	m, err := all[0].Message(outboxrow.Defaults{})
	require.NoError(t, err)
	require.Equal(t, []string{"flow", "in", "tp", "ts"}, []string{m.CorrelationID, m.CausationID, m.TraceParent, m.TraceState})
}

func TestSettingsThatCannotBeMeantAreRefused(t *testing.T) {
	t.Parallel()
	for _, most := range []int{-1, 8_000_001} {
		_, err := outbox.New(outbox.Config{MaxBytes: most})
		require.ErrorContains(t, err, fmt.Sprintf("max bytes %d: want 1 to 8000000", most))
	}
}

// Row returns the row that Write would insert, for callers that insert it later.
func TestARowKeptForLaterIsTheOneThatWriteWrites(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	box := newOutbox(t, outbox.Config{Source: "s"})
	context := func() context.Context {
		return envelope.WithCause(t.Context(), &envelope.Cause{Message: envelope.Message{ID: "in", CorrelationID: "flow"}, Handler: "h", At: time.Unix(1, 0)})
	}
	for _, e := range []outbox.Entry{
		{Topic: "t", Key: "k", Type: "T", Payload: []byte("p"), Headers: []envelope.Header{{Key: "a", Value: []byte("1")}}},
		{Topic: "t", KeyBytes: []byte{0xff}, Type: "T", Headers: []envelope.Header{{Key: "a", Value: []byte{0xff}}}},
	} {
		kept, err := box.Row(context(), e)
		require.NoError(t, err)
		_, err = pool.Exec(t.Context(), "DELETE FROM troupe.outbox")
		require.NoError(t, err)
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return box.Write(context(), tx, e) }))
		written := rows(t, pool)[0]
		want, err := written.Message(outboxrow.Defaults{})
		require.NoError(t, err)
		got, err := kept.Message(outboxrow.Defaults{})
		require.NoError(t, err)
		want.Time = got.Time
		require.Equal(t, want, got)
	}
	_, err := box.Row(t.Context(), outbox.Entry{Topic: "t"})
	require.ErrorContains(t, err, "neither a body nor a type")
}

// TestTextThatIsNotASCIIIsStoredInADatabaseOfAnyEncoding checks what a relay reads, whose session is in UTF-8: key and headers are the
// writer's, also where the encoding of the database has no such characters.
func TestTextThatIsNotASCIIIsStoredInADatabaseOfAnyEncoding(t *testing.T) {
	t.Parallel()
	const key, correlation = "zoë “λ”", "flow-zoë “λ”"
	for _, encoding := range []string{"LATIN1", "WIN1252", "SQL_ASCII", "UTF8"} {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			server, cfg := testkit.Database(t), testkit.Database(t).Config()
			name := cfg.ConnConfig.Database + "_odd"
			_, err := server.Exec(t.Context(), "CREATE DATABASE "+name+" ENCODING '"+encoding+"' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
			require.NoError(t, err)
			cfg.ConnConfig.Database = name
			require.NoError(t, migrations.UpConfig(t.Context(), cfg.ConnConfig))
			pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
			require.NoError(t, err)
			t.Cleanup(func() {
				pool.Close()
				_, err := server.Exec(context.Background(), "DROP DATABASE "+name)
				require.NoError(t, err)
			})
			box := newOutbox(t, outbox.Config{Source: "shop"})
			ctx := envelope.WithCause(t.Context(), &envelope.Cause{Message: envelope.Message{ID: "1", CorrelationID: correlation}})
			odd := outbox.Entry{Topic: "order.payment.commands", Key: key, Type: "Thing", Payload: []byte("{}")}
			plain := outbox.Entry{Topic: "order.payment.commands", Key: "k", Type: "Thing", Payload: []byte("{}")}
			require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				require.NoError(t, box.Write(ctx, tx, odd))
				require.NoError(t, box.Write(ctx, tx, odd, plain))
				return box.WriteSQL(ctx, executes{tx}, odd, plain)
			}))
			session, err := pg.SessionPool(pool)
			require.NoError(t, err)
			defer session.Close()
			read, err := session.Query(t.Context(), "SELECT "+outboxrow.Columns+" FROM troupe.outbox ORDER BY position")
			require.NoError(t, err)
			var keys []string
			for read.Next() {
				var r outboxrow.Row
				require.NoError(t, read.Scan(r.Fields()...))
				m, err := r.Message(outboxrow.Defaults{})
				require.NoError(t, err)
				require.Equal(t, correlation, m.CorrelationID)
				require.Equal(t, "shop", m.Source)
				require.Equal(t, encoding != "UTF8" && string(m.Key) == key, r.KeyBytes != nil)
				keys = append(keys, string(m.Key))
			}
			require.NoError(t, read.Err())
			require.Equal(t, []string{key, key, "k", key, "k"}, keys)
		})
	}
}
