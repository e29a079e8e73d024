package flow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// ten is a service that waits for ten others: two members of one group, two partitions per topic, and the messages of each topic
// in a different order.
type ten struct {
	t            testing.TB
	pool         *pgxpool.Pool
	flow         string
	client       *kgo.Client
	batch        int
	joined       atomic.Int64
	transactions atomic.Int64
	repeated     atomic.Int64
	ends         map[string]int64 // of the topics
}

const parts = 10

func newTen(t testing.TB, batch int) *ten {
	s := &ten{t: t, pool: testkit.Database(t), flow: testkit.Flow(t), batch: batch}
	_, err := s.pool.Exec(t.Context(), shipments)
	require.NoError(t, err)
	s.client, err = kafka.NewClient(testkit.Kafka(t))
	require.NoError(t, err)
	t.Cleanup(s.client.Close)
	testkit.Topics(t, s.client, 2, s.topics()...)
	return s
}

func (s *ten) hop(n int) topics.Hop { return topics.MustHop(s.flow, fmt.Sprintf("part-%d", n)) }

// send sends the messages of all keys, each several times, interleaved over all topics.
func (s *ten) send(keys, times int) {
	s.t.Helper()
	orders := make([][]int, parts)
	for n := range parts {
		orders[n] = shuffled(keys)
	}
	var records []*kgo.Record
	for i := range keys {
		for n := range parts {
			key := fmt.Sprintf("o-%d", orders[n][i])
			payload, err := json.Marshal(Reserved{Titles: n})
			require.NoError(s.t, err)
			m := envelope.Message{
				Topic: s.hop(n).Events(), Key: []byte(key), Payload: payload, ID: envelope.NewID(), Type: "Reserved", Source: "test",
				Subject: key, ContentType: envelope.JSON, Outcome: envelope.Success,
			}
			for range times {
				records = append(records, kafka.Record(m))
			}
		}
	}
	require.NoError(s.t, s.client.ProduceSync(s.t.Context(), records...).FirstErr())
	ends, err := kadm.NewClient(s.client).ListEndOffsets(s.t.Context(), s.topics()...)
	require.NoError(s.t, err)
	s.ends = make(map[string]int64)
	ends.Each(func(o kadm.ListedOffset) { s.ends[fmt.Sprint(o.Topic, o.Partition)] = o.Offset })
}

func (s *ten) topics() (names []string) {
	for n := range parts {
		names = append(names, s.hop(n).Events())
	}
	return names
}

// start runs two members until the test ends.
func (s *ten) start() {
	declared := flow.Declaration{
		Hop: s.flow + ".shipping",
		Joins: []flow.Join{{
			Name: "ready", Within: "1h", Success: []flow.Message{events(s.flow, "shipping", "Shipped")},
		}},
	}
	for n := range parts {
		declared.Joins[0].Await = append(declared.Joins[0].Await, events(s.flow, s.hop(n).Name(), "Reserved"))
	}
	for range 2 {
		// each member has connections of its own, so that as much as possible runs in parallel
		pool, err := pgxpool.NewWithConfig(s.t.Context(), s.pool.Config())
		require.NoError(s.t, err)
		s.t.Cleanup(pool.Close)
		p, err := participant.New(participant.Config{
			Pool: pool, Brokers: testkit.Kafka(s.t), Hop: topics.MustHop(s.flow, "shipping"), Partitions: 2, Batch: s.batch,
			Concurrency: 8, Retry: quick, Log: testkit.Logger(s.t), Kafka: session(),
			Hooks: participant.Hooks{
				Transaction: func(ctx context.Context, _ []participant.Delivery) (context.Context, func(error)) {
					s.transactions.Add(1)
					return ctx, func(err error) {
						if err != nil {
							s.repeated.Add(1)
							s.t.Logf("repeated: %v", err)
						}
					}
				},
			},
		})
		require.NoError(s.t, err)
		flow.OnJoin(bind(s.t, p, declared), "ready", flow.Ends{
			Complete: func(ctx context.Context, tx pgx.Tx, j flow.Joined) (participant.Outcome, error) {
				if len(j.Messages) != parts || len(j.Missing) > 0 {
					return participant.Outcome{}, fmt.Errorf("joined %d messages, missing %v", len(j.Messages), j.Missing)
				}
				participant.AfterCommit(tx, func() { s.joined.Add(1) })
				err := participant.Queue(ctx, tx, "INSERT INTO shipments (order_id) VALUES ($1)", j.Key)
				return participant.Succeed(Shipped{Titles: len(j.Messages)}), err
			},
		})
		run(s.t, p)
	}
}

func (s *ten) done() int { return int(s.joined.Load()) }

// settle waits until every message is handled.
func (s *ten) settle() {
	s.t.Helper()
	admin := kadm.NewClient(s.client)
	testkit.Wait(s.t, "offsets", func() (bool, error) {
		offsets, err := admin.FetchOffsets(s.t.Context(), s.flow+".shipping")
		if err != nil {
			return false, err
		}
		at := make(map[string]int64)
		offsets.Each(func(o kadm.OffsetResponse) { at[fmt.Sprint(o.Topic, o.Partition)] = o.At })
		for partition, end := range s.ends {
			if end > 0 && at[partition] < end {
				return false, fmt.Errorf("%s is at %d of %d", partition, at[partition], end)
			}
		}
		return true, nil
	})
}

func (s *ten) count(sql string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), sql, args...).Scan(&n))
	return n
}

// run runs a participant until the test ends, or until the returned function is called.
func run(t testing.TB, p *participant.Participant) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(4 * time.Minute):
			t.Error("Run did not end")
		}
	}
	t.Cleanup(stop)
	return stop
}

// session sets group time-outs for tests: members join and leave explicitly, and none is lost on a busy machine.
func session() []kgo.Opt {
	return []kgo.Opt{kgo.SessionTimeout(30 * time.Second), kgo.RebalanceTimeout(27 * time.Second), kgo.HeartbeatInterval(100 * time.Millisecond)}
}
