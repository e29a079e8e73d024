package participant_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/topics"
)

// RequestApproval asks for an approval, which may never come.
type RequestApproval struct {
	OrderID string `json:"order_id"`
}

// Approve is the approval.
type Approve struct {
	OrderID string `json:"order_id"`
}

// Remind is the body of the deadline.
type Remind struct {
	OrderID string `json:"order_id"`
}

// Noted is the answer to both commands.
type Noted struct{}

// serveApprovals reports orders that were not approved in time.
func serveApprovals(ctx context.Context, pool *pgxpool.Pool, brokers []string) error {
	p, err := participant.New(participant.Config{
		Pool: pool, Brokers: brokers, Hop: topics.MustHop("order", "approval"), Log: zerolog.New(os.Stderr).Level(zerolog.WarnLevel),
	})
	if err != nil {
		return err
	}
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[RequestApproval]) (participant.Outcome, error) {
		err := p.Schedule(ctx, tx, participant.Deadline{ // its scope is the command's key: the order
			Name: "not-approved", After: time.Second, Body: Remind(c.Body),
		})
		return participant.Succeed(Noted{}), err
	})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, _ participant.Command[Approve]) (participant.Outcome, error) {
		return participant.Succeed(Noted{}), p.Cancel(ctx, tx, "not-approved", "")
	})
	participant.OnDeadline(p, "not-approved", func(ctx context.Context, tx pgx.Tx, d participant.Due[Remind]) error {
		if _, err := tx.Exec(ctx, "INSERT INTO reminders (order_id) VALUES ($1)", d.Body.OrderID); err != nil {
			return err
		}
		return participant.Queue(ctx, tx, "SELECT pg_notify('reminders', $1)", d.Body.OrderID)
	})
	return p.Run(ctx)
}

func ExampleOnDeadline() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	pool, brokers, end, err := playground(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	if _, err := pool.Exec(ctx, "CREATE TABLE reminders (order_id text PRIMARY KEY)"); err != nil {
		fmt.Println(err)
		return
	}
	heard, err := pool.Acquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer heard.Release()
	if _, err := heard.Exec(ctx, "LISTEN reminders"); err != nil {
		fmt.Println(err)
		return
	}
	relays, err := relay.New(relay.Config{Source: relay.Poll, Pool: pool, Brokers: brokers, Service: "approval"})
	if err != nil {
		fmt.Println(err)
		return
	}
	running, leave := context.WithCancel(ctx)
	defer leave()
	ended := make(chan error, 2)
	go func() { ended <- relays.Run(running) }()
	go func() { ended <- serveApprovals(running, pool, brokers) }()

	// Two requests; one is approved before its time is over.
	client, err := kafka.NewClient(brokers, kgo.UnknownTopicRetries(-1), kgo.DefaultProduceTopic("order.approval.commands"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	var commands []*kgo.Record
	for _, command := range [][2]string{{"RequestApproval", "o-1"}, {"Approve", "o-1"}, {"RequestApproval", "o-2"}} {
		r := kgo.KeyStringRecord(command[1], `{"order_id":"`+command[1]+`"}`)
		r.Headers = []kgo.RecordHeader{{Key: "ce_type", Value: []byte(command[0])}}
		commands = append(commands, r)
	}
	if err := client.ProduceSync(ctx, commands...).FirstErr(); err != nil {
		fmt.Println(err)
		return
	}
	reminder, err := heard.Conn().WaitForNotification(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("not approved in time:", reminder.Payload)
	leave()
	fmt.Println(<-ended, <-ended)
	// Output:
	// not approved in time: o-2
	// <nil> <nil>
}
