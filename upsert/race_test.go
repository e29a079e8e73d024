package upsert_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/upsert"
)

// The first transaction has written and not ended. The second one, which began before that, comes to the same row and
// has to wait; what it is told depends on how the first one ends.
func TestTwoTransactionsAtOnce(t *testing.T) {
	t.Parallel()
	type values = upsert.Values
	rows := `INSERT INTO payments VALUES ('o-1', NULL);
		INSERT INTO accounts VALUES ('b', 'c-1', 100), ('b', 'c-2', 100);
		INSERT INTO orders VALUES ('o-1', 7, 'placed', NULL);
		INSERT INTO prices VALUES ('old', 1, 10)`
	shipment := func(quantity int) values {
		return values{"order_id": "o-1", "customer_id": "c-1", "quantity": quantity, "label": nil}
	}
	labelled := func(order string) values {
		return values{"order_id": order, "customer_id": "c-1", "quantity": 1, "label": "L1"}
	}
	receipt := func(r string) values { return values{"order_id": "o-1", "receipt": r} }
	delta := func(id, customer string, cents int) values {
		return values{"operation_id": id, "bank": "b", "customer_id": customer, "delta": cents}
	}
	update := func(version int, state string) values {
		return values{"order_id": "o-1", "version": version, "state": state, "note": nil}
	}
	price := func(sku string, version, cents int) values {
		return values{"sku": sku, "as_of": version, "cents": cents}
	}
	for _, row := range []struct {
		what          string
		do            verb
		first, second values
		committed     end    // what the second is told after a commit of the first; after a rollback it is Applied
		sql           string // a fact that must hold after the commit, and after the rollback
		then, instead int64
	}{
		{what: "the same insert", do: shipments.Insert, first: shipment(1), second: shipment(1), committed: upsert.Duplicate,
			sql: "SELECT sum(quantity) FROM shop.shipments", then: 1, instead: 1},
		{what: "another insert", do: shipments.Insert, first: shipment(1), second: shipment(2), committed: upsert.ErrConflict,
			sql: "SELECT sum(quantity) FROM shop.shipments", then: 1, instead: 2},
		{what: "an insert of the same unique value", do: shipments.Insert, first: labelled("o-1"), second: labelled("o-2"), committed: upsert.ErrConflict,
			sql: "SELECT count(*) FROM shop.shipments", then: 1, instead: 1},
		{what: "the same set", do: receipts.Set, first: receipt("r-1"), second: receipt("r-1"), committed: upsert.Duplicate,
			sql: "SELECT count(*) FROM payments WHERE receipt = 'r-1'", then: 1, instead: 1},
		{what: "another set", do: receipts.Set, first: receipt("r-1"), second: receipt("r-2"), committed: upsert.ErrConflict,
			sql: "SELECT count(*) FROM payments WHERE receipt = 'r-2'", then: 0, instead: 1},
		{what: "the same delta", do: balances.Add, first: delta("m-1", "c-1", 5), second: delta("m-1", "c-1", 5), committed: upsert.Duplicate,
			sql: "SELECT sum(balance_cents) FROM accounts", then: 205, instead: 205},
		{what: "another delta", do: balances.Add, first: delta("m-1", "c-1", 5), second: delta("m-2", "c-1", 7), committed: upsert.Applied,
			sql: "SELECT sum(balance_cents) FROM accounts", then: 212, instead: 207},
		{what: "an operation that contradicts itself", do: balances.Add, first: delta("m-1", "c-1", 5), second: delta("m-1", "c-1", 7), committed: upsert.ErrConflict,
			sql: "SELECT sum(balance_cents) FROM accounts", then: 205, instead: 207},
		{what: "an operation on two rows", do: balances.Add, first: delta("m-1", "c-1", 5), second: delta("m-1", "c-2", 5), committed: upsert.ErrConflict,
			sql: "SELECT balance_cents FROM accounts WHERE customer_id = 'c-2'", then: 100, instead: 105},
		{what: "the same update", do: orders.Update, first: update(7, "paid"), second: update(7, "paid"), committed: upsert.Duplicate,
			sql: "SELECT version FROM orders", then: 8, instead: 8},
		{what: "another update", do: orders.Update, first: update(7, "paid"), second: update(7, "lost"), committed: upsert.ErrStale,
			sql: "SELECT count(*) FROM orders WHERE state = 'lost'", then: 0, instead: 1},
		{what: "the same new row", do: prices.Put, first: price("new", 5, 50), second: price("new", 5, 50), committed: upsert.Duplicate,
			sql: "SELECT sum(cents) FROM prices", then: 60, instead: 60},
		{what: "an older new row", do: prices.Put, first: price("new", 5, 50), second: price("new", 4, 40), committed: upsert.Stale,
			sql: "SELECT sum(cents) FROM prices", then: 60, instead: 50},
		{what: "a newer new row", do: prices.Put, first: price("new", 5, 50), second: price("new", 6, 60), committed: upsert.Applied,
			sql: "SELECT sum(cents) FROM prices", then: 70, instead: 70},
		{what: "the same version", do: prices.Put, first: price("old", 5, 50), second: price("old", 5, 50), committed: upsert.Duplicate,
			sql: "SELECT sum(cents) FROM prices", then: 50, instead: 50},
		{what: "a version of two things", do: prices.Put, first: price("old", 5, 50), second: price("old", 5, 55), committed: upsert.ErrConflict,
			sql: "SELECT sum(cents) FROM prices", then: 50, instead: 55},
		{what: "an older version", do: prices.Put, first: price("old", 5, 50), second: price("old", 4, 40), committed: upsert.Stale,
			sql: "SELECT sum(cents) FROM prices", then: 50, instead: 40},
		{what: "a newer version", do: prices.Put, first: price("old", 5, 50), second: price("old", 6, 60), committed: upsert.Applied,
			sql: "SELECT sum(cents) FROM prices", then: 60, instead: 60},
	} {
		for _, commit := range []bool{true, false} {
			t.Run(row.what, func(t *testing.T) {
				t.Parallel()
				pool := database(t)
				_, err := pool.Exec(t.Context(), rows)
				require.NoError(t, err)
				got := raceOf(t, pool, row.do, row.first, row.second, commit)
				want, fact := row.committed, row.then
				if !commit {
					want, fact = upsert.Applied, row.instead
				}
				require.Equal(t, want, got, "commit: %v", commit)
				require.Equal(t, fact, one[int64](t, pool, row.sql), "commit: %v", commit)
			})
		}
	}
}

