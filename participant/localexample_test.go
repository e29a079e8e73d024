package participant_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// The same handlers on a hop that shares its database with the senders of its commands: no Kafka, no relay.
func ExampleConfig_local() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	pool, _, end, err := playground(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	p, err := participant.New(participant.Config{Pool: pool, Hop: topics.MustHop("order", "payment"), Local: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[ChargePayment]) (participant.Outcome, error) {
		_, err := tx.Exec(ctx, "INSERT INTO payments (order_id, cents) VALUES ($1, $2) ON CONFLICT DO NOTHING", c.Body.OrderID, c.Body.Cents)
		return participant.Succeed(PaymentCharged{OrderID: c.Body.OrderID}), err
	})

	// The row is written before the participant ever ran, and in plain SQL: the participant finds it nevertheless.
	_, err = pool.Exec(ctx, `
		INSERT INTO troupe.outbox (topic, key, type, payload)
		VALUES ('order.payment.commands', 'o-1', 'ChargePayment', '{"order_id":"o-1","cents":999}')`)
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error, 1)
	serving, leave := context.WithCancel(ctx)
	defer leave()
	go func() { served <- p.Run(serving) }()

	answers := func() (rows []string) {
		for ctx.Err() == nil {
			found, _ := pool.Query(ctx, "SELECT type || ' ' || convert_from(payload, 'UTF8') FROM troupe.outbox WHERE topic = 'order.payment.events'")
			if rows, _ = pgx.CollectRows(found, pgx.RowTo[string]); len(rows) > 0 {
				return rows
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
		return rows
	}
	fmt.Println(answers())
	var status string
	var attempts int
	err = pool.QueryRow(ctx, "SELECT status, attempts FROM troupe.local_work").Scan(&status, &attempts)
	fmt.Println(status, attempts, err)
	leave()
	fmt.Println(<-served)
	// Output:
	// [PaymentCharged {"order_id":"o-1"}]
	// done 0 <nil>
	// <nil>
}
