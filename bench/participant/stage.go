package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/topics"
)

// A stage holds the servers.
type stage struct {
	sizes
	harness.Servers
	peer     string
	profiles string
	batches  float64 // messages/s in batches; 0 if they were not measured
}

const (
	template = "troupe_bench"
	accounts = `CREATE TABLE accounts (id text PRIMARY KEY, balance bigint NOT NULL, deposits bigint NOT NULL)`
)

func (s *stage) open(ctx context.Context) error {
	// A plain producer: with lingering it fills a topic in large batches.
	err := s.Open(ctx, nil, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(50_000))
	if err != nil {
		return err
	}
	return s.Template(ctx, template, accounts)
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
func (s *stage) fill(ctx context.Context, n, failing int) (*filled, error) {
	f := &filled{hop: topics.MustHop(s.Name("bench"), "account"), partitions: partitions, messages: n}
	for _, topic := range []string{f.hop.Commands(), f.hop.Events(), f.hop.DeadLetters()} {
		if err := kafka.Provision(ctx, s.Client, kafka.Topic{Name: topic, Partitions: partitions}); err != nil {
			return nil, err
		}
	}
	body, err := json.Marshal(Deposit{Amount: 1, Reference: strings.Repeat("r", 170)})
	if err != nil {
		return nil, err
	}
	return f, s.Produce(ctx, n, func(i int) *kgo.Record {
		number := i % keys
		key := fmt.Sprintf("account-%d", number)
		if number*failing/keys != (number+1)*failing/keys { // spread evenly
			key = failingKey + key
			f.failing++
		}
		id := envelope.NewID()
		return kafka.Record(envelope.Message{
			Topic: f.hop.Commands(), Key: []byte(key), Payload: body, ID: id, Type: "Deposit", Source: "bench", Subject: key,
			ContentType: envelope.JSON, CorrelationID: id,
		})
	})
}

const failingKey = "failing-"

// remove deletes the topics.
func (s *stage) remove(f *filled) {
	admin := kadm.NewClient(s.Client)
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
	return kadm.NewClient(s.Client).CommitAllOffsets(ctx, group, again)
}
