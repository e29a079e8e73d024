package upsert_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/devstack"
	"github.com/troupe-go/troupe/upsert"
)

func ExampleRow() {
	shipments := upsert.Row{Table: "shipments", Key: []string{"order_id"}, Columns: []string{"customer_id", "quantity"}}
	write, look := shipments.SQL()
	fmt.Printf("%s;\n%s;\n", write, look)

	handler(`CREATE TABLE shipments (order_id text PRIMARY KEY, customer_id text NOT NULL, quantity integer NOT NULL)`,
		func(ctx context.Context, tx pgx.Tx) {
			for _, quantity := range []int{2, 2, 3} {
				result, err := shipments.Insert(ctx, tx, upsert.Values{"order_id": "o-1", "customer_id": "c-1", "quantity": quantity})
				switch {
				case errors.Is(err, upsert.ErrConflict):
					fmt.Println("refused: the order was sent otherwise")
				case err != nil:
					fmt.Println(err)
				default:
					fmt.Println("shipped:", result)
				}
			}
		})
	// Output:
	// INSERT INTO "shipments" ("order_id", "customer_id", "quantity")
	// VALUES ($1, $2, $3)
	// ON CONFLICT DO NOTHING;
	// SELECT "customer_id" IS NOT DISTINCT FROM $2 AND "quantity" IS NOT DISTINCT FROM $3
	// FROM "shipments"
	// WHERE "order_id" = $1;
	// shipped: applied
	// shipped: duplicate
	// refused: the order was sent otherwise
}

func ExampleOnce() {
	receipts := upsert.Once{Table: "payments", Key: []string{"order_id"}, Column: "receipt"}
	write, look := receipts.SQL()
	fmt.Printf("%s;\n%s;\n", write, look)

	handler(`CREATE TABLE payments (order_id text PRIMARY KEY, receipt text); INSERT INTO payments VALUES ('o-1')`,
		func(ctx context.Context, tx pgx.Tx) {
			for _, receipt := range []string{"r-1", "r-1", "r-2"} {
				fmt.Println(receipts.Set(ctx, tx, upsert.Values{"order_id": "o-1", "receipt": receipt}))
			}
		})
	// Output:
	// UPDATE "payments"
	// SET "receipt" = $2
	// WHERE "order_id" = $1 AND "receipt" IS NULL;
	// SELECT "receipt" IS NOT DISTINCT FROM $2
	// FROM "payments"
	// WHERE "order_id" = $1;
	// applied <nil>
	// duplicate <nil>
	// no result upsert: payments by order_id: other values are there already
}

func ExampleSum() {
	balances := upsert.Sum{Table: "accounts", Key: []string{"customer_id"}, Column: "balance_cents", Ledger: "account_deltas"}
	write, look := balances.SQL()
	fmt.Printf("%s;\n%s;\n", write, look)

	handler(`CREATE TABLE accounts (customer_id text PRIMARY KEY, balance_cents bigint NOT NULL DEFAULT 0);
		CREATE TABLE account_deltas (
			operation_id text        PRIMARY KEY,
			customer_id  text        NOT NULL,
			delta        bigint      NOT NULL,
			at           timestamptz NOT NULL DEFAULT now()
		);
		INSERT INTO accounts VALUES ('c-1', 1000)`,
		func(ctx context.Context, tx pgx.Tx) {
			for _, message := range []string{"m-1", "m-2", "m-1"} {
				fmt.Println(balances.Add(ctx, tx, upsert.Values{"operation_id": message, "customer_id": "c-1", "delta": 250}))
			}
			var cents int
			err := tx.QueryRow(ctx, "SELECT balance_cents FROM accounts").Scan(&cents)
			fmt.Println(cents, err)
		})
	// Output:
	// WITH target AS (
	//   SELECT "customer_id"
	//   FROM "accounts"
	//   WHERE "customer_id" = $2
	//   FOR NO KEY UPDATE
	// ), entry AS (
	//   INSERT INTO "account_deltas" ("operation_id", "customer_id", "delta")
	//   SELECT $1, "customer_id", $3 FROM target
	//   ON CONFLICT DO NOTHING
	//   RETURNING "delta" AS delta
	// )
	// UPDATE "accounts" AS stored
	// SET "balance_cents" = stored."balance_cents" + entry.delta
	// FROM entry
	// WHERE stored."customer_id" = $2;
	// SELECT "customer_id" IS NOT DISTINCT FROM $2 AND "delta" IS NOT DISTINCT FROM $3
	// FROM "account_deltas"
	// WHERE "operation_id" = $1;
	// applied <nil>
	// applied <nil>
	// duplicate <nil>
	// 1500 <nil>
}

