package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/alert"
	"github.com/troupe-go/troupe/internal/ambassador"
	"github.com/troupe-go/troupe/internal/formats"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/internal/version"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/schemas"
)

// Ambassador runs the program troupe ambassador and returns its exit status, as Main does.
func (p Program) Ambassador(ctx context.Context) int {
	if p.Environ == nil {
		p.Environ = os.Environ()
	}
	return p.execute(ctx, p.ambassadorRoot())
}

func (p Program) ambassadorRoot() *cobra.Command {
	root := &cobra.Command{
		Use: "ambassador", Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "troupe ambassador"},
		Short: "Connect a service that speaks only HTTP",
		Long: `troupe ambassador consumes the commands of a hop and posts them to a service: as CloudEvents over HTTP,
or plain. The service's response becomes the success or the failure event. A request that the service
cannot serve now is repeated, with the same Idempotency-Key. With --outbox the ambassador accepts POST
/outbox from a service without a database, and writes to its own outbox.

With --sagas it coordinates sagas: the service starts them by POST /sagas/{saga}/{key}, and may wait for
their end.

It has a database of its own, with inbox and outbox; run a relay for this database. Settings come from
flags, else from the environment, else from the file of --config; the commands are in the file. On
SIGTERM it stops fetching, waits for the requests in flight and exits with 0. On SIGHUP it reads the
address of the schema registry and the URL of the webhook again; if one of them cannot be used, nothing
changes.`,
		Example: `  troupe ambassador --config ambassador.yaml
  troupe ambassador schema > ambassador.schema.json
  troupe ambassador healthcheck --admin 127.0.0.1:8088`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArguments,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(misusedFlag)
	declare(root, ambassadorSettings...)
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		out := &leveled{Writer: plain.Log(p.Stderr)}
		log := zerolog.New(out).With().Timestamp().Logger()
		plan, err := p.ambassadorPlan(cmd, log)
		if err != nil {
			return err
		}
		out.set(plan.level)
		plan.again = func() (values, error) { return p.ambassadorAddresses(cmd) }
		return plan.run(cmd.Context())
	}
	root.AddCommand(p.ambassadorSchema(), p.ambassadorHealth())
	return root
}

func (p Program) ambassadorSchema() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of the file of --config", Args: noArguments,
		RunE: func(*cobra.Command, []string) error { return printJSON(p.Stdout, ambassadorFileSchema()) },
	}
}

func ambassadorFileSchema() object {
	top := properties(ambassadorSettings)
	text := object{"type": "string", "minLength": 1}
	described := func(what string) object { return object{"type": "string", "minLength": 1, "description": what} }
	top[commandsKey] = object{
		"type": "array", "minItems": 1, "maxItems": mostCommands, "description": "the commands that are consumed, by their type",
		"items": object{
			"type": "object", "required": []string{"type"}, "additionalProperties": false,
			"dependentRequired": object{"next-topic": []string{"next-type"}, "next-type": []string{"next-topic"}},
			"if":                object{"required": []string{"type"}, "properties": object{"type": object{"const": (ambassador.Call{}).MessageType()}}},
			"then":              object{"maxProperties": 1},
			"properties": object{
				"type":       described("ce_type of the command; troupe.Call: the ambassador makes the HTTP request that a saga's step names; no other key is allowed"),
				"path":       object{"type": "string", "pattern": "^/", "default": "/", "description": "where it is posted"},
				"success":    described("ce_type of the success event; default: the type with Done behind it"),
				"failure":    described("ce_type of the failure event; default: the type with Refused behind it"),
				"next-topic": described("where a command goes when this one is done, with the success event's body"),
				"next-type":  text,
			},
		},
	}
	return object{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "troupe ambassador --config",
		"type": "object", "additionalProperties": false, "properties": top,
		"anyOf": []object{{"required": []string{commandsKey}}, {"required": []string{sagaFiles.name}}},
	}
}

func (p Program) ambassadorHealth() *cobra.Command {
	cmd := &cobra.Command{Use: "healthcheck", Short: "Check whether a running ambassador is ready", Args: noArguments}
	settings := settingsOfProgram(ambassadorProgram, beside, besideToken)
	declare(cmd, settings...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		l, err := p.loadFile(cmd, ambassadorProgram, ambassadorSettings)
		if err != nil {
			return err
		}
		v, err := l.process(settings...)
		if err != nil {
			return err
		}
		address, err := v.address(beside)
		if err != nil {
			return err
		}
		return ask(cmd.Context(), address, v.text[besideToken.name])
	}
	return cmd
}

