package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/flow/reactions"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// ways is the number of events that meet in a join, members the number of processes of the service.
const (
	ways    = 10
	members = 2
)

// Arrived is one of these events. Met follows from all of them.
type (
	Arrived struct{}
	Met     struct{}
)

// joining is a service that waits for ten other hops.
type joining struct {
	s            *stage
	pool         *pgxpool.Pool
	flow         string
	batch        int
	transactions atomic.Int64
	repeated     atomic.Int64
	running      *errgroup.Group
}

// join puts the events of all keys on the topics, each topic in its own order, and then runs two members of the service that
// consume them at full concurrency.
func (s *stage) join(ctx context.Context, batch int) (said string, err error) {
	s.made++
	j := &joining{s: s, flow: fmt.Sprintf("bench-%d-%d", os.Getpid(), s.made), batch: batch}
	name := strings.ReplaceAll(j.flow, "-", "_")
	url, err := s.postgres.CreateDatabase(ctx, name, "")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.postgres.DropDatabase(context.Background(), name)) }()
	if err := migrations.Up(ctx, url); err != nil {
		return "", err
	}
	if j.pool, err = pgxpool.New(ctx, url); err != nil {
		return "", err
	}
	defer j.pool.Close()
	if _, err := j.pool.Exec(ctx, "CREATE TABLE met (key text)"); err != nil {
		return "", err
	}
	if err := j.send(ctx); err != nil {
		return "", err
	}
	return j.run(ctx, url)
}

func (j *joining) hop(way int) topics.Hop { return topics.MustHop(j.flow, fmt.Sprint("way-", way)) }

func (j *joining) send(ctx context.Context) error {
	var records []*kgo.Record
	for way := range ways {
		if err := kafka.Provision(ctx, j.s.client, kafka.Topic{Name: j.hop(way).Events(), Partitions: 2}); err != nil {
			return err
		}
		for _, n := range rand.Perm(j.s.joins) {
			payload, err := json.Marshal(Arrived{})
			if err != nil {
				return err
			}
			records = append(records, kafka.Record(envelope.Message{
				Topic: j.hop(way).Events(), Key: fmt.Append(nil, "o-", n), Payload: payload, ID: envelope.NewID(), Type: "Arrived",
				Source: "bench", ContentType: envelope.JSON, Outcome: envelope.Success,
			}))
		}
	}
	return j.s.client.ProduceSync(ctx, records...).FirstErr()
}

func (j *joining) run(ctx context.Context, url string) (said string, err error) {
	ctx, stop := context.WithCancel(ctx)
	j.running, ctx = errgroup.WithContext(ctx)
	defer func() {
		stop()
		err = errors.Join(err, j.running.Wait())
	}()
	began := time.Now()
	for range members {
		if err := j.member(ctx, url); err != nil {
			return "", err
		}
	}
	for met := 0; met < j.s.joins; {
		if err := j.pool.QueryRow(ctx, "SELECT count(*) FROM met").Scan(&met); err != nil {
			return "", err
		}
		if time.Since(began) > 10*patience {
			return "", fmt.Errorf("%d of %d joins after %s", met, j.s.joins, 10*patience)
		}
		select {
		case <-ctx.Done():
			return "", j.running.Wait()
		case <-time.After(50 * time.Millisecond):
		}
	}
	took := time.Since(began)
	var rows, keys int
	if err := j.pool.QueryRow(ctx, "SELECT count(*), count(DISTINCT key) FROM met").Scan(&rows, &keys); err != nil {
		return "", err
	}
	if rows != j.s.joins || keys != rows {
		return "", fmt.Errorf("%d joins of %d keys were dispatched %d times", keys, j.s.joins, rows)
	}
	again, all := j.repeated.Load(), j.transactions.Load()
	return fmt.Sprintf("join of ten, %3d in a transaction: %d of %d transactions repeated (%.2f %%), %.0f events/s", j.batch, again, all,
		100*float64(again)/float64(all), float64(j.s.joins*ways)/took.Seconds()), nil
}

// member runs a member with connections of its own, enough for all concurrent transactions.
func (j *joining) member(ctx context.Context, url string) error {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	cfg.MaxConns = 24
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	p, err := participant.New(participant.Config{
		Pool: pool, Brokers: j.s.kafka.Addrs(), Hop: topics.MustHop(j.flow, "meet"), Partitions: 2, Batch: j.batch, Concurrency: ways,
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
		pool.Close()
		return err
	}
	met := reactions.Message{Topic: p.Hop().Events(), Type: "Met", Last: true}
	declared := reactions.Service{
		Hop: p.Hop().String(), Joins: []reactions.Join{{Name: "all", Within: "1h", Success: []reactions.Message{met}}},
	}
	for way := range ways {
		declared.Joins[0].Await = append(declared.Joins[0].Await, reactions.Message{Topic: j.hop(way).Events(), Type: "Arrived"})
	}
	f, err := flow.New(flow.Config{Participant: p, Declared: declared})
	if err != nil {
		pool.Close()
		return err
	}
	flow.OnJoin(f, "all", flow.Ends{
		Complete: func(ctx context.Context, tx pgx.Tx, of flow.Joined) (participant.Outcome, error) {
			return participant.Succeed(Met{}), participant.Queue(ctx, tx, "INSERT INTO met (key) VALUES ($1)", of.Key)
		},
	})
	j.running.Go(func() error {
		defer pool.Close()
		return p.Run(ctx)
	})
	return nil
}
