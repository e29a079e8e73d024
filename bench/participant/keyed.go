package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/keyed"
)

// The time of each record's work, and the number of keys. The peer's program has the same values.
const (
	work     = 5 * time.Millisecond
	workKeys = 1000
)

// measureKeyed measures concurrency by key without a database: the participant's scheduler with a consumer like a participant's,
// and Confluent's parallel-consumer on the same topics.
func (s *stage) measureKeyed(ctx context.Context) error {
	fmt.Printf("%-20s %9s %9s %16s %9s %16s %9s\n", "", "ideal s", "keyed s", "x ideal", "with join", "parallel-cons. s", "with join")
	if s.peer == "" {
		defer fmt.Println("parallel-consumer was not asked for: see --parallel-consumer")
	}
	for _, partitions := range []int32{1, 8} {
		topic, err := s.fillWork(ctx, partitions)
		if err != nil {
			return err
		}
		for _, atOnce := range []int{100, 256} {
			name := fmt.Sprintf("%d partitions, %d", partitions, atOnce)
			var ours, theirs []duration
			for range s.rounds {
				d, err := keyedConsumer(ctx, s.Kafka.Addrs(), topic, s.keyed, atOnce, s.Name("group"))
				if err != nil {
					return err
				}
				ours = append(ours, d)
				if s.peer == "" {
					continue
				}
				if d, err = s.parallelConsumer(ctx, topic, atOnce); err != nil {
					return err
				}
				theirs = append(theirs, d)
			}
			ideal := float64(s.keyed) / float64(atOnce) * work.Seconds()
			working := func(d duration) float64 { return d.Working }
			total := func(d duration) float64 { return d.Total }
			mid := harness.Median(ours, working)
			fmt.Printf("%-20s %9.3f %9.3f %16.2f %9.3f", name, ideal, mid, mid/ideal, harness.Median(ours, total))
			if len(theirs) > 0 {
				fmt.Printf(" %16.3f %9.3f", harness.Median(theirs, working), harness.Median(theirs, total))
			}
			fmt.Println()
		}
		if _, err := kadm.NewClient(s.Client).DeleteTopics(ctx, topic); err != nil {
			return err
		}
	}
	return nil
}

// duration is the time of all records, in seconds: from the beginning of the first one's work, and from the creation of the
// client.
type duration struct {
	Working float64 `json:"work_s"`
	Total   float64 `json:"total_s"`
}

// fillWork creates a topic of records whose value begins with their number.
func (s *stage) fillWork(ctx context.Context, partitions int32) (topic string, err error) {
	topic = s.Name("work")
	if err := kafka.Provision(ctx, s.Client, kafka.Topic{Name: topic, Partitions: partitions}); err != nil {
		return "", err
	}
	return topic, s.Produce(ctx, s.keyed, func(i int) *kgo.Record {
		return &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "k%d", i%workKeys), Value: fmt.Appendf(nil, "%d %s", i, strings.Repeat("x", 590))}
	})
}

// keyedConsumer consumes a topic as participant/consumer.go does, with the same options and bounds, except for the work.
func keyedConsumer(ctx context.Context, brokers []string, topic string, n, atOnce int, group string) (d duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &worked{n: int64(n), last: make(map[string]int), done: cancel}
	pool := keyed.NewPool(atOnce)
	var mu sync.Mutex
	lanes := make(map[int32]*keyed.Lane[*kgo.Record, *kgo.Record])
	assigned := func(_ context.Context, client *kgo.Client, parts map[string][]int32) {
		mu.Lock()
		defer mu.Unlock()
		for _, p := range parts[topic] {
			part := map[string][]int32{topic: {p}}
			lanes[p] = keyed.NewLane(pool, keyed.Config[*kgo.Record, *kgo.Record]{
				Run: c.run, Low: func(r *kgo.Record) { client.MarkCommitRecords(r) },
				MaxItems: max(512, 2*atOnce), MaxBytes: 1 << 20, MaxGap: 1 << 14,
				Pause:  func() { client.PauseFetchPartitions(part) },
				Resume: func() { client.ResumeFetchPartitions(part) },
			})
			lanes[p].Release()
		}
	}
	began := time.Now()
	client, err := kafka.NewClient(brokers,
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.FetchMaxWait(500*time.Millisecond), kgo.FetchMaxBytes(8<<20), kgo.FetchMaxPartitionBytes(512<<10),
		kgo.AutoCommitMarks(), kgo.AutoCommitInterval(200*time.Millisecond),
		kgo.BlockRebalanceOnPoll(), kgo.OnPartitionsAssigned(assigned),
	)
	if err != nil {
		return d, err
	}
	seed := maphash.MakeSeed()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if len(p.Records) == 0 {
				return
			}
			items := make([]keyed.Item[*kgo.Record, *kgo.Record], len(p.Records))
			for i, r := range p.Records {
				items[i] = keyed.Item[*kgo.Record, *kgo.Record]{Value: r, Mark: r, Key: maphash.Bytes(seed, r.Key), Size: len(r.Key) + len(r.Value)}
			}
			mu.Lock()
			lanes[p.Partition].Push(items...)
			mu.Unlock()
		})
		client.AllowRebalance()
	}
	for _, l := range lanes {
		<-l.Close()
	}
	client.CloseAllowingRebalance()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended.IsZero():
		return d, context.Cause(ctx)
	case c.disorder:
		return d, errors.New("records of one key ran out of their order")
	}
	return duration{c.ended.Sub(c.began).Seconds(), c.ended.Sub(began).Seconds()}, nil
}

// worked records the progress of the work.
type worked struct {
	n    int64
	seen atomic.Int64
	done func()

	mu           sync.Mutex
	began, ended time.Time
	last         map[string]int
	disorder     bool
}

func (c *worked) run(records []*kgo.Record) (ended int, again bool) {
	for _, r := range records {
		c.mu.Lock()
		if c.began.IsZero() {
			c.began = time.Now()
		}
		c.mu.Unlock()
		time.Sleep(work)
		number, _, _ := bytes.Cut(r.Value, []byte(" "))
		i, _ := strconv.Atoi(string(number))
		c.mu.Lock()
		if before, known := c.last[string(r.Key)]; known && before >= i {
			c.disorder = true
		}
		c.last[string(r.Key)] = i
		if c.seen.Add(1) == c.n {
			c.ended = time.Now()
			c.done()
		}
		c.mu.Unlock()
	}
	return len(records), false
}

// parallelConsumer runs the peer's program in a process of its own. The start of the JVM is not measured.
func (s *stage) parallelConsumer(ctx context.Context, topic string, atOnce int) (d duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	out, err := harness.Output(ctx, "java", "-cp", s.peer, "Bench", s.Kafka.Addrs()[0], "pc", topic, strconv.Itoa(s.keyed), strconv.Itoa(atOnce))
	if err != nil {
		return d, fmt.Errorf("parallel-consumer: %w", err)
	}
	var r struct {
		duration
		Complete bool `json:"complete"`
		Disorder int  `json:"disorder"`
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return d, fmt.Errorf("parallel-consumer: %w: %s", err, out)
	}
	if !r.Complete || r.Disorder > 0 {
		return d, fmt.Errorf("parallel-consumer: complete %t, out of order %d", r.Complete, r.Disorder)
	}
	return r.duration, nil
}
