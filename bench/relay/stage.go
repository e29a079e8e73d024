package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/bench/machine"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/migrations"
)

// A stage holds the servers and programs.
type stage struct {
	options
	dir    string // all files of a run
	sweep  func() error
	module string // the folder of this module's source

	postgres *devstack.Postgres
	version  string // of Postgres
	server   machine.Postgres
	embedded *devstack.Kafka
	broker   string // its name
	process  machine.Process
	addrs    []string
	client   *kgo.Client
	admin    *kadm.Client
	made     int // number of runs
	warmed   bool

	relay string // the program outbox-relay
	usage string // its help
}

// settings fits a server that has the machine for itself: the cost of a checkpoint within a run would be part of the result.
var settings = map[string]string{
	"fsync": "on", "synchronous_commit": "on", "shared_buffers": "1GB", "max_wal_size": "16GB", "checkpoint_timeout": "30min",
	"wal_level": "logical",
}

const template = "troupe_bench_relay"

func (s *stage) open(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", "troupe-bench-"); err != nil {
		return err
	}
	if err := os.Chmod(s.dir, 0o711); err != nil { // Postgres may run as another user, who must be able to enter it
		return err
	}
	if s.module, err = machine.Checkout(ctx); err != nil {
		return err
	}
	if err := s.watch(); err != nil {
		return err
	}
	s.relay = filepath.Join(s.dir, "outbox-relay")
	if err := machine.Build(ctx, "cmd/outbox-relay", s.relay); err != nil {
		return err
	}
	if s.usage, err = output(ctx, s.relay, "run", "--help"); err != nil {
		return err
	}
	if err := s.openPostgres(ctx); err != nil {
		return err
	}
	return s.openBroker(ctx)
}

// watch starts a shell that cleans up once this process has ended, however it ends: it reads from a pipe whose other end is here.
// A child of this process ends by itself; a broker of apachekafka.sh does not.
func (s *stage) watch() error {
	const script = `read -r _; if [ -e "$0/kafka" ]; then "$1" destroy --dir "$0/kafka"; fi; rm -rf "$0"`
	watcher := exec.Command("/bin/sh", "-c", script, s.dir, s.apacheKafka())
	pipe, err := watcher.StdinPipe()
	if err != nil {
		return err
	}
	watcher.Stderr = os.Stderr
	detach(watcher)
	if err := watcher.Start(); err != nil {
		return err
	}
	s.sweep = func() error { return errors.Join(pipe.Close(), watcher.Wait()) }
	return nil
}

func (s *stage) apacheKafka() string {
	return filepath.Join(s.module, "internal", "devstack", "apachekafka", "apachekafka.sh")
}

func (s *stage) openPostgres(ctx context.Context) (err error) {
	// The folder is our own for its log, from which statements are counted.
	cfg := devstack.PostgresConfig{Dir: filepath.Join(s.dir, "postgres"), Settings: settings}
	if s.postgres, err = devstack.StartPostgres(ctx, cfg); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, s.postgres.SocketURL(""))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, "SHOW server_version").Scan(&s.version); err != nil {
		return err
	}
	s.server = machine.PostgresOf(int(conn.PgConn().PID()))
	url, err := s.postgres.CreateDatabase(ctx, template, "")
	if err != nil {
		return err
	}
	return migrations.Up(ctx, url)
}

func (s *stage) openBroker(ctx context.Context) (err error) {
	switch address := os.Getenv("TROUPE_KAFKA"); {
	case address != "":
		s.broker, s.addrs = address, strings.Split(address, ",")
	case s.quick:
		if s.embedded, err = devstack.StartKafka(ctx, devstack.KafkaConfig{}); err != nil {
			return err
		}
		s.broker, s.addrs = "embedded", s.embedded.Addrs()
	default:
		port, err := freePorts()
		if err != nil {
			return err
		}
		folder := filepath.Join(s.dir, "kafka")
		address, err = output(ctx, s.apacheKafka(), "start", "--dir", folder, "--port", strconv.Itoa(port), "--set", "log.segment.delete.delay.ms=1000")
		if err != nil {
			return fmt.Errorf("%w\nset TROUPE_KAFKA to a broker that runs, or see to it with --quick", err)
		}
		s.broker, s.addrs = "Apache Kafka on "+address, []string{address}
		if text, err := os.ReadFile(filepath.Join(folder, "pid")); err == nil {
			pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
			s.process = machine.Process(pid)
		}
	}
	s.client, err = kafka.NewClient(s.addrs)
	if err == nil {
		s.admin = kadm.NewClient(s.client)
	}
	return err
}

