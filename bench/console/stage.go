package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/console"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/saga"
)

//go:embed sql/*.sql
var statements embed.FS

// A stage is a server with full databases, and a console over it.
type stage struct {
	sizes
	*harness.System
	pools   map[string]*pgxpool.Pool // by service
	console *console.Console
	server  *httptest.Server
}

func open(ctx context.Context, size sizes) (s *stage, err error) {
	servers := &harness.Servers{}
	s = &stage{sizes: size, System: servers.NewSystem(ctx), pools: make(map[string]*pgxpool.Pool)}
	settings := map[string]string{"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min"}
	if servers.Postgres, err = devstack.OpenPostgres(ctx, devstack.PostgresConfig{Settings: settings}); err != nil {
		return s, err
	}
	if s.Version, err = harness.Query[string](ctx, s.Postgres.URL(""), "SELECT current_setting('server_version')"); err != nil {
		return s, err
	}
	var databases []console.Database
	for _, name := range []string{"order", "payment", "inventory", "shipping", "watch"} {
		url, err := s.Database(ctx, "_"+name)
		if err != nil {
			return s, fmt.Errorf("database %s: %w", name, err)
		}
		if s.pools[name], err = s.Pool(ctx, url, 0); err != nil {
			return s, fmt.Errorf("database %s: %w", name, err)
		}
		if name != "watch" {
			databases = append(databases, console.Database{Name: name, Pool: s.pools[name]})
		}
	}
	if err := s.fill(ctx); err != nil {
		return s, err
	}
	s.console, err = console.New(ctx, console.Config{Databases: databases, Watch: s.pools["watch"], Token: "a token of some length", Log: zerolog.Nop()})
	if err != nil {
		return s, err
	}
	s.server = httptest.NewServer(s.console)
	return s, nil
}

func (s *stage) close() error {
	if s.server != nil {
		s.server.Close()
	}
	if s.console != nil {
		s.console.Close()
	}
	return errors.Join(s.System.Close(), s.Servers.Close())
}

// declared declares that payment answers each order.
const declared = `[{"hop": "shop.order", "starts": [{"topic": "shop.order.events", "type": "Placed"}]},
  {"hop": "shop.payment", "reactions": [{"on": {"topic": "shop.order.events", "type": "Placed"}, "success": [{"topic": "shop.payment.events", "type": "Paid"}]}]}]`

// fill inserts the data of a large shop with many failures.
func (s *stage) fill(ctx context.Context) error {
	d, err := saga.Parse(harness.OrderSaga)
	if err != nil {
		return err
	}
	lives := pgx.NamedArgs{"sagas": s.sagas, "definition": d.Hash()}
	for name, steps := range map[string]int{"running": 0, "parked": 1, "completed": 3} {
		if lives[name], err = life(d, steps, name == "parked"); err != nil {
			return fmt.Errorf("a saga that is %s: %w", name, err)
		}
	}
	next, err := saga.Parse(bytes.Replace(harness.OrderSaga, []byte(`"version": 1`), []byte(`"version": 2`), 1))
	if err != nil {
		return err
	}
	for _, d := range []*saga.Definition{d, next} {
		const store = "INSERT INTO troupe.saga_definitions (hash, saga, version, definition) VALUES ($1, 'order', $2, $3)"
		if _, err := s.pools["order"].Exec(ctx, store, d.Hash(), d.Spec().Version, string(d.JSON())); err != nil {
			return err
		}
	}
	headers := envelope.MarshalHeaders([]envelope.Header{
		{Key: ce.HeaderID, Value: []byte("0191f6a8-0000-7000-8000-000000000001")}, {Key: "ce_specversion", Value: []byte("1.0")},
		{Key: "ce_type", Value: []byte("ChargePayment")}, {Key: "ce_source", Value: []byte("order")},
		{Key: ce.HeaderContentType, Value: []byte(envelope.JSON)},
	})
	for _, one := range []struct {
		database, statement string
		args                pgx.NamedArgs
	}{
		{"order", "sagas", lives}, {"order", "associations", nil}, {"order", "events", lives}, {"order", "rows", pgx.NamedArgs{"rows": s.rows}},
		{"payment", "letters", pgx.NamedArgs{"letters": s.letters, "headers": headers}},
		{"payment", "held", pgx.NamedArgs{"held": s.held, "headers": headers}},
		{"watch", "watched", pgx.NamedArgs{"declared": declared}},
		{"watch", "messages", pgx.NamedArgs{"messages": s.messages}}, {"watch", "findings", nil},
		{"shipping", "letters", pgx.NamedArgs{"letters": s.letters / 100, "headers": headers}},
	} {
		text, err := statements.ReadFile("sql/" + one.statement + ".sql")
		if err != nil {
			return err
		}
		if _, err := s.pools[one.database].Exec(ctx, string(text), one.args); err != nil {
			return fmt.Errorf("%s of %s: %w", one.statement, one.database, err)
		}
	}
	for name, pool := range s.pools {
		if _, err := pool.Exec(ctx, "VACUUM ANALYZE"); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// life returns the version, state and log of a saga of which the given number of steps are answered, as JSON. If it is stuck, the
// next step's attempts are exhausted.
func life(d *saga.Definition, answered int, stuck bool) (text string, err error) {
	m, err := decisions.NewMemory(time.Now().UTC(), d)
	if err != nil {
		return "", err
	}
	var commands []saga.Send
	m.OnDecided = func(one decisions.Decided) { commands = append(commands, one.Effects.Commands...) }
	id, err := m.Start("order", map[string]any{"order_id": "o-1", "customer_id": "c-7", "amount_cents": 1999, "title": 7, "quantity": 1})
	if err != nil {
		return "", err
	}
	for i := range answered + 1 {
		if i >= len(commands) {
			break
		}
		c := commands[i]
		st := d.Spec().Steps[i]
		answer := decisions.Message{
			ID: fmt.Sprintf("0191f6a8-0000-7000-8000-%012d", i), Hop: c.Hop, Type: st.Success[0].Event, Key: "o-1", Outcome: "success",
			Fields: map[string]any{"payment_id": "p-1", "reservation_id": "r-1", "shipment_id": "s-1"},
			SagaID: id, SagaStep: c.Step, SagaOperation: c.Operation,
		}
		if i == answered {
			if !stuck {
				break
			}
			answer.Outcome, answer.Reason, answer.Type, answer.Fields = "exhausted", "the warehouse answers 503", "troupe.Exhausted", nil
		}
		if err := m.Take(answer); err != nil {
			return "", err
		}
	}
	state := m.Sagas()[0]
	out, err := json.Marshal(map[string]any{"version": state.Version, "state": state, "log": m.Log(id)})
	return string(out), err
}
