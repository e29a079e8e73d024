package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// ways is the number of events that meet in a join, members the number of processes of the service.
const (
	ways    = 10
	members = 2
)

// Met is the event that follows from all of them.
type Met struct{}

// joining is a service that waits for ten other hops.
type joining struct {
	*harness.System
	joins        int
	batch        int
	transactions atomic.Int64
	repeated     atomic.Int64
}

// join puts the events of all keys on the topics, each topic in its own order, and then runs two members of the service that
// consume them at full concurrency.
func (s *stage) join(ctx context.Context, batch int) (err error) {
	j := &joining{System: s.NewSystem(ctx), joins: s.joins, batch: batch}
	defer func() { err = errors.Join(err, j.Close()) }()
	url, err := j.Database(ctx, "")
	if err != nil {
		return err
	}
	pool, err := j.Pool(ctx, url, 0)
	if err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "CREATE TABLE met (key text)"); err != nil {
		return err
	}
	if err := j.send(ctx); err != nil {
		return err
	}
	return j.run(ctx, pool, url)
}

func (j *joining) hop(way int) topics.Hop { return topics.MustHop(j.Flow, fmt.Sprint("way-", way)) }

func (j *joining) send(ctx context.Context) error {
	var topics []string
	var order []int // of the keys, topic by topic
	for way := range ways {
		topics = append(topics, j.hop(way).Events())
		if err := kafka.Provision(ctx, j.Client, kafka.Topic{Name: topics[way], Partitions: 2}); err != nil {
			return err
		}
		order = append(order, rand.Perm(j.joins)...)
	}
	return j.Produce(ctx, len(order), func(i int) *kgo.Record {
		return kafka.Record(envelope.Message{
			Topic: topics[i/j.joins], Key: fmt.Append(nil, "o-", order[i]), Payload: []byte("{}"), ID: envelope.NewID(), Type: "Arrived",
			Source: "bench", ContentType: envelope.JSON, Outcome: envelope.Success,
		})
	})
}

func (j *joining) run(ctx context.Context, pool *pgxpool.Pool, url string) error {
	began := time.Now()
	for range members {
		if err := j.member(ctx, url); err != nil {
			return err
		}
	}
	if err := harness.UntilCount(j.Context, pool, 10*patience, "SELECT count(*) FROM met", j.joins); err != nil {
		if j.Context.Err() != nil {
			return j.Wait()
		}
		return err
	}
	took := time.Since(began)
	var rows, keys int
	if err := pool.QueryRow(ctx, "SELECT count(*), count(DISTINCT key) FROM met").Scan(&rows, &keys); err != nil {
		return err
	}
	if rows != j.joins || keys != rows {
		return fmt.Errorf("%d joins of %d keys were dispatched %d times", keys, j.joins, rows)
	}
	again, all := j.repeated.Load(), j.transactions.Load()
	fmt.Printf("join of ten, %3d in a transaction: %d of %d transactions repeated (%.2f %%), %.0f events/s\n", j.batch, again, all,
		100*float64(again)/float64(all), float64(j.joins*ways)/took.Seconds())
	return nil
}

// member runs a member with connections of its own, enough for all concurrent transactions.
func (j *joining) member(ctx context.Context, url string) error {
	pool, err := j.Pool(ctx, url, 24)
	if err != nil {
		return err
	}
	p, err := participant.New(participant.Config{
		Pool: pool, Brokers: j.Kafka.Addrs(), Hop: topics.MustHop(j.Flow, "meet"), Partitions: 2, Batch: j.batch, Concurrency: ways,
		Hooks: participant.Hooks{Transaction: func(ctx context.Context, _ []participant.Delivery) (context.Context, func(error)) {
			return ctx, func(err error) {
				j.transactions.Add(1)
				if err != nil && ctx.Err() == nil {
					j.repeated.Add(1)
				}
			}
		}},
	})
	if err != nil {
		return err
	}
	met := flow.Message{Topic: p.Hop().Events(), Type: "Met", Last: true}
	declared := flow.Declaration{
		Hop: p.Hop().String(), Joins: []flow.Join{{Name: "all", Within: "1h", Success: []flow.Message{met}}},
	}
	for way := range ways {
		declared.Joins[0].Await = append(declared.Joins[0].Await, flow.Message{Topic: j.hop(way).Events(), Type: "Arrived"})
	}
	f, err := flow.New(flow.Config{Participant: p, Declared: declared})
	if err != nil {
		return err
	}
	flow.OnJoin(f, "all", flow.Ends{
		Complete: func(ctx context.Context, tx pgx.Tx, of flow.Joined) (participant.Outcome, error) {
			return participant.Succeed(Met{}), participant.Queue(ctx, tx, "INSERT INTO met (key) VALUES ($1)", of.Key)
		},
	})
	j.Go(p.Run)
	return nil
}