func (s *stage) close() error {
	var errs []error
	if s.client != nil {
		s.client.Close()
	}
	if s.embedded != nil {
		errs = append(errs, s.embedded.Close())
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Close())
	}
	if s.sweep != nil {
		errs = append(errs, s.sweep())
	} else if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// A bed is a run's own database and topics.
type bed struct {
	*stage
	name   string // of the database
	tcp    bool   // the relay connects over TCP instead of the Unix socket
	topics []string
}

const partitions = 6

func (s *stage) bed(ctx context.Context, tcp bool, topics int, into table) (b *bed, err error) {
	s.made++
	b = &bed{stage: s, name: fmt.Sprintf("bench_relay_%d", s.made), tcp: tcp}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	url, err := s.postgres.CreateDatabase(ctx, b.name, template)
	if err != nil {
		return b, err
	}
	if into.create != "" {
		if err := execute(ctx, url, into.create); err != nil {
			return b, err
		}
	}
	for n := range topics {
		name := fmt.Sprintf("bench-%d-%d-%d", os.Getpid(), s.made, n)
		// The record's time is the broker's, so that the relay does not influence it.
		config := map[string]string{"message.timestamp.type": "LogAppendTime"}
		if err := kafka.Provision(ctx, s.client, kafka.Topic{Name: name, Partitions: partitions, Config: config}); err != nil {
			return b, err
		}
		b.topics = append(b.topics, name)
	}
	return b, nil
}

func (b *bed) close() error {
	ctx := context.Background()
	err := b.postgres.DropDatabase(ctx, b.name)
	if len(b.topics) > 0 {
		_, failed := b.admin.DeleteTopics(ctx, b.topics...)
		err = errors.Join(err, failed)
	}
	return err
}

func (b *bed) socketURL() string { return b.postgres.SocketURL(b.name) }

// url returns the database's URL for the relay.
func (b *bed) url() string {
	if b.tcp {
		return b.postgres.URL(b.name)
	}
	return b.socketURL()
}

// ends returns the number of records in the topics. Control records of transactions count too.
func (b *bed) ends(ctx context.Context) (n int, err error) {
	listed, err := b.admin.ListEndOffsets(ctx, b.topics...)
	if err != nil {
		return 0, err
	}
	listed.Each(func(o kadm.ListedOffset) {
		n += int(o.Offset)
		err = errors.Join(err, o.Err)
	})
	return n, err
}

func execute(ctx context.Context, url string, statements ...string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

func ask[T any](ctx context.Context, url, sql string, args ...any) (answer T, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return answer, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := conn.QueryRow(ctx, sql, args...).Scan(&answer); err != nil {
		return answer, fmt.Errorf("%s: %w", sql, err)
	}
	return answer, nil
}

// output runs a program and returns its output.
func output(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", cmd, err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// freePorts returns the first of two adjacent free ports of 127.0.0.1, below the ephemeral range: an outgoing connection could
// use a port of that range before the caller does.
func freePorts() (int, error) {
	for range 100 {
		port := 20_000 + rand.IntN(12_000)
		if free(port) && free(port+1) {
			return port, nil
		}
	}
	return 0, errors.New("no two neighbouring ports are free")
}

func free(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	return err == nil && l.Close() == nil
}

// until calls yes each 20 ms until it returns true or an error, or time is up.
func until(ctx context.Context, limit time.Duration, what string, yes func(context.Context) (bool, error)) error {
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := yes(ctx)
		if ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if err := outer.Err(); err != nil {
				return err
			}
			return fmt.Errorf("%s after %s", what, limit)
		}
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tail returns the end of a file.
func tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	const much = 2000
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-much), io.SeekStart)
	}
	text, _ := io.ReadAll(f)
	return string(text)
}
