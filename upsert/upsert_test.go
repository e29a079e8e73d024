package upsert_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/upsert"
)

// step is a call and what it must come to, in the order of the table.
type step struct {
	what   string
	values upsert.Values
	want   end
}

func TestEachVerbTellsItsEndsApart(t *testing.T) {
	t.Parallel()
	// The last ones are for poolers between the service and Postgres.
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			config, err := pgxpool.ParseConfig(testkit.DatabaseURL(t, database(t)))
			require.NoError(t, err)
			config.ConnConfig.DefaultQueryExecMode = mode
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			require.NoError(t, err)
			defer pool.Close()
			tellEndsApart(t, pool)
		})
	}
}

func tellEndsApart(t *testing.T, pool *pgxpool.Pool) {
	exec := func(sql string) {
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec(`INSERT INTO payments VALUES ('o-1', NULL);
		INSERT INTO accounts VALUES ('b', 'c-1', 100), ('b', 'c-2', 100);
		INSERT INTO orders VALUES ('o-1', 7, 'placed', NULL)`)
	type values = upsert.Values
	for name, row := range map[string]struct {
		do    verb
		steps []step
	}{
		"Row": {shipments.Insert, []step{
			{"new", values{"order_id": "o-1", "customer_id": "c-1", "quantity": 2, "label": "L1"}, upsert.Applied},
			{"again", values{"order_id": "o-1", "customer_id": "c-1", "quantity": 2, "label": "L1"}, upsert.Duplicate},
			{"another quantity", values{"order_id": "o-1", "customer_id": "c-1", "quantity": 3, "label": "L1"}, upsert.ErrConflict},
			{"null for a value", values{"order_id": "o-1", "customer_id": nil, "quantity": 2, "label": "L1"}, upsert.ErrConflict},
			{"another's unique value", values{"order_id": "o-2", "customer_id": "c-1", "quantity": 2, "label": "L1"}, upsert.ErrConflict},
			{"null where null may be", values{"order_id": "o-3", "customer_id": nil, "quantity": 2, "label": nil}, upsert.Applied},
			{"null again", values{"order_id": "o-3", "customer_id": nil, "quantity": 2, "label": nil}, upsert.Duplicate},
			{"a value for null", values{"order_id": "o-3", "customer_id": "c-1", "quantity": 2, "label": nil}, upsert.ErrConflict},
		}},
		"Once": {receipts.Set, []step{
			{"no row", values{"order_id": "o-9", "receipt": "r-1"}, upsert.ErrMissing},
			{"first", values{"order_id": "o-1", "receipt": "r-1"}, upsert.Applied},
			{"again", values{"order_id": "o-1", "receipt": "r-1"}, upsert.Duplicate},
			{"another", values{"order_id": "o-1", "receipt": "r-2"}, upsert.ErrConflict},
		}},
		"Sum": {balances.Add, []step{
			{"no row", values{"operation_id": "m-1", "bank": "b", "customer_id": "c-9", "delta": 5}, upsert.ErrMissing},
			{"first", values{"operation_id": "m-1", "bank": "b", "customer_id": "c-1", "delta": -5}, upsert.Applied},
			{"again", values{"operation_id": "m-1", "bank": "b", "customer_id": "c-1", "delta": -5}, upsert.Duplicate},
			{"another delta", values{"operation_id": "m-1", "bank": "b", "customer_id": "c-1", "delta": 5}, upsert.ErrConflict},
			{"another row", values{"operation_id": "m-1", "bank": "b", "customer_id": "c-2", "delta": -5}, upsert.ErrConflict},
			{"another operation", values{"operation_id": "m-2", "bank": "b", "customer_id": "c-1", "delta": -5}, upsert.Applied},
			{"nothing", values{"operation_id": "m-3", "bank": "b", "customer_id": "c-1", "delta": 0}, upsert.Applied},
			{"nothing again", values{"operation_id": "m-3", "bank": "b", "customer_id": "c-1", "delta": 0}, upsert.Duplicate},
		}},
		"Versioned": {orders.Update, []step{
			{"no row", values{"order_id": "o-9", "version": 7, "state": "paid", "note": nil}, upsert.ErrMissing},
			{"not there yet", values{"order_id": "o-1", "version": 8, "state": "sent", "note": nil}, upsert.ErrStale},
			{"as read", values{"order_id": "o-1", "version": 7, "state": "paid", "note": nil}, upsert.Applied},
			{"again", values{"order_id": "o-1", "version": 7, "state": "paid", "note": nil}, upsert.Duplicate},
			{"somebody else's", values{"order_id": "o-1", "version": 7, "state": "cancelled", "note": nil}, upsert.ErrStale},
			{"the next", values{"order_id": "o-1", "version": 8, "state": "sent", "note": "n"}, upsert.Applied},
			{"the first, late", values{"order_id": "o-1", "version": 7, "state": "paid", "note": nil}, upsert.ErrStale},
		}},
		"Newest": {prices.Put, []step{
			{"new", values{"sku": "s", "as_of": 5, "cents": 100}, upsert.Applied},
			{"again", values{"sku": "s", "as_of": 5, "cents": 100}, upsert.Duplicate},
			{"older", values{"sku": "s", "as_of": 4, "cents": 90}, upsert.Stale},
			{"newer", values{"sku": "s", "as_of": 6, "cents": nil}, upsert.Applied},
			{"null again", values{"sku": "s", "as_of": 6, "cents": nil}, upsert.Duplicate},
			{"the first, late", values{"sku": "s", "as_of": 5, "cents": 100}, upsert.Stale},
			{"a version of two things", values{"sku": "s", "as_of": 6, "cents": 100}, upsert.ErrConflict},
		}},
	} {
		for _, s := range row.steps {
			require.Equal(t, s.want, run(t, pool, row.do, s.values), "%s: %s", name, s.what)
		}
	}
	require.Equal(t, int64(2), one[int64](t, pool, "SELECT count(*) FROM shop.shipments"))
	require.Equal(t, int32(2), one[int32](t, pool, "SELECT quantity FROM shop.shipments WHERE order_id = 'o-1'"))
	require.Equal(t, "r-1", one[string](t, pool, "SELECT receipt FROM payments"))
	require.Equal(t, int64(90), one[int64](t, pool, "SELECT balance_cents FROM accounts WHERE customer_id = 'c-1'"))
	require.Equal(t, int64(100), one[int64](t, pool, "SELECT balance_cents FROM accounts WHERE customer_id = 'c-2'"))
	require.Equal(t, int64(3), one[int64](t, pool, "SELECT count(*) FROM account_deltas"))
	require.Equal(t, "sent 9", one[string](t, pool, "SELECT state || ' ' || version FROM orders"))
	require.Equal(t, int64(6), one[int64](t, pool, "SELECT as_of FROM prices"))
}

func TestAVerbThatRolledBackHasDoneNothing(t *testing.T) {
	t.Parallel()
	pool := database(t)
	_, err := pool.Exec(t.Context(), "INSERT INTO accounts VALUES ('b', 'c-1', 0)")
	require.NoError(t, err)
	delta := upsert.Values{"operation_id": "m-1", "bank": "b", "customer_id": "c-1", "delta": 5}
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	require.Equal(t, upsert.Applied, try(t, tx, balances.Add, delta))
	require.Equal(t, upsert.Duplicate, try(t, tx, balances.Add, delta), "in one transaction too")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, upsert.Applied, run(t, pool, balances.Add, delta))
	require.Equal(t, int64(5), one[int64](t, pool, "SELECT balance_cents FROM accounts"))
}

func TestMistakesAreNamedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	pool := database(t)
	key := []string{"order_id"}
	for _, row := range []struct {
		do     verb
		values upsert.Values
		want   string
	}{
		{shipments.Insert, upsert.Values{"order_id": "o", "quantity": 1, "label": nil}, `no value for column "customer_id"`},
		{shipments.Insert, upsert.Values{"order_id": "o", "customer_id": "c", "quantity": 1, "label": nil, "qty": 1}, `"qty", which the description does not name`},
		{upsert.Row{Key: key}.Insert, nil, "no table"},
		{upsert.Row{Table: "t"}.Insert, nil, "no key"},
		{upsert.Row{Table: "t", Key: key, Columns: []string{"a", "a"}}.Insert, nil, `column "a" is named twice`},
		{upsert.Row{Table: "t", Key: key, Columns: key}.Insert, nil, `column "order_id" is named twice`},
		{upsert.Row{Table: "t", Key: []string{""}}.Insert, nil, "without a name"},
		{upsert.Once{Table: "t", Key: key}.Set, nil, "without a name"},
		{receipts.Set, upsert.Values{"order_id": "o", "receipt": nil}, "null cannot be set"},
		{upsert.Sum{Table: "t", Key: key, Column: "c"}.Add, nil, "ledger: no table"},
		{upsert.Sum{Table: "t", Key: key, Column: "c", Ledger: "l", Operation: "order_id"}.Add, nil, "named twice"},
		{upsert.Versioned{Table: "t", Key: key}.Update, nil, "without a name"},
		{upsert.Newest{Table: "t", Key: key}.Put, nil, "without a name"},
		{prices.Put, upsert.Values{"sku": "s", "as_of": nil, "cents": 1}, "null is no version"},
	} {
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			result, err := row.do(t.Context(), tx, row.values)
			require.ErrorContains(t, err, row.want)
			require.Zero(t, result)
			_, err = tx.Exec(t.Context(), "SELECT 1")
			return err
		}))
	}
	require.Equal(t, "no result", upsert.Result(0).String())
}

