package participant_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// ChargePayment is the command of the payment hop; the other two are its answers.
type ChargePayment struct {
	OrderID string `json:"order_id"`
	Cents   int64  `json:"cents"`
}

type PaymentCharged struct {
	OrderID string `json:"order_id"`
}

type PaymentRefused struct {
	Reason string `json:"reason"`
}

// servePayments is a whole service: its rows, its answer, its failures.
func servePayments(ctx context.Context, pool *pgxpool.Pool, brokers []string) error {
	p, err := participant.New(participant.Config{
		Pool: pool, Brokers: brokers, Hop: topics.MustHop("order", "payment"), Log: zerolog.New(os.Stderr).Level(zerolog.WarnLevel),
	})
	if err != nil {
		return err
	}
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[ChargePayment]) (participant.Outcome, error) {
		if c.Body.Cents > 100_00 {
			return participant.Refuse(PaymentRefused{Reason: "credit limit"}), nil // a failure event; not retried
		}
		_, err := tx.Exec(ctx, "INSERT INTO payments (order_id, cents) VALUES ($1, $2) ON CONFLICT DO NOTHING", c.Body.OrderID, c.Body.Cents)
		return participant.Succeed(PaymentCharged{OrderID: c.Body.OrderID}), err // a success event, in the same transaction
	})
	return p.Run(ctx)
}

func Example() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	pool, brokers, end, err := playground(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	served := make(chan error, 1)
	serving, leave := context.WithCancel(ctx)
	defer leave()
	go func() { served <- servePayments(serving, pool, brokers) }()

	// Two commands, as the order service's relay would publish them.
	client, err := kafka.NewClient(brokers, kgo.UnknownTopicRetries(-1), kgo.DefaultProduceTopic("order.payment.commands"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	for i, cents := range []int{9_99, 250_00} {
		r := kgo.KeySliceRecord(fmt.Appendf(nil, "o-%d", i+1), fmt.Appendf(nil, `{"order_id":"o-%d","cents":%d}`, i+1, cents))
		r.Headers = []kgo.RecordHeader{{Key: "ce_id", Value: fmt.Appendf(nil, "charge-%d", i+1)}, {Key: "ce_type", Value: []byte("ChargePayment")}}
		if err := client.ProduceSync(ctx, r).FirstErr(); err != nil {
			fmt.Println(err)
			return
		}
	}

	// The answers wait in the outbox for this service's own relay.
	rows := waitForAnswers(ctx, pool, 2)
	fmt.Println(rows)
	leave()
	fmt.Println(<-served)
	// Output:
	// [PaymentCharged {"order_id":"o-1"} PaymentRefused {"reason":"credit limit"}]
	// <nil>
}

// playground is a database with Troupe's tables and a broker.
func playground(ctx context.Context) (pool *pgxpool.Pool, brokers []string, end func(), err error) {
	db, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{})
	if err != nil {
		return nil, nil, nil, err
	}
	broker, err := devstack.StartKafka(ctx, devstack.KafkaConfig{Partitions: 1})
	if err != nil {
		return nil, nil, nil, errors.Join(err, db.Close())
	}
	url, err := db.CreateDatabase(ctx, "payments", "")
	if err == nil {
		err = migrations.Up(ctx, url)
	}
	if err == nil {
		pool, err = pgxpool.New(ctx, url)
	}
	if err == nil {
		_, err = pool.Exec(ctx, "CREATE TABLE payments (order_id text PRIMARY KEY, cents bigint NOT NULL)")
	}
	return pool, broker.Addrs(), func() {
		pool.Close()
		_ = errors.Join(broker.Close(), db.Close())
	}, err
}

func waitForAnswers(ctx context.Context, pool *pgxpool.Pool, n int) (answers []string) {
	for len(answers) < n && ctx.Err() == nil {
		rows, _ := pool.Query(ctx, "SELECT type || ' ' || convert_from(payload, 'UTF8') FROM troupe.outbox ORDER BY key")
		answers, _ = pgx.CollectRows(rows, pgx.RowTo[string])
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return answers
}

type OrderShipped struct {
	OrderID string `json:"order_id"`
}

// What another hop has said is reacted to as a command is handled; the answer is an event of this hop, for the next to hear.
func ExampleReact() {
	_ = func(p *participant.Participant, payment topics.Hop) {
		participant.React(p, payment, func(ctx context.Context, tx pgx.Tx, e participant.Event[PaymentCharged]) (participant.Outcome, error) {
			_, err := tx.Exec(ctx, "INSERT INTO shipments (order_id) VALUES ($1)", e.Body.OrderID)
			return participant.Succeed(OrderShipped{OrderID: e.Body.OrderID}), err
		})
	}
	// Output:
}
