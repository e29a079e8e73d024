package kafka_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/testkit"
)

// A batch of zeros has a few bytes, so that a response of the usual size has hundreds of them. A client that unpacked all of them at once
// would need as much memory as the producer likes.
func TestManyBatchesThatUnpackToMuchAreUnpackedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	const limit, batches = 1 << 20, 300
	topic := testkit.Flow(t) + ".a.commands"
	bomber := producer(t)
	testkit.Topics(t, bomber, 2, topic)
	for i := range batches {
		require.NoError(t, bomber.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: make([]byte, 900<<10)}).FirstErr())
	}
	require.NoError(t, bomber.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: 1, Key: []byte("other"), Value: []byte("1")}).FirstErr())

	client, err := kafka.NewClient(testkit.Kafka(t), kgo.ConsumeTopics(topic), kgo.MaxDecompressBatchBytes(limit), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer client.Close()
	seen, order := make(map[string]bool), 0
	for len(seen) < batches+1 {
		size := 0
		fetches := client.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			size += len(r.Value)
			if seen[string(r.Key)] = true; r.Partition == 0 {
				require.Equal(t, fmt.Sprint(order), string(r.Key))
				order++
			}
		})
		require.LessOrEqual(t, size, 4*limit, "%d messages of %d have come", len(seen), batches+1)
	}
}

// A message without key and value has seven bytes in a batch and hundreds in memory.
func TestABatchOfTooManyMessagesUnpacksToTooMuch(t *testing.T) {
	t.Parallel()
	const limit, messages = 1 << 20, 100_000
	topic := testkit.Flow(t) + ".a.commands"
	bomber := producer(t, kgo.ManualFlushing(), kgo.MaxBufferedRecords(messages))
	testkit.Topics(t, bomber, 1, topic)
	for range messages {
		bomber.Produce(t.Context(), &kgo.Record{Topic: topic}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	require.NoError(t, bomber.Flush(t.Context()))
	client, err := kafka.NewClient(testkit.Kafka(t), kgo.ConsumeTopics(topic), kgo.MaxDecompressBatchBytes(limit), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer client.Close()
	require.ErrorIs(t, client.PollFetches(t.Context()).Err(), kgo.ErrMaxDecompress)
}

// A message without key and value does not refer to the bytes of its batch: these were collected, and the next batch was unpacked, while a
// client still had the messages.
func TestBatchesOfEmptyMessagesCountAsLongAsTheirMessages(t *testing.T) {
	t.Parallel()
	const limit, batches, messages = 1 << 20, 20, 6000
	topic := testkit.Flow(t) + ".a.commands"
	bomber := producer(t, kgo.ManualFlushing(), kgo.MaxBufferedRecords(messages))
	testkit.Topics(t, bomber, 1, topic)
	for range batches {
		for range messages {
			bomber.Produce(t.Context(), &kgo.Record{Topic: topic}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		require.NoError(t, bomber.Flush(t.Context()))
	}
	client, err := kafka.NewClient(testkit.Kafka(t), kgo.ConsumeTopics(topic), kgo.MaxDecompressBatchBytes(limit), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer client.Close()
	var held []*kgo.Record
	for more := true; more; {
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
		next := client.PollFetches(ctx).Records()
		more = ctx.Err() == nil
		stop()
		held = append(held, next...)
		require.LessOrEqual(t, len(held), 3*messages)
	}
	require.NotEmpty(t, held)
	runtime.KeepAlive(held)
	n := len(held)
	clear(held)
	for n < batches*messages {
		n += len(client.PollFetches(t.Context()).Records())
	}
}

// A header without name and value has two bytes in a batch and 40 in a record.
func TestABatchOfTooManyHeadersUnpacksToTooMuch(t *testing.T) {
	t.Parallel()
	const limit, headers = 1 << 20, 400_000
	topic := testkit.Flow(t) + ".a.commands"
	bomber := producer(t)
	testkit.Topics(t, bomber, 1, topic)
	require.NoError(t, bomber.ProduceSync(t.Context(), &kgo.Record{
		Topic: topic, Key: []byte("k"), Value: []byte("v"), Headers: make([]kgo.RecordHeader, headers),
	}).FirstErr())
	client, err := kafka.NewClient(testkit.Kafka(t), kgo.ConsumeTopics(topic), kgo.MaxDecompressBatchBytes(limit), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer client.Close()
	require.ErrorIs(t, client.PollFetches(t.Context()).Err(), kgo.ErrMaxDecompress)
}

func producer(t *testing.T, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kafka.NewClient(testkit.Kafka(t), append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(8<<20), kgo.ProducerBatchCompression(kgo.ZstdCompression()))...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}
