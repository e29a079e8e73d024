package relay_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// withoutReplicas starts two brokers: one leads the topic ill and refuses its records, as long as there are too few replicas in sync,
// and the other leads ill.free. A client tries the refused records again for ever.
func withoutReplicas(t *testing.T) (brokers []string, healed *atomic.Bool) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.DataDir(t.TempDir()), kfake.SeedTopics(1, "ill", "ill.free"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	require.NoError(t, cluster.MoveTopicPartition("ill", 0, 0))
	require.NoError(t, cluster.MoveTopicPartition("ill.free", 0, 1))
	healed = &atomic.Bool{}
	ids := cluster.TopicInfo("ill").TopicID
	cluster.ControlKey(0, func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		produce := request.(*kmsg.ProduceRequest)
		if healed.Load() || produce.Topics[0].TopicID != ids {
			return nil, nil, false
		}
		response := produce.ResponseKind().(*kmsg.ProduceResponse)
		answer, partition := kmsg.NewProduceResponseTopic(), kmsg.NewProduceResponseTopicPartition()
		answer.Topic, answer.TopicID = produce.Topics[0].Topic, ids
		partition.ErrorCode = kerr.NotEnoughReplicas.Code
		answer.Partitions = append(answer.Partitions, partition)
		response.Topics = append(response.Topics, answer)
		return response, nil, true
	})
	return cluster.ListenAddrs(), healed
}

func TestAPartitionThatTakesNoRecordsHoldsNoOtherTopicUp(t *testing.T) {
	t.Parallel()
	for _, source := range []relay.Source{relay.Poll, relay.WAL} {
		t.Run(string(source), func(t *testing.T) {
			t.Parallel()
			s, _ := newServer(t, nil)
			var healed *atomic.Bool
			s.brokers, healed = withoutReplicas(t)
			for n := range 50 {
				s.insert("ill", "k"+strconv.Itoa(n%10), strconv.Itoa(n/10))
			}
			cfg := s.config()
			cfg.Source, cfg.Batch, cfg.UnknownTopic = source, 10, time.Second
			made, err := relay.New(cfg)
			require.NoError(t, err)
			made.Patience(time.Second)
			r := s.run(made)
			testkit.Wait(t, "rows in flight", func() (bool, error) { return r.Status().InFlight > 0, nil })
			free := testkit.Consume(t, s.brokers, "ill.free")
			for n := range 3 { // the relay tries the rows of the other topic again meanwhile
				s.insert("ill.free", "free", strconv.Itoa(n))
				require.Equal(t, []string{strconv.Itoa(n)}, values(free.WaitN(n + 1)[n:]))
			}
			require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'"))
			require.NotZero(t, s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'retrying' AND last_error LIKE '%in sync%'"))
			healed.Store(true)
			records := s.gather(50, "ill")
			for n := range 10 {
				require.Equal(t, []string{"0", "1", "2", "3", "4"}, values(ofKey(records, "k"+strconv.Itoa(n))))
			}
		})
	}
}

// A topic is new to the relay, and a partition of it takes no records. Its further rows are one send, so that they do not delay the rows of
// other topics by one time limit for each key.
func TestTheRowsOfANewTopicThatTakesNoneAreGivenUpTogether(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.brokers, _ = withoutReplicas(t)
	const rows = 50
	for n := range rows {
		s.insert("ill", "k"+strconv.Itoa(n), "0")
	}
	cfg := s.config()
	cfg.Source, cfg.Delivery, cfg.UnknownTopic = relay.Poll, relay.AtLeastOnce, time.Second
	sends := make(chan int, 1000)
	cfg.Hooks.BeforeSend = func(rows int) { sends <- rows }
	made, err := relay.New(cfg)
	require.NoError(t, err)
	made.Patience(time.Second)
	s.run(made)
	require.Equal(t, 1, <-sends)
	require.Equal(t, rows-1, <-sends)
	s.insert("ill.free", "free", "0")
	require.Equal(t, []string{"0"}, values(testkit.Consume(t, s.brokers, "ill.free").WaitN(1)))
}

// A partition that is available again may be slow, as while its replicas are brought up to date. Its rows are not sent to it for ever.
func TestAPartitionThatTakesRecordsSlowlyIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(t.TempDir()), kfake.SeedTopics(1, "ill"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	var available atomic.Bool
	cluster.ControlKey(0, func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if available.Load() {
			cluster.SleepControl(func() { <-time.After(1500 * time.Millisecond) })
			return nil, nil, false
		}
		produce := request.(*kmsg.ProduceRequest)
		response := produce.ResponseKind().(*kmsg.ProduceResponse)
		answer, partition := kmsg.NewProduceResponseTopic(), kmsg.NewProduceResponseTopicPartition()
		answer.Topic, answer.TopicID = produce.Topics[0].Topic, produce.Topics[0].TopicID
		partition.ErrorCode = kerr.NotEnoughReplicas.Code
		answer.Partitions = append(answer.Partitions, partition)
		response.Topics = append(response.Topics, answer)
		return response, nil, true
	})
	s.brokers = cluster.ListenAddrs()
	s.insert("ill", "k", "0")
	cfg := s.config()
	cfg.Source, cfg.Delivery, cfg.UnknownTopic = relay.Poll, relay.AtLeastOnce, 10*time.Second
	made, err := relay.New(cfg)
	require.NoError(t, err)
	made.Patience(2 * time.Second) // records that were given up once have one second, and each fifth time two
	r := s.run(made)
	testkit.Wait(t, "the row to be given up", func() (bool, error) { return r.Status().Retried > 0, nil })
	available.Store(true)
	testkit.Wait(t, "the row to be published", func() (bool, error) { return r.Status().Deleted == 1, nil })
}

// The first rows of topics that the relay has not seen are one send, also if each topic has more rows. So the rows of many topics without a
// leader are given up after one time limit, not after one for each topic. The rows of a key stay in order.
func TestTheFirstRowsOfNewTopicsAreOneSend(t *testing.T) {
	t.Parallel()
	for _, source := range []relay.Source{relay.Poll, relay.WAL} {
		t.Run(string(source), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			var topics []string
			for n := range 5 {
				topics = append(topics, s.createTopic("new"+strconv.Itoa(n), 1))
			}
			s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload)
				SELECT topic, CASE WHEN n < 2 THEN topic || n ELSE 'shared' END, 'Thing', convert_to(row_number() OVER (ORDER BY topic, n)::text, 'UTF8')
				FROM unnest($1::text[]) AS topic, generate_series(0, 3) AS n ORDER BY topic, n`, topics)
			cfg := s.config()
			cfg.Source, cfg.Delivery = source, relay.AtLeastOnce
			var sends []int
			cfg.Hooks.BeforeSend = func(rows int) { sends = append(sends, rows) }
			r := s.start(cfg)
			records := s.gather(20, topics...)
			require.NoError(t, r.stop())
			require.Equal(t, 5, sends[0], sends)
			for n, topic := range topics {
				var shared []string
				for _, record := range ofKey(records, "shared") {
					if record.Topic == topic {
						shared = append(shared, string(record.Value))
					}
				}
				require.Equal(t, []string{strconv.Itoa(4*n + 3), strconv.Itoa(4*n + 4)}, shared)
			}
		})
	}
}