// An update of a version that is not committed yet waits for nobody: it is stale, and the retry finds it.
func TestAnUpdateOfAVersionToComeIsStale(t *testing.T) {
	t.Parallel()
	pool := database(t)
	_, err := pool.Exec(t.Context(), "INSERT INTO orders VALUES ('o-1', 7, 'placed', NULL)")
	require.NoError(t, err)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	require.Equal(t, upsert.Applied, try(t, tx, orders.Update, upsert.Values{"order_id": "o-1", "version": 7, "state": "paid", "note": nil}))
	next := upsert.Values{"order_id": "o-1", "version": 8, "state": "sent", "note": nil}
	require.Equal(t, upsert.ErrStale, run(t, pool, orders.Update, next))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, upsert.Applied, run(t, pool, orders.Update, next))
}

// raceOf gives the end of second, which waited for first to commit or to roll back.
func raceOf(t *testing.T, pool *pgxpool.Pool, do verb, first, second upsert.Values, commit bool) end {
	t.Helper()
	a, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = a.Rollback(t.Context()) }()
	b, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = b.Rollback(t.Context()) }()
	_, err = b.Exec(t.Context(), "SELECT count(*) FROM prices")
	require.NoError(t, err)

	require.Equal(t, upsert.Applied, try(t, a, do, first))
	ended := make(chan end, 1)
	go func() { ended <- try(t, b, do, second) }()
	testkit.Wait(t, "the second to wait for the first", func() (waits bool, err error) {
		err = pool.QueryRow(t.Context(), "SELECT $1 = ANY(pg_blocking_pids($2))", pid(a), pid(b)).Scan(&waits)
		return waits, err
	})
	if commit {
		require.NoError(t, a.Commit(t.Context()))
	} else {
		require.NoError(t, a.Rollback(t.Context()))
	}
	how := <-ended
	require.NoError(t, b.Commit(t.Context()))
	return how
}

func pid(tx pgx.Tx) uint32 { return tx.Conn().PgConn().PID() }

// Without a row there is no entry in the ledger either, else the delta would count as added.
func TestADeltaToARowThatIsBeingDeletedLeavesNoEntry(t *testing.T) {
	t.Parallel()
	pool := database(t)
	_, err := pool.Exec(t.Context(), "INSERT INTO accounts VALUES ('b', 'c-1', 100)")
	require.NoError(t, err)
	deleteOrAdd := func(ctx context.Context, tx pgx.Tx, v upsert.Values) (upsert.Result, error) {
		if v == nil {
			_, err := tx.Exec(ctx, "DELETE FROM accounts")
			return upsert.Applied, err
		}
		return balances.Add(ctx, tx, v)
	}
	delta := upsert.Values{"operation_id": "m-1", "bank": "b", "customer_id": "c-1", "delta": 5}
	require.Equal(t, upsert.ErrMissing, raceOf(t, pool, deleteOrAdd, nil, delta, true))
	require.Zero(t, one[int64](t, pool, "SELECT count(*) FROM account_deltas"))
}