// Names are quoted, so a table or column can be called what SQL calls its own things, and nothing gets in by a name.
func TestAnyNameIsOnlyAName(t *testing.T) {
	t.Parallel()
	pool := database(t)
	_, err := pool.Exec(t.Context(), `CREATE TABLE "or""der" ("user" text PRIMARY KEY, "stored" bigint NOT NULL, "entry; DROP TABLE orders" bigint NOT NULL, "Mixed Case" text);
		CREATE TABLE "excluded" ("operation_id" text PRIMARY KEY, "user" text, "delta" bigint)`)
	require.NoError(t, err)
	table, key, odd := `or"der`, []string{"user"}, "entry; DROP TABLE orders"
	require.Equal(t, upsert.Applied, run(t, pool, upsert.Newest{Table: table, Key: key, Version: "stored", Columns: []string{odd, "Mixed Case"}}.Put,
		upsert.Values{"user": "u", "stored": 1, odd: 1, "Mixed Case": nil}))
	require.Equal(t, upsert.Applied, run(t, pool, upsert.Sum{Table: table, Key: key, Column: odd, Ledger: "excluded"}.Add,
		upsert.Values{"operation_id": "m", "user": "u", "delta": 4}))
	require.Equal(t, upsert.Applied, run(t, pool, upsert.Once{Table: table, Key: key, Column: "Mixed Case"}.Set,
		upsert.Values{"user": "u", "Mixed Case": "m"}))
	require.Equal(t, upsert.Applied, run(t, pool, upsert.Versioned{Table: table, Key: key, Version: "stored", Columns: []string{"Mixed Case"}}.Update,
		upsert.Values{"user": "u", "stored": 1, "Mixed Case": "n"}))
	require.Equal(t, upsert.Duplicate, run(t, pool, upsert.Row{Table: table, Key: key, Columns: []string{"stored", odd, "Mixed Case"}}.Insert,
		upsert.Values{"user": "u", "stored": 2, odd: 5, "Mixed Case": "n"}))
	require.Zero(t, one[int64](t, pool, "SELECT count(*) FROM orders"))
}
