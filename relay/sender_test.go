package relay

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/testkit"
)

func TestASendHoldsNoMoreThanOrderAllows(t *testing.T) {
	t.Parallel()
	row := func(topic string, size int) *item {
		return &item{record: &kgo.Record{Topic: topic}, size: size}
	}
	for _, c := range []struct {
		name  string
		queue []*item
		want  int // of the queue go out
	}{
		{"all of it", []*item{row("a", 10), row("b", 10), row("a", 10)}, 3},
		{"more than a batch holds", []*item{row("a", 900), row("a", 900)}, 2},
		{"no more than a send may hold", []*item{row("a", 900), row("a", 900), row("a", 200)}, 2},
		{"one that is larger than any batch goes alone, to be refused", []*item{row("a", 5000), row("b", 1)}, 1},
		{"and not behind others", []*item{row("b", 1), row("a", 5000)}, 1},
		{"the first to a topic goes without others of it", []*item{row("new", 1), row("a", 1), row("new", 1)}, 2},
		{"two that are new", []*item{row("new", 1), row("newer", 1), row("newer", 1)}, 2},
		{"a topic that refused larger batches", []*item{row("small", 50), row("a", 500), row("small", 60)}, 2},
		{"one row of it at least", []*item{row("small", 300), row("small", 1)}, 1},
		{"one batch, if a partition took nothing for long", []*item{row("idle", 500), row("a", 700), row("idle", 300), row("idle", 200)}, 3},
	} {
		s := &sender{
			maxBatch: 1000,
			maxSend:  2000,
			seen:     map[string]struct{}{"a": {}, "b": {}, "small": {}, "idle": {}},
			limits:   map[string]int{"small": 100},
			forgets:  time.Minute,
			taken:    map[string]taken{"a": {0: time.Now()}, "idle": {0: time.Now(), 1: time.Now().Add(-time.Minute)}},
		}
		now, later := s.cut(c.queue)
		require.Len(t, now, c.want, c.name)
		require.Len(t, later, len(c.queue)-c.want, c.name)
	}
}

func TestALimitShrinksFastAndGrowsSlowly(t *testing.T) {
	t.Parallel()
	s := &sender{maxBatch: 1000, seen: map[string]struct{}{}, limits: map[string]int{}}
	s.halve("t", 800)
	s.halve("t", 900)
	require.Equal(t, 400, s.limits["t"])
	sends := 0
	for ; s.limits["t"] > 0; sends++ {
		s.learn(&item{record: &kgo.Record{Topic: "t"}, size: s.limits["t"]})
	}
	require.Equal(t, 8, sends)
}

func TestASizeIsNeverBelowWhatTheRecordTakes(t *testing.T) {
	t.Parallel()
	// The longest varints there are: five bytes for each length and delta, ten for a timestamp's.
	r := &kgo.Record{Key: []byte("key"), Value: []byte(strings.Repeat("v", 100)), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}}}
	const most = 5 + 1 + 10 + 5 + (5 + 3) + (5 + 100) + 5 + (5 + 1 + 5 + 1)
	require.GreaterOrEqual(t, sizeOf(r), most)
}

// buffered is called for each record that is given to a client.
type buffered func()

func (b buffered) OnProduceRecordBuffered(*kgo.Record) { b() }

// If the records of a send to one topic had different limits, one of a key could be given up, and a later one be sent.
func TestTheRecordsOfASendToATopicAreGivenUpTogether(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(t.TempDir()), kfake.SeedTopics(1, "t"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	const most = 100 * time.Millisecond
	var givenUp time.Time
	client, err := kafka.NewClient(cluster.ListenAddrs(), kgo.ManualFlushing(), kgo.WithHooks(buffered(func() {
		for time.Since(givenUp) < most { // between the records the short limit ends
			runtime.Gosched()
		}
	})))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	s := newSender(client)
	givenUp = time.Now()
	s.patience = patience{most, time.Hour, time.Hour, map[string]giveUp{"t": {givenUp, 1}}}
	items := []*item{{record: &kgo.Record{Topic: "t"}}, {record: &kgo.Record{Topic: "t"}}}
	require.NoError(t, s.send(t.Context(), items))
	require.Same(t, items[0].record.Context, items[1].record.Context)
}

// A broker forgets the sequence numbers of a producer that wrote nothing to a partition for long (producer.id.expiration.ms), and then it
// accepts a batch behind one that it has refused.
func TestARefusedBatchIsNotOvertakenWhereTheBrokerHasForgottenTheProducer(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(t.TempDir()), kfake.SeedTopics(1, "t"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	var stored atomic.Int64
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		response := request.ResponseKind().(*kmsg.ProduceResponse)
		for _, asked := range request.(*kmsg.ProduceRequest).Topics {
			answer := kmsg.NewProduceResponseTopic()
			answer.Topic, answer.TopicID = asked.Topic, asked.TopicID
			for _, p := range asked.Partitions {
				partition := kmsg.NewProduceResponseTopicPartition()
				if partition.Partition = p.Partition; len(p.Records) > 500 {
					partition.ErrorCode = kerr.MessageTooLarge.Code
				} else {
					stored.Add(1)
				}
				answer.Partitions = append(answer.Partitions, partition)
			}
			response.Topics = append(response.Topics, answer)
		}
		return response, nil, true
	})
	r := &Relay{cfg: Config{Brokers: cluster.ListenAddrs()}}
	client, err := r.newClient(kgo.ProducerBatchMaxBytes(1000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	s := newSender(client)
	s.forgets = 0
	row := func(size int) *item {
		record := &kgo.Record{Topic: "t", Key: []byte("k"), Value: make([]byte, size)}
		return &item{record: record, size: sizeOf(record)}
	}
	require.NoError(t, s.send(t.Context(), []*item{row(1)}))
	now, later := s.cut([]*item{row(400), row(400), row(100)})
	require.NoError(t, s.send(t.Context(), now))
	require.ErrorIs(t, now[0].err, kerr.MessageTooLarge)
	require.NotEmpty(t, later)
	require.EqualValues(t, 1, stored.Load(), "a later row of the key")
}

// A topic that was created a moment ago may be known to one broker, and not yet to another one.
func TestATopicThatABrokerDoesNotKnowYetLacksNoPartition(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(t.TempDir()), kfake.SeedTopics(3, "t"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	cluster.ControlKey(int16(kmsg.Metadata), func(request kmsg.Request) (kmsg.Response, error, bool) {
		response := request.ResponseKind().(*kmsg.MetadataResponse)
		for _, asked := range request.(*kmsg.MetadataRequest).Topics {
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic, topic.ErrorCode = asked.Topic, kerr.UnknownTopicOrPartition.Code
			response.Topics = append(response.Topics, topic)
		}
		if len(response.Topics) == 0 {
			cluster.KeepControl()
			return nil, nil, false
		}
		return response, nil, true
	})
	client, err := kafka.NewClient(cluster.ListenAddrs())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	s := newSender(client)
	err = s.fits(t.Context(), "t", 2)
	require.NotErrorIs(t, err, errPartition)
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
	testkit.Wait(t, "the topic", func() (bool, error) { err := s.fits(t.Context(), "t", 2); return err == nil, err })
	require.ErrorIs(t, s.fits(t.Context(), "t", 3), errPartition)
}
