package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx; with lib/pq it is postgres

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/outbox"
)

// place writes an order and the command that follows from it, in one transaction.
func place(ctx context.Context, db *sql.DB, out *outbox.Outbox, id string, cents int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, cents) VALUES ($1, $2)", id, cents); err != nil {
		return err
	}
	if err := out.WriteSQL(ctx, tx, outbox.Entry{
		Topic: "order.payment.commands", Key: id, Body: ChargePayment{OrderID: id, Cents: cents},
	}); err != nil {
		return err
	}
	return tx.Commit()
}

func ExampleOutbox_WriteSQL() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	db, end, err := orders(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	out, err := outbox.New(outbox.Config{Source: "order"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(place(ctx, db, out, "o-1", 9_99))
	fmt.Println(place(ctx, db, out, "o-2", -1) != nil) // a constraint of the table: neither order nor command

	var key, payload string
	err = db.QueryRowContext(ctx, "SELECT key, convert_from(payload, 'UTF8') FROM troupe.outbox").Scan(&key, &payload)
	fmt.Println(key, payload, err)
	// Output:
	// <nil>
	// true
	// o-1 {"order_id":"o-1","cents":999} <nil>
}

// orders returns a database with the tables of a service and of Troupe.
func orders(ctx context.Context) (db *sql.DB, end func(), err error) {
	server, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{})
	if err != nil {
		return nil, nil, err
	}
	url, err := server.CreateDatabase(ctx, "orders", "")
	if err == nil {
		err = migrations.Up(ctx, url)
	}
	if err == nil {
		db, err = sql.Open("pgx", url)
	}
	if err == nil {
		_, err = db.ExecContext(ctx, "CREATE TABLE orders (id text PRIMARY KEY, cents bigint NOT NULL CHECK (cents > 0))")
	}
	return db, func() { _ = errors.Join(db.Close(), server.Close()) }, err
}
