package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/bench/machine"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/inventory"
	"github.com/troupe-go/troupe/internal/demo/order"
	"github.com/troupe-go/troupe/internal/demo/payment"
	"github.com/troupe-go/troupe/internal/demo/shipping"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/relay"
)

// A stage holds the servers.
type stage struct {
	sizes
	beside   string
	postgres *devstack.Postgres
	kafka    *devstack.Kafka
	registry *devstack.Registry
	client   *kgo.Client
	server   machine.Postgres
	version  string // of Postgres
	broker   string
	made     int
}

// settings fits a server that has the machine for itself: the cost of a checkpoint within a round would be part of the result.
var settings = map[string]string{
	"fsync": "on", "synchronous_commit": "on", "shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min",
	"max_connections": "400",
}

func (s *stage) open(ctx context.Context) (err error) {
	if s.postgres, err = devstack.OpenPostgres(ctx, devstack.PostgresConfig{Settings: settings}); err != nil {
		return err
	}
	if s.kafka, err = devstack.OpenKafka(ctx, devstack.KafkaConfig{}); err != nil {
		return err
	}
	if s.registry, err = devstack.OpenRegistry(ctx); err != nil {
		return err
	}
	s.broker = "embedded"
	if address := os.Getenv("TROUPE_KAFKA"); address != "" {
		s.broker = address
	}
	if s.client, err = kafka.NewClient(s.kafka.Addrs(), kgo.UnknownTopicRetries(-1)); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, s.postgres.URL(""))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var fsync, commits string
	const ask = "SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit')"
	if err := conn.QueryRow(ctx, ask).Scan(&s.version, &fsync, &commits); err != nil {
		return err
	}
	if fsync != "on" || commits != "on" {
		return fmt.Errorf("TROUPE_POSTGRES has fsync %s and synchronous_commit %s: want both on", fsync, commits)
	}
	s.server = machine.PostgresOf(int(conn.PgConn().PID()))
	return nil
}

func (s *stage) close() error {
	var errs []error
	if s.client != nil {
		s.client.Close()
	}
	if s.registry != nil {
		errs = append(errs, s.registry.Close())
	}
	if s.kafka != nil {
		errs = append(errs, s.kafka.Close())
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Close())
	}
	return errors.Join(errs...)
}

var services = map[string]demo.Service{"order": order.Run, "payment": payment.Run, "inventory": inventory.Run, "shipping": shipping.Run}

// A system is the running order flow.
type system struct {
	s       *stage
	flow    string
	url     string                   // of the order service
	pools   map[string]*pgxpool.Pool // by service
	names   []string                 // of databases
	folder  string                   // "", or a folder to remove
	beside  machine.Process          // 0 if none runs
	aside   string                   // its database
	running *errgroup.Group
	ctx     context.Context
	stop    context.CancelFunc
}

func (s *stage) start(ctx context.Context, k kind) (y *system, err error) {
	s.made++
	y = &system{s: s, flow: fmt.Sprintf("bench-%d-%d", os.Getpid(), s.made), pools: make(map[string]*pgxpool.Pool)}
	ctx, y.stop = context.WithCancel(ctx)
	y.running, y.ctx = errgroup.WithContext(ctx)
	var ready []string
	for name, service := range services {
		address, err := freeAddress()
		if err != nil {
			return y, err
		}
		ready = append(ready, "http://"+address)
		if name == "order" {
			y.url = "http://" + address
		}
		url, err := y.database(ctx, name)
		if err != nil {
			return y, err
		}
		y.running.Go(func() error {
			return service(y.ctx, demo.Config{
				DatabaseURL: url, Brokers: s.kafka.Addrs(), Registry: s.registry.URL(), Style: k.style, Flow: y.flow, Listen: address,
			})
		})
		r, err := relay.New(relay.Config{Pool: y.pools[name], Brokers: s.kafka.Addrs(), Service: name})
		if err != nil {
			return y, err
		}
		y.running.Go(func() error { return r.Run(y.ctx) })
	}
	for _, url := range ready {
		if err := y.ready(url); err != nil {
			return y, err
		}
	}
	if k.beside != "" {
		return y, y.accompany(k.beside)
	}
	return y, nil
}

