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

	"github.com/troupe-go/troupe/console"
	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
)

var (
	//go:embed order.saga.json
	definition []byte
	//go:embed sql/*.sql
	statements embed.FS
)

// A stage is a server with full databases, and a console over it.
type stage struct {
	size     sizes
	postgres *devstack.Postgres
	version  string // of Postgres
	pools    map[string]*pgxpool.Pool
	names    []string // of the services' databases
	console  *console.Console
	server   *httptest.Server
}

func open(ctx context.Context, size sizes) (s *stage, err error) {
	s = &stage{size: size, pools: make(map[string]*pgxpool.Pool), names: []string{"order", "payment", "inventory", "shipping"}}
	settings := map[string]string{"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min"}
	if s.postgres, err = devstack.OpenPostgres(ctx, devstack.PostgresConfig{Settings: settings}); err != nil {
		return s, err
	}
	var databases []console.Database
	for _, name := range s.names {
		if err := s.database(ctx, name); err != nil {
			return s, fmt.Errorf("database %s: %w", name, err)
		}
		databases = append(databases, console.Database{Name: name, Pool: s.pools[name]})
	}
	if err := s.database(ctx, "watch"); err != nil {
		return s, fmt.Errorf("database watch: %w", err)
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
	for _, pool := range s.pools {
		pool.Close()
	}
	if s.postgres == nil {
		return nil
	}
	var err error
	if len(s.pools) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = s.drop(ctx)
	}
	return errors.Join(err, s.postgres.Close())
}

const prefix = "troupe_bench_console_"

// database creates a database with the tables.
func (s *stage) database(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, s.postgres.URL(""))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&s.version); err != nil {
		return err
	}
	quoted := pgx.Identifier{prefix + name}.Sanitize()
	if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+quoted+" WITH (FORCE)"); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+quoted); err != nil {
		return err
	}
	if err := migrations.Up(ctx, s.postgres.URL(prefix+name)); err != nil {
		return err
	}
	s.pools[name], err = pgxpool.New(ctx, s.postgres.URL(prefix+name))
	return err
}

func (s *stage) drop(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.postgres.URL(""))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for name := range s.pools {
		if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{prefix + name}.Sanitize()+" WITH (FORCE)"); err != nil {
			return err
		}
	}
	return nil
}

// declared declares that payment answers each order.
const declared = `[{"hop": "shop.order", "starts": [{"topic": "shop.order.events", "type": "Placed"}]},
  {"hop": "shop.payment", "reactions": [{"on": {"topic": "shop.order.events", "type": "Placed"}, "success": [{"topic": "shop.payment.events", "type": "Paid"}]}]}]`

// fill inserts the data of a large shop with many failures.
func (s *stage) fill(ctx context.Context) error {
	d, err := saga.Parse(definition)
	if err != nil {
		return err
	}
	lives := pgx.NamedArgs{"sagas": s.size.sagas, "definition": d.Hash()}
	for name, steps := range map[string]int{"running": 0, "parked": 1, "completed": 3} {
		if lives[name], err = life(d, steps, name == "parked"); err != nil {
			return fmt.Errorf("a saga that is %s: %w", name, err)
		}
	}
	next, err := saga.Parse(bytes.Replace(definition, []byte(`"version": 1`), []byte(`"version": 2`), 1))
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
		{Key: envelope.HeaderID, Value: []byte("0191f6a8-0000-7000-8000-000000000001")}, {Key: "ce_specversion", Value: []byte("1.0")},
		{Key: "ce_type", Value: []byte("ChargePayment")}, {Key: "ce_source", Value: []byte("order")},
		{Key: envelope.HeaderContentType, Value: []byte(envelope.JSON)},
	})
	for _, one := range []struct {
		database, statement string
		args                pgx.NamedArgs
	}{
		{"order", "sagas", lives}, {"order", "associations", nil}, {"order", "events", lives}, {"order", "rows", pgx.NamedArgs{"rows": s.size.rows}},
		{"payment", "letters", pgx.NamedArgs{"letters": s.size.letters, "headers": headers}},
		{"payment", "held", pgx.NamedArgs{"held": s.size.held, "headers": headers}},
		{"watch", "watched", pgx.NamedArgs{"declared": declared}},
		{"watch", "messages", pgx.NamedArgs{"messages": s.size.messages}}, {"watch", "findings", nil},
		{"shipping", "letters", pgx.NamedArgs{"letters": s.size.letters / 100, "headers": headers}},
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
	m, err := coordinator.NewMemory(time.Now().UTC(), d)
	if err != nil {
		return "", err
	}
	var asked []saga.Send
	m.OnDecided = func(one coordinator.Decided) { asked = append(asked, one.Effects.Commands...) }
	id, err := m.Start("order", map[string]any{"order_id": "o-1", "customer_id": "c-7", "amount_cents": 1999, "title": 7, "quantity": 1})
	if err != nil {
		return "", err
	}
	for i := range answered + 1 {
		if i >= len(asked) {
			break
		}
		c := asked[i]
		st := d.Spec().Steps[i]
		answer := coordinator.Message{
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
