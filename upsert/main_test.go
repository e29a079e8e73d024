package upsert_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/upsert"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const tables = `
CREATE SCHEMA shop;
CREATE TABLE shop.shipments (
  order_id    text PRIMARY KEY,
  customer_id text,
  quantity    integer NOT NULL CHECK (quantity > 0),
  label       text UNIQUE,
  shipped_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE payments (order_id text PRIMARY KEY, receipt text);
CREATE TABLE accounts (
  bank          text,
  customer_id   text,
  balance_cents bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (bank, customer_id)
);
CREATE TABLE account_deltas (
  operation_id text        PRIMARY KEY,
  bank         text        NOT NULL,
  customer_id  text        NOT NULL,
  delta        bigint      NOT NULL,
  at           timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE orders (order_id text PRIMARY KEY, version bigint NOT NULL DEFAULT 0, state text, note text);
CREATE TABLE prices (sku text PRIMARY KEY, as_of bigint NOT NULL, cents bigint);
`

var (
	shipments = upsert.Row{Table: "shop.shipments", Key: []string{"order_id"}, Columns: []string{"customer_id", "quantity", "label"}}
	receipts  = upsert.Once{Table: "payments", Key: []string{"order_id"}, Column: "receipt"}
	balances  = upsert.Sum{Table: "accounts", Key: []string{"bank", "customer_id"}, Column: "balance_cents", Ledger: "account_deltas"}
	orders    = upsert.Versioned{Table: "orders", Key: []string{"order_id"}, Version: "version", Columns: []string{"state", "note"}}
	prices    = upsert.Newest{Table: "prices", Key: []string{"sku"}, Version: "as_of", Columns: []string{"cents"}}
)

// verb is any of the five.
type verb = func(context.Context, pgx.Tx, upsert.Values) (upsert.Result, error)

func database(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := testkit.Database(t)
	_, err := pool.Exec(t.Context(), tables)
	require.NoError(t, err)
	return pool
}

// end is how a verb ended: a Result, or one of the three errors.
type end any

// run does one verb in a transaction of its own and sees that it can be committed after any end.
func run(t *testing.T, pool *pgxpool.Pool, do verb, values upsert.Values) (how end) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		how = try(t, tx, do, values)
		return nil
	}))
	return how
}

func try(t *testing.T, tx pgx.Tx, do verb, values upsert.Values) end {
	t.Helper()
	result, err := do(t.Context(), tx, values)
	if err == nil {
		require.NotZero(t, result)
		return result
	}
	require.Zero(t, result)
	_, alive := tx.Exec(t.Context(), "SELECT 1")
	require.NoError(t, alive, "the transaction was aborted by: %v", err)
	for _, known := range []error{upsert.ErrConflict, upsert.ErrStale, upsert.ErrMissing} {
		if errors.Is(err, known) {
			return known
		}
	}
	require.NoError(t, err)
	return nil
}

func one[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql, args...)
	require.NoError(t, err)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	require.NoError(t, err)
	return v
}