func (y *system) database(ctx context.Context, service string) (string, error) {
	name := strings.ReplaceAll(y.flow, "-", "_") + "_" + service
	url, err := y.s.postgres.CreateDatabase(ctx, name, "")
	if err != nil {
		return "", err
	}
	y.names = append(y.names, name)
	if err := migrations.Up(ctx, url); err != nil {
		return "", err
	}
	y.pools[service], err = pgxpool.New(ctx, url)
	return url, err
}

func (y *system) ready(url string) error {
	for began := time.Now(); y.ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		response, err := http.Get(url + "/readyz")
		if err == nil {
			reason, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("%s: %s", response.Status, bytes.TrimSpace(reason))
		}
		if time.Since(began) > patience {
			return fmt.Errorf("%s/readyz after %s: %w", url, patience, err)
		}
	}
	return y.running.Wait()
}

// accompany runs a command, with a database of its own, until the system is closed.
func (y *system) accompany(command string) error {
	name := strings.ReplaceAll(y.flow, "-", "_") + "_beside"
	database, err := y.s.postgres.CreateDatabase(y.ctx, name, "")
	if err != nil {
		return err
	}
	y.names, y.aside = append(y.names, name), name
	if err := migrations.Up(y.ctx, database); err != nil {
		return err
	}
	declared, err := y.declared(y.ctx)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(y.ctx, "sh", "-c", "exec "+command)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "KAFKA_BROKERS="+strings.Join(y.s.kafka.Addrs(), ","), "TROUPE_FLOW="+y.flow, "DATABASE_URL="+database,
		"REACTIONS="+declared)
	if err := cmd.Start(); err != nil {
		return err
	}
	y.beside = machine.Process(cmd.Process.Pid)
	y.running.Go(func() error {
		if err := cmd.Wait(); y.ctx.Err() == nil {
			return fmt.Errorf("%s: ended by itself: %w", command, err)
		}
		return nil
	})
	return nil
}

// besideCPU returns the processor time of the accompanying command, and of its sessions at the server, in seconds.
func (y *system) besideCPU(ctx context.Context) (command, sessions float64, err error) {
	if y.beside == 0 {
		return 0, 0, nil
	}
	rows, err := y.pools["order"].Query(ctx, "SELECT pid FROM pg_stat_activity WHERE datname = $1", y.aside)
	if err != nil {
		return 0, 0, err
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	for _, pid := range pids {
		sessions += machine.Process(pid).CPU()
	}
	return y.beside.CPU(), sessions, err
}

// declared returns a folder with the services' declarations, for this system's flow.
func (y *system) declared(ctx context.Context) (string, error) {
	checkout, err := machine.Checkout(ctx)
	if err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp("", y.flow)
	if err != nil {
		return "", err
	}
	y.folder = folder
	for service := range services {
		text, err := os.ReadFile(filepath.Join(checkout, "internal", "demo", service, "reactions.json"))
		if err != nil {
			return "", err
		}
		if err := os.MkdirAll(filepath.Join(folder, service), 0o700); err != nil {
			return "", err
		}
		text = bytes.ReplaceAll(text, []byte(`"order.`), []byte(`"`+y.flow+`.`))
		if err := os.WriteFile(filepath.Join(folder, service, "reactions.json"), text, 0o600); err != nil {
			return "", err
		}
	}
	return folder, nil
}

func (y *system) close() error {
	y.stop()
	errs := []error{y.running.Wait()}
	if y.folder != "" {
		errs = append(errs, os.RemoveAll(y.folder))
	}
	for _, p := range y.pools {
		p.Close()
	}
	for _, name := range y.names {
		errs = append(errs, y.s.postgres.DropDatabase(context.Background(), name))
	}
	return errors.Join(errs...)
}

// messages returns the number of messages on the flow's topics of commands and events.
func (y *system) messages(ctx context.Context) (n int64, err error) {
	var names []string
	for name := range services {
		names = append(names, y.flow+"."+name+".events", y.flow+"."+name+".commands")
	}
	ends, err := kadm.NewClient(y.s.client).ListEndOffsets(ctx, names...)
	if err != nil {
		return 0, err
	}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err == nil { // a topic without messages may not exist
			n += o.Offset
		}
	})
	return n, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
