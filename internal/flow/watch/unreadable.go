package watch

import (
	"context"
	_ "embed"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A batch that unpacks to more than unpackBytes blocks its partition: kgo does not fetch from it any more. The session goes on
// with the other partitions, but judges nothing. It records the batch in troupe.unreadable_batches, where `troupe batch skip`
// marks it. Then it moves its offset behind the batch.

// unpackBytes limits what a batch may unpack to.
const unpackBytes = 64 << 20

var (
	//go:embed sql/record_batch.sql
	recordBatch string
	//go:embed sql/batch_skipped.sql
	batchSkipped string
)

// batchSizes holds the compressed size of the last batch of each partition that kgo could not unpack: its error does not have it.
type batchSizes struct {
	mu    sync.Mutex
	bytes map[partition]int64
}

// OnFetchBatchRead is kgo's hook.
func (b *batchSizes) OnFetchBatchRead(_ kgo.BrokerMetadata, topic string, id int32, batch kgo.FetchBatchMetrics) {
	if batch.NumRecords > 0 || batch.CompressionType == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes == nil {
		b.bytes = make(map[partition]int64)
	}
	b.bytes[partition{topic, id}] = int64(batch.CompressedBytes)
}

func (b *batchSizes) of(p partition) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes[p]
}

// block notes a batch that blocks its partition.
func (s *session) block(err *kgo.ErrDecompressTooLarge) {
	p := partition{err.Topic, err.Partition}
	if s.blocked == nil {
		s.blocked = make(map[partition]*kgo.ErrDecompressTooLarge)
	}
	s.blocked[p] = err
	s.cfg.Log.Error().Str("topic", p.topic).Int32("partition", p.partition).Int64("offset", err.Offset).Int64("next", err.NextOffset).
		Int64("bytes", s.sizes.of(p)).Msg("a batch that is too large when decompressed blocks the partition, and nothing is judged: see docs/runbooks/WatcherBehind.md")
}

// skipMarked records the batches that block a partition, and moves the offset behind each that an operator has marked as skipped.
func (s *session) skipMarked(ctx context.Context) error {
	for p, batch := range s.blocked {
		at := s.places[p]
		if batch.NextOffset == 0 || at.next > batch.Offset { // of a format without a last offset; deleted from the topic
			continue
		}
		args := pgx.NamedArgs{
			"group": "watch/" + s.cfg.Flow, "topic": p.topic, "topic_id": at.id, "partition": p.partition,
			"offset": batch.Offset, "next": batch.NextOffset, "bytes": s.sizes.of(p),
		}
		var skipped bool
		if _, err := s.cfg.Pool.Exec(ctx, recordBatch, args); err != nil {
			return fmt.Errorf("record a batch that cannot be read: %w", err)
		}
		if err := s.cfg.Pool.QueryRow(ctx, batchSkipped, args).Scan(&skipped); err != nil {
			return fmt.Errorf("look for skipped batches: %w", err)
		}
		if skipped {
			at.next = batch.NextOffset
			s.cfg.Log.Warn().Str("topic", p.topic).Int32("partition", p.partition).Int64("offset", batch.Offset).Int64("next", batch.NextOffset).
				Msg("an operator skipped a batch that cannot be read: the partition continues behind it")
		}
	}
	return nil
}

// passed reports whether the offset of a blocked partition is behind its batch: skipped, or deleted from the topic. kgo fetches
// from the partition in a new session only.
func (s *session) passed() bool {
	for p, batch := range s.blocked {
		if s.places[p].next > batch.Offset {
			return true
		}
	}
	return false
}