// run works until ctx ends, and then finishes the work in progress.
func (a *ambassadorPlan) run(ctx context.Context) (err error) {
	log := a.participant.Log
	pool, err := pgxpool.NewWithConfig(ctx, a.database) // connects to nothing yet
	if err != nil {
		return usageError{err}
	}
	defer pool.Close()
	t, page, err := a.parts.Metrics(a.participant.Hop.Name())
	if err != nil {
		return err
	}
	door := &ambassadorDoor{metrics: page}
	door.token.follow(a.adminTokenNow)
	door.waitsFor(errors.New("starting: the database has not answered yet"))

	group, running := errgroup.WithContext(ctx)
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	group.Go(func() error { a.follow(running, hangup); return nil })
	addresses, err := a.listen(running, group, pool, door)
	if err != nil {
		return err
	}
	group.Go(func() error {
		if err := a.begin(running, door); err != nil {
			return err
		}
		a.participant.Pool = pool
		alerts, err := a.tellOfDead()
		if err != nil {
			return err
		}
		if alerts != nil {
			defer func() {
				if err := alerts.Close(); err != nil {
					log.Error().Err(err).Msg("ended")
				}
			}()
		}
		p, err := participant.New(t.Instrument(a.participant))
		if err != nil {
			return usageError{err}
		}
		if err := t.Observe(p); err != nil {
			return err
		}
		if len(a.routes) > 0 {
			beside, err := ambassador.New(a.service)
			if err != nil {
				return usageError{err}
			}
			if err := beside.Post(p, a.routes...); err != nil {
				return usageError{err}
			}
		}
		if a.definitions > 0 {
			c := ambassador.Coordination{
				Participant: p, Pool: a.participant.Pool, Schemas: a.service.Schemas, Alerts: alerts, Source: a.alert.Source, Log: a.participant.Log,
			}
			if err := a.parts.Coordinate(running, c); err != nil {
				return err
			}
		}
		door.ready.Store(&readiness{p.Ready})
		return p.Run(running)
	})
	log.Info().Fields(addresses).Strs("brokers", a.participant.Brokers).Str("service", a.service.BaseURL).
		Str("database", a.database.ConnConfig.Database).Int("commands", len(a.routes)).Int("sagas", a.definitions).
		Str("version", version.Read().Version).Msg("started")
	if a.inTheClear != "" {
		log.Warn().Msg(a.inTheClear + "; set kafka-tls")
	}
	err = group.Wait()
	log.Info().Msg("stopped")
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// listen opens the listeners of the endpoints, before the database has answered. addresses has the address of each by the name of
// its setting: a port 0 is replaced by the port in use.
func (a *ambassadorPlan) listen(
	ctx context.Context, group *errgroup.Group, pool *pgxpool.Pool, door *ambassadorDoor,
) (addresses map[string]any, err error) {
	addresses = make(map[string]any)
	open := func(setting, address string, h http.Handler) error {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("%s: %w; choose another address with --%s", setting, err, setting)
		}
		addresses[setting] = l.Addr().String()
		e := serve(l, h)
		group.Go(func() error {
			<-ctx.Done()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), httpLimit)
			defer cancel()
			return e.stop(last)
		})
		return nil
	}
	if err := open(beside.name, a.admin, door.handler()); err != nil {
		return nil, err
	}
	if a.outbox == "" {
		return addresses, nil
	}
	takes, err := ambassador.NewOutbox(ambassador.OutboxConfig{
		Pool: pool, Source: a.participant.Source, Topics: a.topics, Token: a.outboxToken, Log: a.participant.Log,
	})
	if err != nil {
		return nil, usageError{err}
	}
	posted := a.entrance(takes)
	mux := http.NewServeMux()
	mux.Handle("POST /outbox", posted)
	if a.definitions > 0 {
		if err := a.serveSagas(ctx, pool, mux); err != nil {
			return nil, usageError{err}
		}
	}
	group.Go(func() error { a.forget(ctx, takes); return nil })
	return addresses, open(posts.name, a.outbox, mux)
}

