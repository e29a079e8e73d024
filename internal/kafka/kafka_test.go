package kafka_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func client(t *testing.T) *kgo.Client {
	t.Helper()
	c, err := kafka.NewClient(testkit.Kafka(t))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestAMessageSurvivesTheBroker(t *testing.T) {
	c, topic := client(t), testkit.Flow(t)+".payment.events"
	require.NoError(t, kafka.Provision(t.Context(), c, kafka.Topic{Name: topic, Partitions: 1}))
	sent := envelope.Message{
		Topic: topic, Key: []byte{0, 0xff}, Payload: []byte("{}"), ID: envelope.NewID(), Type: "PaymentCharged", Outcome: envelope.Success,
		Extra: []envelope.Header{{Key: "x", Value: []byte{0xfe}}, {Key: "x", Value: nil}, {Key: "", Value: []byte{}}},
	}
	require.NoError(t, c.ProduceSync(t.Context(), kafka.Record(sent)).FirstErr())
	consumer := testkit.Consume(t, testkit.Kafka(t), topic)
	consumer.WaitN(1)
	got, err := kafka.Message(consumer.Records()[0])
	require.NoError(t, err)
	require.False(t, got.Time.IsZero(), "the record's own time serves where ce_time is missing")
	got.Time = sent.Time
	require.Equal(t, sent, got)
}

func TestTooManyHeadersAreAnErrorThatKeepsTheRest(t *testing.T) {
	r := &kgo.Record{Topic: "t", Value: []byte("v"), Headers: make([]kgo.RecordHeader, envelope.MaxHeaders+1)}
	m, err := kafka.Message(r)
	require.ErrorIs(t, err, envelope.ErrHeaders)
	require.Equal(t, []byte("v"), m.Payload)
}

func TestProvisioningTwiceLeavesWhatIsThere(t *testing.T) {
	c, name := client(t), testkit.Flow(t)+".payment.commands"
	require.NoError(t, kafka.Provision(t.Context(), c, kafka.Topic{Name: name, Partitions: 3}))
	before, err := kafka.TopicIDs(t.Context(), c, name, "none."+name)
	require.NoError(t, err)
	require.Len(t, before, 1)
	require.NoError(t, kafka.Provision(t.Context(), c, kafka.Topic{Name: name, Partitions: 5}))
	after, err := kafka.TopicIDs(t.Context(), c, name)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestProvisionNamesTheTopicThatFailed(t *testing.T) {
	err := kafka.Provision(t.Context(), client(t), kafka.Topic{Name: testkit.Flow(t) + ".payment.dlq", Replicas: 99})
	require.ErrorIs(t, err, kerr.InvalidReplicationFactor)
	require.ErrorContains(t, err, ".payment.dlq")
}

func TestErrorsOfTheBrokerAreClassified(t *testing.T) {
	for err, want := range map[error]kafka.Class{
		kerr.UnknownTopicOrPartition:   kafka.UnknownTopic,
		kerr.MessageTooLarge:           kafka.Unsendable,
		kerr.TopicAuthorizationFailed:  kafka.Refused,
		kerr.InvalidProducerEpoch:      kafka.Fenced,
		kerr.NotLeaderForPartition:     kafka.Unavailable,
		kgo.ErrRecordTimeout:           kafka.Unavailable,
		errors.New("connection reset"): kafka.Unavailable,
	} {
		require.Equal(t, want, kafka.Classify(fmt.Errorf("produce: %w", err)), "%v", err)
	}
}

// An arriving is a hook that has a message arrive after each answer of a broker about offsets.
type arriving struct{ arrive func() }

func (a arriving) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == int16(kmsg.ListOffsets) {
		a.arrive()
	}
}

func TestAMessageThatArrivesWhileOffsetsAreListedIsNotPassedOver(t *testing.T) {
	c, topic := client(t), testkit.Flow(t)+".payment.events"
	require.NoError(t, kafka.Provision(t.Context(), c, kafka.Topic{Name: topic, Partitions: 1}))
	since := time.Now().Add(time.Hour) // no message is found by its time, as if each had arrived right after that query
	lists, err := kafka.NewClient(testkit.Kafka(t), kgo.WithHooks(arriving{func() {
		require.NoError(t, c.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("{}")}).FirstErr())
	}}))
	require.NoError(t, err)
	t.Cleanup(lists.Close)
	listed, err := kafka.Since(t.Context(), lists, since, topic)
	require.NoError(t, err)
	first, found := listed.Lookup(topic, 0)
	require.True(t, found)
	require.Zero(t, first.Offset)
}

// A partition is added while offsets are listed. Its messages are not passed over, though the first of them is there before its end is read.
func TestAPartitionThatIsAddedWhileOffsetsAreListedBeginsAtItsStart(t *testing.T) {
	c, topic := client(t), testkit.Flow(t)+".payment.events"
	require.NoError(t, kafka.Provision(t.Context(), c, kafka.Topic{Name: topic, Partitions: 1}))
	const metadataAge = 10 * time.Millisecond
	var once sync.Once
	lists, err := kafka.NewClient(testkit.Kafka(t), kgo.MetadataMinAge(metadataAge), kgo.WithHooks(arriving{func() {
		once.Do(func() {
			began := time.Now()
			_, err := kadm.NewClient(c).UpdatePartitions(t.Context(), 2, topic)
			require.NoError(t, err)
			written, err := kafka.NewClient(testkit.Kafka(t), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			require.NoError(t, err)
			defer written.Close()
			require.NoError(t, written.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: 1, Value: []byte("{}")}).FirstErr())
			testkit.Wait(t, "the cached metadata to be old", func() (bool, error) { return time.Since(began) > metadataAge, nil })
		})
	}}))
	require.NoError(t, err)
	t.Cleanup(lists.Close)
	listed, err := kafka.Since(t.Context(), lists, time.Now().Add(time.Hour), topic)
	require.NoError(t, err)
	added, found := listed.Lookup(topic, 1)
	require.True(t, found)
	require.Zero(t, added.Offset)
}
