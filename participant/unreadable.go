package participant

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/pg"
)

// A batch that unpacks to more than unpackBytes blocks its partition: kgo does not fetch from the partition any more. The worker records the batch in
// troupe.unreadable_batches, where `troupe batch skip` marks it as skipped. Then the worker queues a record with the batch's last offset behind all
// messages before the batch. When that record ends, the group's offset is behind the batch, and the member joins again.
//
// The queued record writes no row of troupe.inbox_offsets. If the process crashes before the record's offset is committed and the watermark is
// stored, the batch blocks the next owner too: it finds the batch marked, and skips it again.

var (
	//go:embed sql/record_batch.sql
	recordBatch string
	//go:embed sql/batch_skipped.sql
	batchSkipped string
)

// errSkipped ends a membership, since kgo fetches from a blocked partition only after it is assigned again.
var errSkipped = errors.New("a batch that cannot be read was skipped: the member joins again")

// unreadableBatch is a batch that blocks its partition.
type unreadableBatch struct {
	err     error
	topicID uuid.UUID
	first   int64
	next    int64 // the first offset behind the batch; 0: not known, and the batch cannot be skipped
	epoch   int32
	bytes   int64 // compressed

	last *kgo.Record // queued in place of the batch, once it is marked as skipped; used by the worker's keep only
}

// OnFetchBatchRead is kgo's hook: it stores the size of a batch that kgo cannot unpack, which the error does not have.
func (c *consumer) OnFetchBatchRead(_ kgo.BrokerMetadata, topic string, partition int32, batch kgo.FetchBatchMetrics) {
	if batch.NumRecords > 0 || batch.CompressionType == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.workers[topicPartition{topic, partition}]; w != nil {
		w.unreadBytes.Store(int64(batch.CompressedBytes))
	}
}

// block stores the batch that blocks the partition, and logs it. The member does not join again: the batch would still be there.
func (w *worker) block(topicID uuid.UUID, err error) {
	b := &unreadableBatch{err: err, topicID: topicID, bytes: w.unreadBytes.Load()}
	var tooLarge *kgo.ErrDecompressTooLarge
	if errors.As(err, &tooLarge) {
		b.first, b.next, b.epoch = tooLarge.Offset, tooLarge.NextOffset, tooLarge.Epoch
	}
	w.blocked.Store(b)
	w.p.cfg.Log.Error().Err(err).Stringer("partition", w.at).Int64("bytes", b.bytes).
		Msg("a batch that is too large when decompressed blocks the partition: see docs/runbooks/ParticipantNotReady.md")
}

// skipMarked records the batch that blocks the partition in the database. Once an operator has marked it as skipped, skipMarked queues a record in
// its place.
func (w *worker) skipMarked(ctx context.Context) error {
	b := w.blocked.Load()
	if b == nil || b.next == 0 || b.last != nil {
		return nil
	}
	args := pg.Args{
		"group": w.p.cfg.Group, "topic": w.topic, "topic_id": b.topicID, "partition": w.id, "offset": b.first, "next": b.next, "bytes": b.bytes,
	}
	if _, err := w.p.cfg.Pool.Exec(ctx, recordBatch, args); err != nil {
		return err
	}
	delete(args, "topic")
	delete(args, "next")
	delete(args, "bytes")
	var skipped bool
	if err := w.p.cfg.Pool.QueryRow(ctx, batchSkipped, args).Scan(&skipped); err != nil || !skipped {
		return err
	}
	b.last = &kgo.Record{
		Topic: w.topic, Partition: w.id, Offset: b.next - 1, LeaderEpoch: b.epoch,
		Timestamp: time.Now().Add(-w.later.delay), // so that it is due
	}
	w.skip.Store(b.last)
	w.p.cfg.Log.Warn().Stringer("partition", w.at).Int64("offset", b.first).Int64("next", b.next).Int64("bytes", b.bytes).
		Msg("an operator skipped a batch that cannot be read: the partition continues behind it")
	w.reportLoss()
	w.receive(b.topicID, []*kgo.Record{b.last})
	return nil
}

// joinBehind ends the membership once the skipped batch's last offset has ended, and with it all messages before the batch. The member then joins
// again and reads from behind the batch, since kgo does not fetch from a blocked partition until it is assigned again.
func (w *worker) joinBehind(at lowMark) {
	if last := w.skip.Load(); last != nil && at.offset >= last.Offset {
		w.c.abandon(errSkipped)
	}
}
