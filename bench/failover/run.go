package main

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/bench/workload"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/relay"
)

const topic = "failover.rows.events"

// with runs a scenario on a pair and a broker of its own: load, failover, load.
func with(ctx context.Context, folder string, c scenario, load time.Duration, connections int32, do func(workload.Run) error) (version string, err error) {
	p, err := openPair(ctx, folder, c)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	broker, err := devstack.OpenKafka(ctx, devstack.KafkaConfig{})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	pool, err := p.pool(ctx, connections)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	failover := "auto"
	if c.source == relay.WAL && !c.copied {
		failover = "off"
	}
	after := load / 2
	if c.frozen {
		after = load
	}
	return p.version, do(workload.Run{
		Relay: relay.Config{
			Pool: pool, Brokers: broker.Addrs(), Service: database, Source: c.source, Delivery: c.delivery, Failover: failover, Log: zerolog.Nop(),
		},
		URL:   func() string { return p.b.URL(database) },
		After: after,
		Fail: func(ctx context.Context, s *workload.Services) (promoted time.Time, err error) {
			err = p.failUnderLoad(ctx, c, load, func(ctx context.Context) error {
				if s == nil {
					return nil
				}
				return s.CountGone(ctx, p.b.URL(database))
			})
			promoted = time.Now()
			if err == nil && c.frozen {
				err = p.comeBack(ctx)
			}
			return promoted, err
		},
	})
}

// run measures one scenario with rows.
func run(ctx context.Context, folder string, c scenario, load time.Duration) (r workload.Result, version string, err error) {
	version, err = with(ctx, folder, c, load, 4+workload.Writers, func(run workload.Run) (err error) {
		name := topic + "." + uuid.NewString()[:8]
		client, err := kgo.NewClient(kgo.SeedBrokers(run.Relay.Brokers...))
		if err != nil {
			return err
		}
		defer client.Close()
		if err = kafka.Provision(ctx, client, kafka.Topic{Name: name, Partitions: 3}); err != nil {
			return err
		}
		r, err = run.Rows(ctx, name)
		return err
	})
	return r, version, err
}

// runServices measures one scenario with commands and sagas.
func runServices(ctx context.Context, folder string, c scenario, load time.Duration) (commands, sagas workload.Result, version string, err error) {
	version, err = with(ctx, folder, c, load, workload.Connections, func(run workload.Run) (err error) {
		commands, sagas, err = run.Services(ctx, "failover", false)
		return err
	})
	return commands, sagas, version, err
}
