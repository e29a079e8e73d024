package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/bench/machine"
	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/topics"
)

// A stage holds the servers.
type stage struct {
	sizes
	peer     string
	profiles string

	postgres *devstack.Postgres
	kafka    *devstack.Kafka
	client   *kgo.Client
	version  string // of Postgres
	broker   string
	made     int // names that were given out
	server   machine.Postgres
	batches  float64 // messages/s in batches; 0 if they were not measured
}

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
	// A plain producer: with lingering it fills a topic in large batches.
	s.client, err = kafka.NewClient(s.kafka.Addrs(), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(50_000))
	if err != nil {
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
	url, err := s.postgres.CreateDatabase(ctx, template, "")
	if err != nil {
		return err
	}
	if err := migrations.Up(ctx, url); err != nil {
		return err
	}
	return execute(ctx, url, accounts)
}

const template = "troupe_bench"

const accounts = `CREATE TABLE accounts (id text PRIMARY KEY, balance bigint NOT NULL, deposits bigint NOT NULL)`

func (s *stage) close() error {
	ctx := context.Background()
	var errs []error
	if s.client != nil {
		s.client.Close()
	}
	if s.kafka != nil {
		errs = append(errs, s.kafka.Close())
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.DropDatabase(ctx, template), s.postgres.Close())
	}
	return errors.Join(errs...)
}

func (s *stage) name(of string) string {
	s.made++
	return fmt.Sprintf("%s-%d-%d", of, os.Getpid(), s.made)
}

// database creates a database with Troupe's tables and the service's own.
func (s *stage) database(ctx context.Context) (url string, drop func(), err error) {
	name := strings.ReplaceAll(s.name("bench"), "-", "_")
	url, err = s.postgres.CreateDatabase(ctx, name, template)
	if err != nil {
		return "", nil, err
	}
	drop = func() {
		if err := s.postgres.DropDatabase(context.Background(), name); err != nil {
			fmt.Fprintln(os.Stderr, "participant:", err)
		}
	}
	return url, drop, nil
}

func execute(ctx context.Context, url string, statements ...string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// Deposit is the command. Its answer is Deposited.
type Deposit struct {
	Amount    int64  `json:"amount"`
	Reference string `json:"reference"`
}

// Deposited is the answer.
type Deposited struct {
	Amount    int64  `json:"amount"`
	Reference string `json:"reference"`
}

// filled is a topic of commands with its contents.
type filled struct {
	hop        topics.Hop
	partitions int32
	messages   int
	failing    int // number of messages whose handler always fails
}

// fill creates a topic of n commands of 200 bytes for keys in turn. Each key whose number is below failing always fails; their
// messages are spread over the topic like all others.
func (s *stage) fill(ctx context.Context, partitions int32, n, keys, failing int) (*filled, error) {
	f := &filled{hop: topics.MustHop(s.name("bench"), "account"), partitions: partitions, messages: n}
	for _, topic := range []string{f.hop.Commands(), f.hop.Events(), f.hop.DeadLetters()} {
		if err := kafka.Provision(ctx, s.client, kafka.Topic{Name: topic, Partitions: partitions}); err != nil {
			return nil, err
		}
	}
	body, err := json.Marshal(Deposit{Amount: 1, Reference: strings.Repeat("r", 170)})
	if err != nil {
		return nil, err
	}
	failed := make(chan error, 1)
	for i := range n {
		number := i % keys
		key := fmt.Sprintf("account-%d", number)
		if number*failing/keys != (number+1)*failing/keys { // spread evenly
			key = failingKey + key
			f.failing++
		}
		id := envelope.NewID()
		r := kafka.Record(envelope.Message{
			Topic: f.hop.Commands(), Key: []byte(key), Payload: body, ID: id, Type: "Deposit", Source: "bench", Subject: key,
			ContentType: envelope.JSON, CorrelationID: id,
		})
		s.client.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	if err := s.client.Flush(ctx); err != nil {
		return nil, err
	}
	select {
	case err := <-failed:
		return nil, err
	default:
		return f, nil
	}
}

const failingKey = "failing-"

// remove deletes the topics.
func (s *stage) remove(f *filled) {
	admin := kadm.NewClient(s.client)
	_, err := admin.DeleteTopics(context.Background(), f.hop.Commands(), f.hop.Events(), f.hop.DeadLetters())
	if err != nil {
		fmt.Fprintln(os.Stderr, "participant: remove topics:", err)
	}
}

// rewind makes a group read everything again. The group must have no members.
func (s *stage) rewind(ctx context.Context, f *filled, group string) error {
	again := make(kadm.Offsets)
	for p := range f.partitions {
		again.AddOffset(f.hop.Commands(), p, 0, -1)
	}
	return kadm.NewClient(s.client).CommitAllOffsets(ctx, group, again)
}
