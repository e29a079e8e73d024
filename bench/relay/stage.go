package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/kafka"
)

// A stage holds the servers and programs.
type stage struct {
	options
	harness.Servers
	dir    string // all files of a run
	sweep  func() error
	module string // the folder of Troupe's source

	process harness.Process // the broker's; 0 if it is not known
	addrs   []string
	admin   *kadm.Client
	made    int // number of runs
	warmed  bool

	relay string // the program outbox-relay
	usage string // its help
}

const template = "troupe_bench_relay"

func (s *stage) open(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", "troupe-bench-"); err != nil {
		return err
	}
	if err := os.Chmod(s.dir, 0o711); err != nil { // Postgres may run as another user, who must be able to enter it
		return err
	}
	if s.module, err = harness.Checkout(ctx); err != nil {
		return err
	}
	if s.sweep, err = harness.Sweep(s.dir, s.apacheKafka()); err != nil {
		return err
	}
	s.relay = filepath.Join(s.dir, "outbox-relay")
	if err := harness.Build(ctx, "cmd/outbox-relay", s.relay); err != nil {
		return err
	}
	if s.usage, err = harness.Output(ctx, s.relay, "run", "--help"); err != nil {
		return err
	}
	if err := s.openPostgres(ctx); err != nil {
		return err
	}
	return s.openBroker(ctx)
}

func (s *stage) apacheKafka() string { return harness.ApacheKafka(s.module) }

func (s *stage) openPostgres(ctx context.Context) (err error) {
	// The folder is our own for its log, from which statements are counted.
	settings := map[string]string{"max_wal_size": "16GB", "wal_level": "logical"}
	if len(s.databases) > 0 {
		n := 20 + slices.Max(s.databases)
		settings["max_connections"], settings["max_replication_slots"], settings["max_wal_senders"] = strconv.Itoa(8*n), strconv.Itoa(n), strconv.Itoa(n)
	}
	maps.Copy(settings, s.settings)
	cfg := devstack.PostgresConfig{Dir: filepath.Join(s.dir, "postgres"), Settings: harness.Settings(settings)}
	if s.Postgres, err = devstack.StartPostgres(ctx, cfg); err != nil {
		return err
	}
	if err := s.Describe(ctx, s.Postgres.SocketURL("")); err != nil {
		return err
	}
	return s.Template(ctx, template)
}

func (s *stage) openBroker(ctx context.Context) (err error) {
	switch address := os.Getenv("TROUPE_KAFKA"); {
	case address != "":
		s.Broker, s.addrs = address, strings.Split(address, ",")
	case s.quick:
		if s.Kafka, err = devstack.StartKafka(ctx, devstack.KafkaConfig{}); err != nil {
			return err
		}
		s.Broker, s.addrs = "embedded", s.Kafka.Addrs()
	default:
		port, err := harness.FreePorts(2)
		if err != nil {
			return err
		}
		folder := filepath.Join(s.dir, "kafka")
		address, err = harness.Output(ctx, s.apacheKafka(), "start", "--dir", folder, "--port", strconv.Itoa(port), "--set", "log.segment.delete.delay.ms=1000")
		if err != nil {
			return fmt.Errorf("%w\nset TROUPE_KAFKA to a broker that runs, or see to it with --quick", err)
		}
		s.Broker, s.addrs = "Apache Kafka on "+address, []string{address}
		if text, err := os.ReadFile(filepath.Join(folder, "pid")); err == nil {
			pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
			s.process = harness.Process(pid)
		}
	}
	s.Client, err = kafka.NewClient(s.addrs)
	if err == nil {
		s.admin = kadm.NewClient(s.Client)
	}
	return err
}

func (s *stage) close() error {
	err := s.Servers.Close()
	if s.sweep != nil {
		return errors.Join(err, s.sweep())
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// A bed is a run's own database and topics.
type bed struct {
	*stage
	name   string // of the database
	tcp    bool   // the relay connects over TCP instead of the Unix socket
	topics []string
}

const partitions = 6

// newBed creates the database and the topics of a run, and prepares the server for r, unless that is nil.
func (s *stage) newBed(ctx context.Context, tcp bool, topics int, r relayer, into table) (b *bed, err error) {
	s.made++
	b = &bed{stage: s, name: fmt.Sprintf("bench_relay_%d", s.made), tcp: tcp}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	url, err := s.Postgres.CreateDatabase(ctx, b.name, template)
	if err != nil {
		return b, err
	}
	if into.create != "" {
		if err := harness.Execute(ctx, url, into.create); err != nil {
			return b, err
		}
	}
	for n := range topics {
		name := fmt.Sprintf("bench-%d-%d-%d", os.Getpid(), s.made, n)
		// The record's time is the broker's, so that the relay does not influence it.
		config := map[string]string{"message.timestamp.type": "LogAppendTime"}
		if err := kafka.Provision(ctx, s.Client, kafka.Topic{Name: name, Partitions: partitions, Config: config}); err != nil {
			return b, err
		}
		b.topics = append(b.topics, name)
	}
	if r == nil {
		return b, nil
	}
	if err := r.prime(ctx, b); err != nil {
		return b, fmt.Errorf("prime: %w", err)
	}
	return b, nil
}

func (b *bed) close() error {
	ctx := context.Background()
	err := b.Postgres.DropDatabase(ctx, b.name)
	if len(b.topics) > 0 {
		_, failed := b.admin.DeleteTopics(ctx, b.topics...)
		err = errors.Join(err, failed)
	}
	return err
}

func (b *bed) socketURL() string { return b.Postgres.SocketURL(b.name) }

// url returns the database's URL for the relay.
func (b *bed) url() string {
	if b.tcp {
		return b.Postgres.URL(b.name)
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
