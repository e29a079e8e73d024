package participant_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// A decision for many events at once: one statement writes the rows of all of them, and each command follows from its own
// event.
func ExampleOnAll() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	pool, _, end, err := playground(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	payment, shipping := topics.MustHop("order", "payment"), topics.MustHop("order", "shipping")
	p, err := participant.New(participant.Config{Pool: pool, Hop: topics.MustHop("order", "order"), Local: true, Batch: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan error, 1)
	participant.OnAll(p, []topics.Hop{payment}, func(ctx context.Context, tx pgx.Tx, ms []participant.Taken) error {
		var paid []string
		for i, m := range ms {
			if m.Message.Type != "PaymentCharged" {
				continue
			}
			paid = append(paid, string(m.Message.Key))
			command := outbox.Entry{Topic: shipping.Commands(), Key: string(m.Message.Key), Type: "ShipOrder", Payload: m.Message.Payload}
			if err := p.Outbox().Write(m.Context(), tx, command); err != nil {
				return participant.At(i, err)
			}
		}
		return participant.Queue(ctx, tx, "INSERT INTO payments SELECT unnest($1::text[]), 0 ON CONFLICT DO NOTHING", paid)
	})

	_, err = pool.Exec(ctx, `
		SELECT troupe.make_local('order.payment.events', 'order.order');
		INSERT INTO troupe.outbox (topic, key, type, payload)
		SELECT 'order.payment.events', 'o-' || n, 'PaymentCharged', '{}' FROM generate_series(1, 3) AS n`)
	if err != nil {
		fmt.Println(err)
		return
	}
	serving, leave := context.WithCancel(ctx)
	defer leave()
	go func() { done <- p.Run(serving) }()
	fmt.Println(waitForAnswers(ctx, pool, 3))
	leave()
	fmt.Println(<-done)
	// Output:
	// [ShipOrder {} ShipOrder {} ShipOrder {}]
	// <nil>
}
