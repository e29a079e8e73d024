package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/internal/traces"
	"github.com/troupe-go/troupe/internal/version"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/telemetry"
)

func (p Program) runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Publish the outbox until stopped",
		Long: `run publishes the rows of troupe.outbox to their topics and removes them once the brokers have
acknowledged them. Any number of relays may run for one database: one publishes, the others stand by.
The file of --config may name several outboxes; one that fails does not stop the others.

On SIGTERM it takes no more rows, waits for the rows in flight and exits with 0. On SIGHUP it reads
the file and the secrets again: relays whose settings changed are restarted, and the log names
changes that need a restart of the process. A file with a mistake is refused, and nothing changes.`,
		Example: `  DATABASE_URL=postgres://shop:…@127.0.0.1:5432/shop KAFKA_BROKERS=127.0.0.1:9092 outbox-relay run
  outbox-relay run --config relay.yaml --admin 127.0.0.1:9000`,
		Args: noArguments,
	}
	settings := slices.Concat(eachSettings, []setting{adminAddress, adminToken, logLevel, otlpEndpoint})
	declare(cmd, settings...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out := &leveled{Writer: plain.Log(p.Stderr)}
		log := zerolog.New(out).With().Timestamp().Logger()
		plan, err := p.plan(cmd, log)
		if err != nil {
			return err
		}
		out.set(plan.level)
		s := &site{program: p, cmd: cmd, log: log, level: out, plan: plan, fleet: newFleet(log)}
		return s.run(cmd.Context())
	}
	return cmd
}

// httpLimit bounds the shutdown of the admin endpoints.
const httpLimit = time.Second

// A site is the running program.
type site struct {
	program Program
	cmd     *cobra.Command
	log     zerolog.Logger
	level   *leveled
	plan    plan
	fleet   *fleet
	admin   *adminHandler
}

func (s *site) run(ctx context.Context) error {
	work, stop := context.WithCancel(ctx)
	defer stop()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // until the end: a hang-up while the relays start or drain must not kill the process
	defer signal.Stop(hangup)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.plan.admin)
	if err != nil {
		return fmt.Errorf("admin: %w; choose another address with --admin", err)
	}
	traced, endTraces, err := rowTracer(ctx, s.plan.otlp, s.log)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer endTraces()
	s.fleet.traced = traced
	if err := s.fleet.apply(work, s.plan.outboxes); err != nil {
		return errors.Join(err, listener.Close())
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.fleet.latency, &relayMetrics{fleet: s.fleet})
	s.admin = newAdmin(s.fleet, registry, s.log)
	s.admin.token.follow(s.plan.tokenNow)

	endpoints := serve(listener, s.admin)
	for _, o := range s.plan.outboxes {
		o.relay.Log.Info().Stringer("admin", listener.Addr()).Strs("brokers", o.relay.Brokers).
			Str("database", o.database.ConnConfig.Database).Str("version", version.Read().Version).Msg("started")
		if o.inTheClear != "" {
			o.relay.Log.Warn().Msg(o.inTheClear + "; set kafka-tls")
		}
	}
	s.wait(ctx, work, hangup)
	stop()
	err = s.fleet.end()

	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), httpLimit)
	defer cancel()
	err = errors.Join(err, endpoints.stop(last))
	s.log.Info().Msg("stopped")
	return err
}

// rowTracer returns a hook of a relay that makes the spans of a published row; nil without an endpoint.
func rowTracer(ctx context.Context, endpoint string, log zerolog.Logger) (traced func(outbox.PublishedRow), end func(), err error) {
	if endpoint == "" {
		return nil, func() {}, nil
	}
	tracers, end, err := traces.Open(ctx, endpoint, relayProgram, log)
	if err != nil {
		return nil, nil, err
	}
	t, err := telemetry.New(telemetry.Config{Tracers: tracers})
	if err != nil {
		end()
		return nil, nil, err
	}
	return t.RowPublished, end, nil
}

// wait returns when ctx has ended, or when the only outbox has failed. It reloads at each hangup.
func (s *site) wait(ctx, work context.Context, hangup <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.fleet.failed: //nolint:errcheck // fleet.end returns the error
			return
		case <-hangup:
			s.reload(work)
		}
	}
}

// reload applies the new settings; a new admin address needs a restart. If any setting is refused, it changes nothing.
func (s *site) reload(ctx context.Context) {
	next, err := s.program.plan(s.cmd, s.log)
	if err == nil && next.token == "" && s.plan.token != "" {
		err = s.stillLoopback()
	}
	if err == nil {
		err = s.fleet.apply(ctx, next.outboxes)
	}
	if err != nil {
		s.log.Error().Err(err).Msg("reload: refused; everything stays as it was")
		return
	}
	s.stays(adminAddress, s.plan.admin, &next.admin)
	s.stays(otlpEndpoint, s.plan.otlp, &next.otlp)
	s.level.set(next.level)
	s.admin.token.follow(next.tokenNow)
	s.plan = next
	s.log.Info().Int("outboxes", len(next.outboxes)).Stringer("log_level", next.level).Msg("reload: done")
}

// stays logs that a setting which a reload would change needs a restart, and keeps its value.
func (s *site) stays(of setting, now string, next *string) {
	if *next != now {
		s.log.Warn().Str("setting", of.name).Str("stays", now).Str("asked_for", *next).
			Msg("reload: cannot change while running; restart to change it")
		*next = now
	}
}

// stillLoopback refuses to remove the token if other machines can reach the address.
func (s *site) stillLoopback() error {
	if loopback, err := isLoopback(s.plan.admin); err != nil || !loopback {
		return fmt.Errorf("%s is gone, and the admin endpoints listen on %s: want a token there", adminToken.name, s.plan.admin)
	}
	return nil
}
