package relay_test

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
)

// publishFailures is a hook that passes on the failure that it gets.
func publishFailures(cfg *relay.Config) <-chan relay.PublishFailure {
	seen := make(chan relay.PublishFailure, 10_000)
	cfg.Hooks.PublishFailed = func(failure relay.PublishFailure) { seen <- failure }
	return seen
}

// A23: attempts are counted, each has its time, and none comes earlier. No other row waits meanwhile.
func TestAnUnknownTopicIsTriedUntilItIsThere(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	later := s.flow + ".later.commands"
	s.insert(later, "a", "0")
	s.insert(later, "a", "1")
	s.insert(later, "b", "0")
	s.insert(s.topic, "a", "behind a")
	s.insert(s.topic, "c", "free")
	cfg := s.config()
	cfg.Retry = retry.Policy{Initial: time.Hour, Cap: time.Hour, NoJitter: true}
	cfg.UnknownTopic = 100 * time.Hour
	seen := publishFailures(&cfg)
	all := cfg.Hooks.PublishFailed
	cfg.Hooks.PublishFailed = func(failure relay.PublishFailure) {
		if failure.Topic == later {
			all(failure)
		}
	}
	s.start(cfg)
	consumer := testkit.Consume(t, s.brokers, s.topic)
	testkit.Wait(t, "the free row", func() (bool, error) {
		// A broker may take a moment to know a topic that was just created.
		s.exec("UPDATE troupe.outbox_failures SET next_try = clock_timestamp() WHERE topic = $1 AND status = 'retrying'", s.topic)
		return len(consumer.Records()) == 1, nil
	})
	require.Equal(t, []string{"free"}, values(consumer.Records()))

	tried := func(attempts int) {
		t.Helper()
		rows := make(map[int64]bool)
		for range 2 {
			failure := <-seen
			require.False(t, failure.Parked)
			require.ErrorIs(t, failure.Err, kerr.UnknownTopicOrPartition)
			require.Equal(t, attempts, failure.Attempts)
			rows[failure.Position] = true
		}
		require.Len(t, rows, 2, "only the first row of each key is tried")
	}
	due := func() {
		s.exec("UPDATE troupe.outbox_failures SET next_try = clock_timestamp() WHERE status = 'retrying'")
	}
	tried(1)
	for n := range 3 { // rounds go by
		s.insert(s.topic, "d", strconv.Itoa(n))
		consumer.WaitN(2 + n)
	}
	require.Empty(t, seen, "next_try is honoured")
	due()
	tried(2)
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox_status WHERE status = 'retrying' AND attempts = 2"))
	// A poll leaves them out, a stream records them.
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox_status WHERE key = 'a' AND status IN ('pending', 'waiting')"))

	s.provision(kafka.Topic{Name: later, Partitions: 1})
	testkit.Wait(t, "the row behind", func() (bool, error) {
		due() // they wait for an hour
		return len(values(consumer.Records())) == 5, nil
	})
	require.Equal(t, []string{"free", "0", "1", "2", "behind a"}, values(consumer.Records()))
	require.Len(t, s.collect(3, later), 3)
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox_failures"))
}

