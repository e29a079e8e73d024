package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/relay"
)

const (
	writers = 15
	rate    = 750 // rows a second, of all writers
	topic   = "failover.rows.events"
)

// A row is a row of a writer. The rows of a key are numbered in the order of their commits.
type row struct {
	id     uuid.UUID
	key    string
	number int64
}

// run measures one scenario: load, failover, load, and then the rows are counted.
func run(ctx context.Context, folder string, c scenario, load time.Duration) (r result, err error) {
	p, err := openPair(ctx, folder, c)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	broker, err := devstack.OpenKafka(ctx, devstack.KafkaConfig{})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	name := topic + "." + uuid.NewString()[:8]
	client, err := kafka.NewClient(broker.Addrs(), kgo.ConsumeTopics(name), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return r, err
	}
	defer client.Close()
	if err := kafka.Provision(ctx, client, kafka.Topic{Name: name, Partitions: 3}); err != nil {
		return r, err
	}
	pool, err := p.pool(ctx, 4+writers)
	if err != nil {
		return r, err
	}
	defer pool.Close()
	stop, err := startRelay(ctx, relay.Config{
		Pool: pool, Brokers: broker.Addrs(), Service: database, Source: c.source, Delivery: c.delivery, Failover: failoverOf(c), Log: zerolog.Nop(),
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, stop()) }()

	l := &loading{pool: pool, topic: name}
	writing, end := context.WithCancel(ctx)
	defer end()
	var all sync.WaitGroup
	for n := range writers {
		all.Go(func() { l.write(writing, n) })
	}
	seen := &tally{rows: make(map[uuid.UUID]int)}
	reading, endReading := context.WithCancel(ctx)
	defer endReading()
	var reader sync.WaitGroup
	reader.Go(func() { seen.read(reading, client) })
	defer reader.Wait()
	defer endReading()

	if err = harness.Until(ctx, limit, "nothing was published", func(context.Context) (bool, error) { return seen.count() > 0, nil }); err != nil {
		return r, err
	}
	after := load / 2
	if err = p.failUnderLoad(ctx, c, load, nil); err != nil {
		return r, err
	}
	promoted := time.Now()
	if c.frozen {
		if err = p.comeBack(ctx); err != nil {
			return r, err
		}
		after = load
	}
	if err = harness.Sleep(ctx, after); err != nil {
		return r, err
	}
	end()
	all.Wait()
	r, err = settle(ctx, p, seen, l)
	r.version, r.seconds = p.version, seen.firstAfter(promoted)
	return r, err
}

func failoverOf(c scenario) string {
	if c.source == relay.WAL && !c.copied {
		return "off"
	}
	return "auto"
}

// startRelay runs a relay until stop.
func startRelay(ctx context.Context, cfg relay.Config) (stop func() error, err error) {
	r, err := relay.New(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}, nil
}

// loading writes rows and counts the commits that were acknowledged.
type loading struct {
	pool      *pgxpool.Pool
	topic     string
	committed sync.Map // the ids of rows whose commit was acknowledged
	rows      atomic.Int64
}

// write inserts rows with keys of its own until ctx ends. A row whose commit was not acknowledged may be there or not: the next one
// has the next number.
func (l *loading) write(ctx context.Context, writer int) {
	tick := time.NewTicker(time.Second * writers / rate)
	defer tick.Stop()
	for number := int64(1); ; number++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		one := row{uuid.Must(uuid.NewV7()), fmt.Sprintf("%d-%d", writer, number%5), number}
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := pgx.BeginFunc(limited, l.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(limited, `WITH w AS (INSERT INTO written (id, key, number) VALUES ($1, $2, $3))
				INSERT INTO troupe.outbox (id, topic, key, type, payload) VALUES ($1, $4, $2, 'Row', $5)`,
				one.id, one.key, one.number, l.topic, []byte(strconv.FormatInt(one.number, 10)))
			return err
		})
		cancel()
		if err == nil {
			l.committed.Store(one.id, struct{}{})
			l.rows.Add(1)
		}
	}
}
