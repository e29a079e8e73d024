package participant_test

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
)

// TestAFetchOfManyMessagesEntersItsQueueInParts: a fetch of some kilobytes may have a hundred thousand messages of a partition, and each of them
// took a kilobyte in the queue.
func TestAFetchOfManyMessagesEntersItsQueueInParts(t *testing.T) {
	t.Parallel()
	const keys, each = 4, 3000
	s := newStage(t)
	s.provision(1)
	s.send(s.commands(keys, each)...)
	p := s.new(onePartition, func(c *participant.Config) {
		c.Batch = 100
		c.Kafka = append(c.Kafka, kgo.FetchMaxPartitionBytes(8<<20)) // however the sender divided them into batches
	})
	opened := make(chan struct{})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		select {
		case <-opened:
			return count(ctx, tx, c)
		case <-ctx.Done():
			return participant.Outcome{}, ctx.Err()
		}
	})
	s.start(p)
	waitFor(t, "a fetch", func() bool { return partitionOf(p, s.hop.Commands()).Running > 0 })
	of := partitionOf(p, s.hop.Commands())
	require.Greater(t, of.Waiting+of.Running, participant.PushAtOnce, "the fetch was too small for this test")
	require.True(t, of.Paused)
	require.LessOrEqual(t, p.Backlog(), participant.PushAtOnce)
	close(opened)
	s.expectAll(keys, each)
}

// TestHeldMessagesAreReadByTheBytesOfTheirKeysAndHeaders: a compressed batch of some kilobytes may have a hundred messages of one key of many
// megabytes. If the first of them fails, the others wait in troupe.held, and are read from there.
func TestHeldMessagesAreReadByTheBytesOfTheirKeysAndHeaders(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		key       string
		header    int
		n, atOnce int // messages of the key, and the largest number of them in a transaction
	}{
		"a key of 600 kB":  {strings.Repeat("k", 600_000), 0, 4, 1},
		"headers of 60 kB": {"k", 60_000, 40, 17},
		"a usual key":      {"k", 0, 40, 39}, // the one that failed runs alone
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.provision(1)
			var broken atomic.Bool
			var largest atomic.Int64
			broken.Store(true)
			p := s.new(onePartition, holdLong, func(c *participant.Config) {
				c.Batch = 100
				c.Hooks.BeforeHandler = func(d participant.Delivery) {
					if !broken.Load() {
						largest.Store(max(largest.Load(), int64(d.Batch)))
					}
				}
			})
			participant.Handle(p, func(context.Context, pgx.Tx, participant.Command[Count]) (participant.Outcome, error) {
				if broken.Load() {
					return participant.Outcome{}, errAsked
				}
				return participant.Succeed(Counted{}), nil
			})
			s.start(p)
			for n := range test.n {
				r := kafka.Record(s.command("k", Count{N: n}))
				r.Key = []byte(test.key)
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: "h", Value: bytes.Repeat([]byte("h"), test.header)})
				require.NoError(t, s.client.ProduceSync(t.Context(), r).FirstErr())
			}
			s.waitCount(test.n, "SELECT count(*) FROM troupe.held")
			broken.Store(false)
			s.due()
			s.waitCount(0, "SELECT count(*) FROM troupe.held")
			require.EqualValues(t, test.atOnce, largest.Load())
		})
	}
}