func TestAnUnknownTopicIsParkedInTheEnd(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload) SELECT $1, NULL, 'Thing', '' FROM generate_series(1, 2500)`,
		s.flow+".never.commands")
	s.insert("no topic's name: 💥", "b", "")
	s.insert(s.topic, "free", "free")
	cfg := s.config()
	cfg.UnknownTopic = 300 * time.Millisecond
	seen := publishFailures(&cfg)
	s.start(cfg)
	parked := make(map[int64]relay.PublishFailure)
	for len(parked) < 2501 {
		if failure := <-seen; failure.Parked {
			require.NotContains(t, parked, failure.Position, "parked once")
			parked[failure.Position] = failure
		}
	}
	require.Greater(t, parked[1].Attempts, 1)
	if errors.Is(parked[2501].Err, kerr.InvalidTopicException) { // which the embedded broker never says
		require.Equal(t, 1, parked[2501].Attempts, "it can never be")
	}
	require.Equal(t, []string{"free"}, values(testkit.Consume(t, s.brokers, s.topic).WaitN(1)))
	require.Equal(t, 2501, s.count("SELECT count(*) FROM troupe.outbox_status WHERE status = 'parked' AND next_try IS NULL"))
}

// A topic can be deleted while the client knows its name; the same name may become another topic.
func TestATopicThatWasDeletedAndMadeAnewIsFound(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	topic := s.createTopic("again", 1)
	cfg := s.config()
	cfg.Retry = retry.Policy{Initial: 50 * time.Millisecond, Cap: 100 * time.Millisecond}
	seen := publishFailures(&cfg)
	s.start(cfg)
	s.insert(topic, "k", "0")
	s.waitEmpty()
	s.deleteTopic(topic)
	s.insert(topic, "k", "1")
	failure := <-seen
	for failure.Position != 2 { // the first row's: a broker may take a moment to know a topic that was just created
		failure = <-seen
	}
	require.Equal(t, kafka.UnknownTopic, kafka.Classify(failure.Err))
	s.provision(kafka.Topic{Name: topic, Partitions: 1})
	require.Equal(t, []string{"1"}, values(s.collect(1, topic)))
}

func TestHeadersThatCannotBeReadParkTheRow(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload, raw_headers) VALUES ($1, 'a', 'Thing', '', '\x07')`, s.topic)
	s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload, headers)
		VALUES ($1, 'b', 'Thing', '', jsonb_build_object('much', repeat('x', 100000)))`, s.topic)
	s.insert(s.topic, "a", "behind")
	s.insert(s.topic, "c", "free")
	cfg := s.config()
	seen := publishFailures(&cfg)
	s.start(cfg)
	for range 2 {
		require.True(t, (<-seen).Parked)
	}
	require.Equal(t, []string{"free"}, values(testkit.Consume(t, s.brokers, s.topic).WaitN(1)))
	testkit.Wait(t, "the parked row, and the rows behind it", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.outbox") == 3, nil
	})
}

func TestRowsWithoutAKeyWaitForNobody(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const row = `INSERT INTO troupe.outbox (topic, type, payload, raw_headers) VALUES ($1, 'Thing', $2, $3)`
	s.exec(row, s.topic, []byte("bad"), []byte{7})
	s.exec(row, s.topic, []byte("good"), nil)
	s.start(s.config())
	require.Equal(t, []string{"good"}, values(testkit.Consume(t, s.brokers, s.topic).WaitN(1)))
}

// An operator deleted the row and left its line: the key must not wait forever.
func TestAFailureWithoutItsRowBlocksNoKey(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, nil) // no other test's open transaction delays it
	s.exec(`INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, last_error)
		VALUES (0, troupe.uuidv7(), $1, 'k', 'parked', 1, 1, 'gone')`, s.topic)
	s.insert(s.topic, "k", "free")
	s.start(s.config())
	require.Equal(t, []string{"free"}, values(testkit.Consume(t, s.brokers, s.topic).WaitN(1)))
}

// refusing is a broker that answers produce requests for a topic with an error while it is switched on.
func refusing(t *testing.T, topic string, refusal func() *kerr.Error) []string {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(t.TempDir()), kfake.SeedTopics(1, topic, topic+".free"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	ids := cluster.TopicInfo(topic).TopicID
	cluster.ControlKey(0, func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		produce := request.(*kmsg.ProduceRequest)
		refused := refusal()
		if refused == nil {
			return nil, nil, false
		}
		its := func(asked kmsg.ProduceRequestTopic) bool { return asked.TopicID == ids || asked.Topic == topic }
		if !slices.ContainsFunc(produce.Topics, its) {
			return nil, nil, false
		}
		// A request may contain other topics too: none of their records is stored, and the client sends them again by itself.
		response := produce.ResponseKind().(*kmsg.ProduceResponse)
		for _, asked := range produce.Topics {
			answer := kmsg.NewProduceResponseTopic()
			answer.Topic, answer.TopicID = asked.Topic, asked.TopicID
			for _, p := range asked.Partitions {
				partition := kmsg.NewProduceResponseTopicPartition()
				partition.Partition, partition.ErrorCode = p.Partition, kerr.NotLeaderForPartition.Code
				if its(asked) {
					partition.ErrorCode = refused.Code
				}
				answer.Partitions = append(answer.Partitions, partition)
			}
			response.Topics = append(response.Topics, answer)
		}
		return response, nil, true
	})
	return cluster.ListenAddrs()
}

// A topic that fails for a reason of the broker's own is waited for. Rows that were acknowledged in the same send are done,
// and are not sent again with every attempt.
func TestRowsAcknowledgedBehindAFailureAreNotSentAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(t.TempDir()), kfake.SeedTopics(1, "closed", "closed.free"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	closed := cluster.TopicInfo("closed").TopicID
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		response := request.ResponseKind().(*kmsg.ProduceResponse)
		for _, asked := range request.(*kmsg.ProduceRequest).Topics {
			answer := kmsg.NewProduceResponseTopic()
			answer.Topic, answer.TopicID = asked.Topic, asked.TopicID
			for _, p := range asked.Partitions {
				partition := kmsg.NewProduceResponseTopicPartition()
				partition.Partition = p.Partition
				if asked.TopicID == closed || asked.Topic == "closed" {
					partition.ErrorCode = kerr.UnknownServerError.Code
				}
				answer.Partitions = append(answer.Partitions, partition)
			}
			response.Topics = append(response.Topics, answer)
		}
		return response, nil, true
	})
	s.brokers = cluster.ListenAddrs()
	s.insert("closed", "a", "0")
	for n := range 20 {
		s.insert("closed.free", "b", strconv.Itoa(n))
	}
	s.start(s.config())
	testkit.Wait(t, "the others", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.outbox WHERE topic = 'closed.free'") == 0, nil
	})
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.outbox"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox_failures"))
}

// Kafka responds like this for a topic on which the client has no right at all.
func TestATopicThatWeMayNotDescribeHoldsNobodyElseBack(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(t.TempDir()), kfake.SeedTopics(1, "free"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	host, port, err := net.SplitHostPort(cluster.ListenAddrs()[0])
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	cluster.ControlKey(int16(kmsg.Metadata), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		asked := request.(*kmsg.MetadataRequest)
		closed := func(t kmsg.MetadataRequestTopic) bool { return t.Topic != nil && *t.Topic == "closed" }
		if !slices.ContainsFunc(asked.Topics, closed) {
			return nil, nil, false
		}
		response := asked.ResponseKind().(*kmsg.MetadataResponse)
		broker := kmsg.NewMetadataResponseBroker()
		broker.Host, broker.Port = host, int32(number)
		response.Brokers = append(response.Brokers, broker)
		for _, a := range asked.Topics {
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic = a.Topic
			if closed(a) {
				topic.ErrorCode = kerr.TopicAuthorizationFailed.Code
			} else {
				topic.TopicID = cluster.TopicInfo(*a.Topic).TopicID
				partition := kmsg.NewMetadataResponseTopicPartition()
				partition.Replicas, partition.ISR = []int32{0}, []int32{0}
				topic.Partitions = append(topic.Partitions, partition)
			}
			response.Topics = append(response.Topics, topic)
		}
		return response, nil, true
	})
	s.brokers = cluster.ListenAddrs()
	cfg := s.config()
	cfg.Retry = retry.Policy{Initial: 10 * time.Millisecond, Cap: 20 * time.Millisecond, Attempts: 2}
	seen := publishFailures(&cfg)
	s.insert("closed", "a", "0")
	s.insert(strings.Repeat("x", 40_000), "c", "far too long a name")
	s.insert("free", "b", "free")
	s.start(cfg)
	require.Equal(t, []string{"free"}, values(testkit.Consume(t, s.brokers, "free").WaitN(1)))
	for parked := 0; parked < 2; {
		failure := <-seen
		if failure.Parked {
			parked++
		}
	}
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'"))
}

func TestATopicThatRefusesUsIsRetriedByThePolicyAndThenParked(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.brokers = refusing(t, "closed", func() *kerr.Error { return kerr.TopicAuthorizationFailed })
	cfg := s.config()
	cfg.Retry = retry.Policy{Initial: 10 * time.Millisecond, Cap: 20 * time.Millisecond, Attempts: 3}
	seen := publishFailures(&cfg)
	s.insert("closed", "a", "0")
	s.insert("closed", "a", "1")
	s.insert("closed.free", "b", "free")
	s.start(cfg)
	for attempt := 1; attempt <= 3; attempt++ {
		failure := <-seen
		require.ErrorIs(t, failure.Err, kerr.TopicAuthorizationFailed)
		require.Equal(t, attempt, failure.Attempts)
		require.Equal(t, attempt == 3, failure.Parked)
	}
	require.Equal(t, []string{"free"}, values(testkit.Consume(t, s.brokers, "closed.free").WaitN(1)))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.outbox_status WHERE status = 'parked' AND attempts = 3 AND max_attempts = 3"))
}

// A failure of the whole broker is not the row's: no attempt is counted, and the relay continues by itself.
func TestABrokerThatFailsParksNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	failures := make(chan struct{}, 5)
	for range cap(failures) {
		failures <- struct{}{}
	}
	s.brokers = refusing(t, "ill", func() *kerr.Error {
		select {
		case <-failures:
			return kerr.UnknownServerError
		default:
			return nil
		}
	})
	committed := s.fill("ill", 5, 20)
	cfg := s.config()
	cfg.Hooks.PublishFailed = func(failure relay.PublishFailure) { t.Errorf("%+v", failure) }
	r := s.start(cfg)
	judge(s.collect(100, "ill"), committed).requireSound(t)
	require.Contains(t, r.Status().LastError, "UNKNOWN_SERVER_ERROR")
}

// The refusal of one batch must not let a later record of its key through, whenever the refusal ends.
func TestARefusedBatchIsNotOvertaken(t *testing.T) {
	t.Parallel()
	for _, refusal := range []*kerr.Error{kerr.MessageTooLarge, kerr.InvalidRecord, kerr.UnknownServerError} {
		t.Run(strings.ToLower(refusal.Message), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			requests := 0
			s.brokers = refusing(t, "moody", func() *kerr.Error {
				requests++
				first := requests == 1 && refusal == kerr.UnknownServerError // for a single row it would be the row's own failure
				if first || requests%5 == 2 && requests < 25 {
					return refusal
				}
				return nil
			})
			// So many that a refusal would come back while the client is still being handed the rest of the send.
			committed := s.fill("moody", 3, 3000)
			cfg := s.config()
			cfg.Batch = 9000
			s.start(cfg)
			records := s.collect(9000, "moody")
			judge(records, committed).requireSound(t)
		})
	}
}

func (s *stage) deleteTopic(topic string) {
	s.t.Helper()
	client, err := kafka.NewClient(s.brokers)
	require.NoError(s.t, err)
	defer client.Close()
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.TopicNames = []string{topic}
	request.TimeoutMillis = 10_000
	one := kmsg.NewDeleteTopicsRequestTopic()
	one.Topic = kmsg.StringPtr(topic)
	request.Topics = append(request.Topics, one)
	response, err := request.RequestWith(s.t.Context(), client)
	require.NoError(s.t, err)
	require.NoError(s.t, errors.Join(kerr.ErrorForCode(response.Topics[0].ErrorCode)))
	// A broker may take a moment to forget it, and accepts records for it meanwhile.
	testkit.Wait(s.t, "the topic gone", func() (bool, error) {
		ids, err := kafka.TopicIDs(s.t.Context(), client, topic)
		return len(ids) == 0, err
	})
}

// A new topic refuses this relay. The rows of many keys wait for it, and all of them are recorded after one send, so that the rows of other topics do
// not wait for a send of each.
func TestARefusedTopicCostsOneSendForRowsOfManyKeys(t *testing.T) {
	t.Parallel()
	for _, delivery := range []relay.Delivery{relay.AtLeastOnce, relay.ExactlyOnce} {
		t.Run(string(delivery), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			var asked atomic.Int32
			s.brokers = refusing(t, "closed", func() *kerr.Error {
				asked.Add(1)
				return kerr.TopicAuthorizationFailed
			})
			cfg := s.config()
			cfg.Retry.Attempts = 1
			if delivery == relay.ExactlyOnce {
				needsLog(t)
				cfg.Source, cfg.Delivery = relay.WAL, delivery
			}
			s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload)
				SELECT CASE WHEN n % 5 = 0 THEN 'closed.free' ELSE 'closed' END, 'k' || n, 'Thing', '' FROM generate_series(1, 200) n`)
			s.start(cfg)
			testkit.Wait(t, "the parked rows", func() (bool, error) {
				return s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'") == 160, nil
			})
			testkit.Consume(t, s.brokers, "closed.free").WaitN(40)
			require.Less(t, asked.Load(), int32(20))
		})
	}
}
