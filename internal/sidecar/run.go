package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/alert"
	"github.com/troupe-go/troupe/relay"
)

func (p Program) runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Publish the outbox until stopped",
		Long: `run publishes the rows of troupe.outbox to their topics and removes them once the brokers have
acknowledged them. Any number may run for one database: one publishes, the others stand by.

On SIGTERM it takes no more rows, waits for what is in flight and exits with 0.`,
		Example: `  DATABASE_URL=postgres://shop:…@127.0.0.1:5432/shop KAFKA_BROKERS=127.0.0.1:9092 outbox-relay run
  outbox-relay run --config relay.yaml --admin 127.0.0.1:9000`,
		Args: noArguments,
	}
	settings := []setting{databaseURL, brokers, service, source, delivery, admin, batch, interval, lease, drain, alertURL, logLevel}
	declare(cmd, settings...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v, err := p.read(cmd, settings...)
		if err != nil {
			return err
		}
		plan, err := p.plan(v)
		if err != nil {
			return err
		}
		return p.run(cmd.Context(), plan)
	}
	return cmd
}

// A plan is what run needs, checked.
type plan struct {
	database *pgxpool.Config
	relay    relay.Config
	alert    alert.Config
	admin    string
	log      zerolog.Logger
}

func (p Program) plan(v values) (plan, error) {
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	var out plan
	var err error
	out.database, err = v.database()
	keep(err)
	out.relay.Brokers, err = v.brokerList()
	keep(err)
	keep(v.offered())
	out.admin, err = v.address(admin)
	keep(err)
	out.relay.Batch, err = v.number(batch, 1, 10_000)
	keep(err)
	out.relay.Interval, err = v.duration(interval)
	keep(err)
	out.relay.Lease, err = v.duration(lease)
	keep(err)
	out.relay.Drain, err = v.duration(drain)
	keep(err)
	level, err := v.level()
	keep(err)
	if first != nil {
		return plan{}, first
	}
	if p.Dial != nil {
		out.database.ConnConfig.DialFunc = p.Dial
	}
	out.relay.Service = v.text[service.name]
	if out.relay.Service == "" {
		out.relay.Service = out.database.ConnConfig.Database
	}
	if out.relay.Service == "" {
		return plan{}, v.required(service, "a name, since the database's name is not in "+databaseURL.name)
	}
	out.relay.Source = relay.Poll
	out.relay.Kafka = p.Kafka
	out.log = zerolog.New(p.Stderr).Level(level).With().Timestamp().Str("service", out.relay.Service).Logger()
	out.relay.Log = out.log
	out.alert = alert.Config{URL: v.text[alertURL.name], Source: out.relay.Service, Drain: 2 * time.Second, Log: out.log}
	if err := out.alert.Validate(); err != nil { // the value itself is a secret
		return plan{}, usagef("%s (from %s): %w", alertURL.name, v.from[alertURL.name], err)
	}
	return out, nil
}

// offered refuses what is planned for and not there yet.
func (v values) offered() error {
	switch v.text[source.name] {
	case "auto", "poll":
	case "wal":
		return usagef("source (from %s): wal is not available in this version: use auto or poll, which need no wal_level",
			v.from[source.name])
	default:
		return v.bad(source, "auto or poll")
	}
	switch v.text[delivery.name] {
	case "at-least-once":
		return nil
	case "exactly-once":
		return usagef("delivery (from %s): exactly-once needs the wal source, which is not available in this version: use "+
			"at-least-once, where a repeat carries the same ce_id", v.from[delivery.name])
	}
	return v.bad(delivery, "at-least-once")
}

// httpLimit bounds the end of the admin endpoints.
const httpLimit = time.Second

func (p Program) run(ctx context.Context, plan plan) error {
	pool, err := pgxpool.NewWithConfig(ctx, plan.database) // connects to nothing yet
	if err != nil {
		return usageError{err}
	}
	defer pool.Close()
	registry := prometheus.NewRegistry()
	latency := publishLatency()
	plan.relay.Pool = pool
	plan.relay.Hooks.Acked = func(rows int, took time.Duration) {
		for range rows {
			latency.Observe(took.Seconds())
		}
	}
	alerts, err := plan.tellOfParked()
	if err != nil {
		return usageError{err}
	}
	defer plan.endAlerts(alerts)
	r, err := relay.New(plan.relay)
	if err != nil {
		return usageError{err}
	}
	stats := &statistics{pool: pool}
	registry.MustRegister(latency, &relayMetrics{relay: r, stats: stats, alerts: alerts})

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", plan.admin)
	if err != nil {
		return fmt.Errorf("admin: %w; choose another address with --admin", err)
	}
	endpoints := serve(listener, newAdmin(r, stats, registry))
	plan.log.Info().Stringer("admin", listener.Addr()).Strs("brokers", plan.relay.Brokers).
		Str("database", plan.database.ConnConfig.Database).Msg("started")

	err = r.Run(ctx)

	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), httpLimit)
	defer cancel()
	err = errors.Join(err, endpoints.stop(last))
	plan.log.Info().Msg("stopped")
	return err
}
