package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/bench/workload"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/relay"
)

const template = "brokers_template"

// A stage holds the nodes and Postgres.
type stage struct {
	options
	cluster  *cluster
	postgres *devstack.Postgres
	sweep    func() error
	made     int // number of cases

	kafkaVersion, postgresVersion string
}

func openStage(ctx context.Context, o options) (s *stage, err error) {
	s = &stage{options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	dir, err := os.MkdirTemp("", "troupe-brokers-")
	if err != nil {
		return s, err
	}
	checkout, err := harness.Checkout(ctx)
	if err != nil {
		return s, err
	}
	script := harness.ApacheKafka(checkout)
	if s.sweep, err = harness.Sweep(dir, script); err != nil {
		return s, err
	}
	settings := map[string]string{"shared_buffers": "128MB", "wal_level": "logical"}
	if s.postgres, err = devstack.OpenPostgres(ctx, devstack.PostgresConfig{Settings: settings}); err != nil {
		return s, err
	}
	if s.postgresVersion, err = harness.Query[string](ctx, s.postgres.URL(""), "SELECT split_part(current_setting('server_version'), ' ', 1)"); err != nil {
		return s, err
	}
	url, err := s.postgres.CreateDatabase(ctx, template, "")
	if err != nil {
		return s, err
	}
	if err = migrations.Up(ctx, url); err != nil {
		return s, err
	}
	if err = harness.Execute(ctx, url, workload.RowsTable, workload.EffectsTable); err != nil {
		return s, err
	}
	if s.port == 0 {
		if s.port, err = harness.FreePorts(6); err != nil {
			return s, err
		}
	}
	if s.cluster, err = openCluster(ctx, script, filepath.Join(dir, "kafka"), s.port, s.session); err != nil {
		return s, err
	}
	version, err := os.ReadFile(filepath.Join(dir, "kafka", "version"))
	s.kafkaVersion = strings.TrimSpace(string(version))
	return s, err
}

func (s *stage) close() (err error) {
	if s.cluster != nil {
		s.cluster.client.Close()
	}
	if s.sweep != nil {
		err = s.sweep()
	}
	if s.postgres != nil {
		err = errors.Join(err, s.postgres.DropDatabase(context.Background(), template), s.postgres.Close())
	}
	return err
}

// with runs a case on whole brokers and in a database of its own.
func (s *stage) with(ctx context.Context, c scenario, topic string, connections int, do func(workload.Run) error) (err error) {
	if err := s.cluster.untilWhole(ctx); err != nil {
		return err
	}
	s.made++
	name := "brokers_" + strconv.Itoa(s.made)
	url, err := s.postgres.CreateDatabase(ctx, name, template)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.postgres.DropDatabase(context.WithoutCancel(ctx), name)) }()
	pool, err := harness.OpenPool(ctx, url, connections)
	if err != nil {
		return err
	}
	defer func() {
		pool.Close()
		err = errors.Join(err, s.cluster.removeTopics(context.WithoutCancel(ctx)))
	}()
	load := time.Duration(s.seconds) * time.Second
	return do(workload.Run{
		Relay: relay.Config{Pool: pool, Brokers: s.cluster.addrs, Service: name, Source: c.source, Delivery: c.delivery, Log: zerolog.Nop()},
		URL:   func() string { return url },
		After: load,
		Fail: func(ctx context.Context, services *workload.Services) (began time.Time, err error) {
			if err := harness.Sleep(ctx, load); err != nil {
				return began, err
			}
			of := topic
			if services != nil {
				of = services.Commands()
			}
			began = time.Now()
			return began, c.failure.happen(ctx, s, of)
		},
	})
}

func (s *stage) rows(ctx context.Context, c scenario) (r workload.Result, err error) {
	topic := "brokers.rows-" + strconv.Itoa(s.made) + ".events"
	err = s.with(ctx, c, topic, 4+workload.Writers, func(run workload.Run) (err error) {
		if err := s.cluster.provision(ctx, topic, c.failure.replicas, s.unclean); err != nil {
			return err
		}
		r, err = run.Rows(ctx, topic)
		return err
	})
	return r, err
}

func (s *stage) services(ctx context.Context, c scenario) (commands, sagas workload.Result, err error) {
	err = s.with(ctx, c, "", workload.Connections, func(run workload.Run) (err error) {
		commands, sagas, err = run.Services(ctx, "brokers", true)
		return err
	})
	return commands, sagas, err
}