// entrance wraps an endpoint at the address of POST /outbox. Without a token, only requests from this machine are answered. If
// the token is in a file, the file's current token is checked.
func (a *ambassadorPlan) entrance(next http.Handler) http.Handler {
	switch {
	case a.outboxToken == "":
		return here(next)
	case a.outboxTokenNow.path == "":
		return next
	}
	token := &followed{}
	token.follow(a.outboxTokenNow)
	return token.admits(next, a.outboxToken)
}

// forgetEvery is the interval between deletions of ids that are older than the configured retention.
const forgetEvery = 10 * time.Minute

func (a *ambassadorPlan) forget(ctx context.Context, from *ambassador.Outbox) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(forgetEvery):
		}
		if _, err := from.Forget(ctx, a.remember); err != nil && ctx.Err() == nil {
			a.participant.Log.Warn().Err(err).Msg("POST /outbox: old ids are not forgotten; tried again")
		}
	}
}

// begin waits until the database and the registry answer, and refuses a database whose migrations are pending.
func (a *ambassadorPlan) begin(ctx context.Context, door *ambassadorDoor) error {
	err := a.await(ctx, door, "the database", func(ctx context.Context) error {
		config, err := pg.ConnConfig(ctx, a.database) // before the time limit: a command may take longer than a connection
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, askLimit)
		defer cancel()
		if a.migrate {
			return migrations.UpConfig(ctx, config)
		}
		s, err := migrations.GetConfig(ctx, config)
		if err == nil && s.Pending() {
			return retry.Permanent(fmt.Errorf("version %d of %d: run outbox-relay migrate, or set migrate", s.Current, s.Latest))
		}
		return err
	})
	if err != nil || a.registry == nil {
		return err
	}
	return a.await(ctx, door, "the schema registry", func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, askLimit)
		defer cancel()
		a.service.Schemas, err = schemas.New(ctx, schemas.Config{Registry: a.registry, Formats: formats.All(), ReadOnly: true})
		return err
	})
}

func (a *ambassadorPlan) await(ctx context.Context, door *ambassadorDoor, what string, try func(context.Context) error) error {
	backoff := retry.Policy{Initial: 100 * time.Millisecond, Cap: 2 * time.Second}
	for failures := 1; ; failures++ {
		err := try(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			return nil
		case retry.IsPermanent(err):
			return fmt.Errorf("%s: %w", what, err)
		}
		door.waitsFor(fmt.Errorf("starting: %s: %w", what, err))
		if failures == 1 {
			a.participant.Log.Warn().Err(err).Msg(what + ": failed, trying on")
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Wait(failures)):
		}
	}
}

// tellOfDead adds the hook that notifies a webhook of dead letters. It returns nil if no webhook is configured.
func (a *ambassadorPlan) tellOfDead() (*alert.Notifier, error) {
	a.reloads.Lock()
	defer a.reloads.Unlock()
	if a.alert.URL == "" {
		return nil, nil
	}
	alerts, err := alert.New(a.alert)
	if err != nil {
		return nil, err
	}
	a.alerts = alerts
	a.participant.Hooks.AfterCommit = func(d participant.Delivery) {
		if d.Outcome == envelope.Exhausted {
			alerts.Notify(alert.Incident{
				Kind: "dead letter", Class: string(d.Class), Where: d.Handler, Subject: a.alert.Source,
				Key: string(d.Message.Key), ID: d.Message.ID, Text: d.Err.Error(),
			})
		}
	}
	return alerts, nil
}

// An ambassadorDoor serves the ambassador's admin endpoints. They only read.
type ambassadorDoor struct {
	guard
	metrics http.Handler
	ready   atomic.Pointer[readiness]
}

type readiness struct{ check func() error }

func (d *ambassadorDoor) waitsFor(err error) {
	d.ready.Store(&readiness{func() error { return err }})
}

func (d *ambassadorDoor) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, health{OK: true}) })
	mux.HandleFunc("GET /metrics", d.reads(d.metrics.ServeHTTP))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		code, h := http.StatusOK, health{OK: true}
		if err := d.ready.Load().check(); err != nil {
			code, h = http.StatusServiceUnavailable, health{Reason: err.Error()}
		}
		if may, _ := d.mayRead(r); !may {
			h.Reason = ""
		}
		answer(w, code, h)
	})
	return mux
}
