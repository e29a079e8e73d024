package sqltx_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/participant/sqltx"
	"github.com/troupe-go/troupe/topics"
)

// ChargePayment is the command, PaymentCharged its answer, SendReceipt a command to another hop.
type ChargePayment struct {
	OrderID string `json:"order_id"`
	Cents   int64  `json:"cents"`
}

type PaymentCharged struct {
	OrderID string `json:"order_id"`
}

type SendReceipt struct {
	OrderID string `json:"order_id"`
}

// insertPayment is code of the service that knows database/sql only.
func insertPayment(ctx context.Context, tx *sql.Tx, order string, cents int64) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO payments (order_id, cents) VALUES ($1, $2) ON CONFLICT DO NOTHING", order, cents)
	return err
}

func Example() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	pool, end, err := database(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	// Local takes commands from the database, so that this example needs no Kafka.
	p, err := participant.New(participant.Config{Pool: pool, Hop: topics.MustHop("order", "payment"), Local: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	out := p.Outbox()
	sqltx.Handle(p, func(ctx context.Context, tx *sql.Tx, c participant.Command[ChargePayment]) (participant.Outcome, error) {
		if err := insertPayment(ctx, tx, c.Body.OrderID, c.Body.Cents); err != nil {
			return participant.Outcome{}, err
		}
		err := out.WriteSQL(ctx, tx, outbox.Entry{Topic: "order.mail.commands", Key: c.Body.OrderID, Body: SendReceipt{OrderID: c.Body.OrderID}})
		return participant.Succeed(PaymentCharged{OrderID: c.Body.OrderID}), err
	})
	serving, leave := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- p.Run(serving) }()

	_, err = pool.Exec(ctx, `INSERT INTO troupe.outbox (topic, key, type, payload)
		VALUES ('order.payment.commands', 'o-1', 'ChargePayment', '{"order_id":"o-1","cents":999}')`)
	if err != nil {
		fmt.Println(err)
	}
	for _, line := range written(ctx, pool, 2) {
		fmt.Println(line)
	}
	leave()
	fmt.Println(<-served)
	// Output:
	// order.mail.commands SendReceipt {"order_id":"o-1"}
	// order.payment.events PaymentCharged {"order_id":"o-1"}
	// <nil>
}

// database returns a pool on a database with the tables of a service and of Troupe.
func database(ctx context.Context) (pool *pgxpool.Pool, end func(), err error) {
	server, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{})
	if err != nil {
		return nil, nil, err
	}
	url, err := server.CreateDatabase(ctx, "payments", "")
	if err == nil {
		err = migrations.Up(ctx, url)
	}
	if err == nil {
		pool, err = pgxpool.New(ctx, url)
	}
	if err == nil {
		_, err = pool.Exec(ctx, "CREATE TABLE payments (order_id text PRIMARY KEY, cents bigint NOT NULL)")
	}
	return pool, func() {
		pool.Close()
		_ = server.Close()
	}, err
}

// written waits for n messages in the outbox.
func written(ctx context.Context, pool *pgxpool.Pool, n int) (lines []string) {
	for len(lines) < n && ctx.Err() == nil {
		err := pool.QueryRow(ctx, `SELECT coalesce(array_agg(topic || ' ' || type || ' ' || convert_from(payload, 'UTF8') ORDER BY topic), '{}')
			FROM troupe.outbox`).Scan(&lines)
		if err != nil {
			return []string{err.Error()}
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return lines
}