func ExampleVersioned() {
	orders := upsert.Versioned{Table: "orders", Key: []string{"order_id"}, Version: "version", Columns: []string{"state"}}
	write, look := orders.SQL()
	fmt.Printf("%s;\n%s;\n", write, look)

	handler(`CREATE TABLE orders (order_id text PRIMARY KEY, version bigint NOT NULL, state text NOT NULL);
		INSERT INTO orders VALUES ('o-1', 7, 'placed')`,
		func(ctx context.Context, tx pgx.Tx) {
			// All three have read version 7.
			for _, state := range []string{"paid", "paid", "cancelled"} {
				fmt.Println(orders.Update(ctx, tx, upsert.Values{"order_id": "o-1", "version": 7, "state": state}))
			}
		})
	// Output:
	// UPDATE "orders"
	// SET "state" = $3, "version" = "version" + 1
	// WHERE "order_id" = $1 AND "version" = $2;
	// SELECT "version", "version" - 1 = $2 AND "state" IS NOT DISTINCT FROM $3
	// FROM "orders"
	// WHERE "order_id" = $1;
	// applied <nil>
	// duplicate <nil>
	// no result upsert: orders by order_id: the row has changed since it was read: read in version 7, now in 8
}

func ExampleNewest() {
	prices := upsert.Newest{Table: "prices", Key: []string{"sku"}, Version: "as_of", Columns: []string{"cents"}}
	write, look := prices.SQL()
	fmt.Printf("%s;\n%s;\n", write, look)

	handler(`CREATE TABLE prices (sku text PRIMARY KEY, as_of bigint NOT NULL, cents bigint NOT NULL)`,
		func(ctx context.Context, tx pgx.Tx) {
			for _, p := range []struct{ asOf, cents int }{{5, 1999}, {4, 1899}, {6, 2099}, {6, 2099}} {
				fmt.Println(prices.Put(ctx, tx, upsert.Values{"sku": "s-1", "as_of": p.asOf, "cents": p.cents}))
			}
		})
	// Output:
	// INSERT INTO "prices" AS stored ("sku", "as_of", "cents")
	// VALUES ($1, $2, $3)
	// ON CONFLICT ("sku") DO UPDATE
	// SET "as_of" = excluded."as_of", "cents" = excluded."cents"
	// WHERE stored."as_of" < excluded."as_of";
	// SELECT "as_of" > $2, "as_of" = $2 AND "cents" IS NOT DISTINCT FROM $3
	// FROM "prices"
	// WHERE "sku" = $1;
	// applied <nil>
	// stale <nil>
	// applied <nil>
	// duplicate <nil>
}

// handler runs what a message handler does, in a transaction on a database with these tables.
func handler(tables string, do func(context.Context, pgx.Tx)) {
	ctx := context.Background()
	server, err := devstack.OpenPostgres(ctx, devstack.PostgresConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = server.Close() }()
	conn, err := pgx.Connect(ctx, server.URL(""))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = conn.Close(ctx) }()
	tx, err := conn.Begin(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, tables); err != nil {
		fmt.Println(err)
		return
	}
	do(ctx, tx)
}
