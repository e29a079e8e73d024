package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/bench/machine"
	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/sidecar"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/topics"
)

// A stage holds the servers.
type stage struct {
	sizes
	concurrency []int
	profiles    string

	postgres *devstack.Postgres
	kafka    *devstack.Kafka
	client   *kgo.Client
	version  string
	broker   string
	server   machine.Postgres
	made     int
}

const (
	partitions = 8
	keys       = 10_000
)

// settings fits a server that has the machine for itself: the cost of a checkpoint within a run would be part of the result.
var settings = map[string]string{
	"fsync": "on", "synchronous_commit": "on", "shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min",
}

func (s *stage) open(ctx context.Context) (err error) {
	if s.postgres, err = devstack.OpenPostgres(ctx, devstack.PostgresConfig{Settings: settings}); err != nil {
		return err
	}
	if s.kafka, err = devstack.OpenKafka(ctx, devstack.KafkaConfig{}); err != nil {
		return err
	}
	s.broker = "embedded"
	if address := os.Getenv("TROUPE_KAFKA"); address != "" {
		s.broker = address
	}
	s.client, err = kafka.NewClient(s.kafka.Addrs(), kgo.MaxBufferedRecords(50_000))
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, s.postgres.URL(""))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	s.server = machine.PostgresOf(int(conn.PgConn().PID()))
	return conn.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&s.version)
}

func (s *stage) close() error {
	if s.client != nil {
		s.client.Close()
	}
	var errs []error
	if s.kafka != nil {
		errs = append(errs, s.kafka.Close())
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Close())
	}
	return errors.Join(errs...)
}

// A run is one ambassador with its database, topics and service.
type run struct {
	s    *stage
	hop  topics.Hop
	url  string // of its database
	conn *pgx.Conn
	cmd  *exec.Cmd
	hold io.Closer
	said strings.Builder
	drop func() error
}

// begin creates a database and fills the topic.
func (s *stage) begin(ctx context.Context, messages, bytes int) (*run, error) {
	s.made++
	name := fmt.Sprintf("ambassador_%d_%d", os.Getpid(), s.made)
	r := &run{s: s, hop: topics.MustHop("bench", strings.ReplaceAll(name, "_", "-"))}
	var err error
	if r.url, err = s.postgres.CreateDatabase(ctx, name, ""); err != nil {
		return nil, err
	}
	r.drop = func() error { return s.postgres.DropDatabase(context.Background(), name) }
	if err := migrations.Up(ctx, r.url); err != nil {
		return nil, err
	}
	if r.conn, err = pgx.Connect(ctx, r.url); err != nil {
		return nil, err
	}
	if err := kafka.Provision(ctx, s.client, kafka.Topic{Name: r.hop.Commands(), Partitions: partitions}); err != nil {
		return nil, err
	}
	payload, err := json.Marshal(map[string]string{"order": "o-1", "padding": strings.Repeat("x", bytes)})
	if err != nil {
		return nil, err
	}
	var failed error
	for n := range messages {
		m := envelope.Message{
			Topic: r.hop.Commands(), Key: fmt.Appendf(nil, "o-%d", n%keys), Payload: payload, ID: envelope.NewID(), Type: "Charge",
			Source: "bench", ContentType: envelope.JSON,
		}
		s.client.Produce(ctx, kafka.Record(m), func(_ *kgo.Record, err error) {
			if err != nil && failed == nil {
				failed = err
			}
		})
	}
	return r, errors.Join(s.client.Flush(ctx), failed)
}

// childEnv makes this program run troupe ambassador.
const childEnv = "TROUPE_BENCH_AMBASSADOR"

type child struct {
	Args    []string
	Profile string
}

// start starts the ambassador.
func (r *run) start(ctx context.Context, service string, concurrency int, more ...string) error {
	dir, err := os.MkdirTemp("", "troupe-bench-")
	if err != nil {
		return err
	}
	drop := r.drop
	r.drop = func() error { return errors.Join(os.RemoveAll(dir), drop()) }
	file := filepath.Join(dir, "ambassador.yaml")
	if err := os.WriteFile(file, []byte("commands: [{type: Charge, path: /}]\n"), 0o600); err != nil {
		return err
	}
	c := child{Args: append([]string{
		"--config", file, "--database-url", r.url, "--brokers", strings.Join(r.s.kafka.Addrs(), ","), "--hop", r.hop.String(),
		"--service-url", service, "--concurrency", fmt.Sprint(concurrency), "--admin", "127.0.0.1:0", "--log-level", "error",
	}, more...)}
	if r.s.profiles != "" {
		c.Profile = filepath.Join(r.s.profiles, fmt.Sprintf("ambassador-%d-%d.pprof", concurrency, r.s.made))
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	r.cmd = exec.CommandContext(ctx, program)
	r.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	r.cmd.Stdout, r.cmd.Stderr = &r.said, &r.said
	if r.hold, err = r.cmd.StdinPipe(); err != nil {
		return err
	}
	return r.cmd.Start()
}

// end stops the ambassador with SIGTERM, and removes its database and files.
func (r *run) end(ctx context.Context) error {
	err := r.cmd.Process.Signal(syscall.SIGTERM)
	if waited := r.cmd.Wait(); waited != nil {
		err = errors.Join(err, waited, errors.New(r.said.String()))
	}
	return errors.Join(err, r.conn.Close(ctx), r.drop()) // Wait has closed its standard input
}

func (r *run) process() machine.Process { return machine.Process(r.cmd.Process.Pid) }

func (r *run) count(ctx context.Context, sql string, args ...any) (n int, err error) {
	err = r.conn.QueryRow(ctx, sql, args...).Scan(&n)
	return n, err
}

// beChild runs the ambassador. It ends with its parent.
func beChild(text string) int {
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		fmt.Fprintln(os.Stderr, "ambassador:", err)
		return 1
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	if c.Profile != "" {
		f, err := os.Create(c.Profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "ambassador:", err)
			return 1
		}
		defer pprof.StopCPUProfile()
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return sidecar.Program{Args: c.Args, Stdout: os.Stdout, Stderr: os.Stderr}.Ambassador(ctx)
}
