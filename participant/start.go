package participant

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/internal/kafka"
)

// An assigned partition is read from the group's committed offset, with these exceptions.
//
//   - A topic that was deleted and created again, or restored elsewhere, has the same name, and its offsets mean something
//     else. Brokers before OffsetCommit version 10 store offsets by name. Each offset that a participant commits therefore
//     names its topic's id in its metadata. An offset with the id of another topic is ignored, and the topic is read from
//     its start. The inbox recognises the messages that were handled before.
//   - The committed offset is ahead of the watermark: the last owner crashed before it moved the watermark, or the
//     database has lost commits (a failover to a standby that lagged, a restore). The partition is read from the watermark.
//     Messages that the database still has are skipped; messages that it has lost take effect again.
//   - An offset without such metadata was set by an operator or a tool. The partition is read from there: the offset may skip a
//     batch that cannot be read. If the offset is below the watermark, which a reset cannot lower, a log line has the number of
//     skipped offsets. If it is above, the watermark is moved there before the first message.
//   - A rebuild reads the partition again, or was cancelled: the partition is read from the watermark, which has been set back or forward.
//   - A participant committed an offset of the topic, but the database's watermark is of an earlier topic of that name: the watermark of
//     this topic was never written, or was lost. The topic is read from its start.
//
// If the database has no watermark of the partition at all, the committed offset is used: for a new topic, or at the group's first start. Messages
// below it then count as handled, also if the database was set back to before the group's first watermark of the partition, which is stored about a
// second after the partition is first assigned: a warning reports them. A crash of the group's first owner, in its first second, looks the same: then
// nothing is lost, and the warning may be ignored.

const (
	topicNotePrefix = "topic id "

	compareLimit   = time.Second     // of one request of compareEnds and lostFrom
	availableLimit = 5 * time.Second // of compareEnds, while a new leader does not know the end of the log
	compareEvery   = 100 * time.Millisecond
)

func topicNote(id uuid.UUID) string { return topicNotePrefix + id.String() }

// committedOffset holds the contents of the metadata of a partition's committed offset.
type committedOffset struct {
	topicID       uuid.UUID // of the topic that exists now
	byParticipant bool      // a participant committed it, for this topic
	recreated     bool      // a participant committed it, for a topic of that name that is gone
}

// readMetadata parses the metadata of the group's committed offsets. kgo calls it when it has fetched the offsets.
func (c *consumer) readMetadata(ctx context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	<-c.built
	ids, err := kafka.TopicIDs(ctx, c.client, c.consumed...)
	if err != nil {
		return fmt.Errorf("topic ids: %w", err)
	}
	names := make(map[uuid.UUID]string, len(ids))
	for name, id := range ids {
		names[id] = name
	}
	c.committed = make(map[topicPartition]committedOffset)
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			if t.Topic == "" {
				t.Topic = names[t.TopicID]
			}
			known, there := ids[t.Topic]
			if !there { // a broker that has just started may not know all topics yet: the topic does not count as created again
				return fmt.Errorf("the broker that was asked for the id of topic %q does not know the topic", cmp.Or(t.Topic, uuid.UUID(t.TopicID).String()))
			}
			id := kafka.TopicID(t.Topic, known)
			for _, p := range t.Partitions {
				o := committedOffset{topicID: id}
				if p.Metadata != nil && strings.HasPrefix(*p.Metadata, topicNotePrefix) {
					o.byParticipant = *p.Metadata == topicNote(id)
					o.recreated = !o.byParticipant
				}
				c.committed[topicPartition{t.Topic, p.Partition}] = o
			}
		}
	}
	return nil
}

// adjustOffsets sets the offset from which each assigned partition is read. kgo calls it right after readMetadata.
func (c *consumer) adjustOffsets(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	for topic, partitions := range offsets {
		for id := range partitions {
			at := topicPartition{topic, id}
			start, err := c.firstOffset(ctx, at, partitions[id])
			if err != nil {
				return nil, err
			}
			partitions[id] = start
			c.begins(at, start.EpochOffset().Offset)
		}
	}
	c.compareEnds(ctx, offsets)
	return offsets, nil
}

// compareEnds compares the ends of assigned partitions with the offsets that had ended. Their leases are taken: no other member handles messages that
// come after the broker's answer. At the first fetch, which resetToEnd compares, the log may have grown beyond these offsets again. Therefore a broker
// that was set back is noticed here if no message has come yet. A broker that does not answer soon must not delay the other partitions.
//
// A new leader returns OFFSET_NOT_AVAILABLE until it knows the last leader's high watermark: then ends requests it once more.
func (c *consumer) compareEnds(ctx context.Context, offsets map[string]map[int32]kgo.Offset) {
	ends, err := c.ends(ctx, offsets)
	if err != nil {
		c.p.cfg.Log.Warn().Err(err).Msg("the ends of the logs were not compared with the watermarks")
	}
	for topic, partitions := range offsets {
		for id := range partitions {
			end, known := ends[topic][id]
			w := c.workerOf(topic, id)
			if w == nil || !known {
				continue
			}
			if end.Err != nil {
				c.p.cfg.Log.Warn().Err(end.Err).Stringer("partition", w.at).Msg("the end of the log was not compared with the watermark")
				continue
			}
			last := w.lastEnded.Load()
			if last < end.Offset {
				continue
			}
			c.p.cfg.Log.Error().Stringer("partition", w.at).Int64("last", last).Int64("end", end.Offset).Msg(endLost)
			from, err := w.lostSince(ctx, end.Offset)
			if err != nil { // the next membership compares the others too
				w.rejoin(err)
				return
			}
			if start := partitions[id].EpochOffset().Offset; start > from {
				w.progress.next.Store(from)
				partitions[id] = kgo.NewOffset().At(from)
			}
			w.forgetEnd(ctx, from)
		}
	}
}

// ends returns the high watermarks of the partitions of offsets, and of others. While a broker returns an error that may go away for one of offsets, it
// asks again, for at most availableLimit.
func (c *consumer) ends(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kafka.Place, error) {
	topics := slices.Collect(maps.Keys(offsets))
	for began := time.Now(); ; {
		limited, cancel := context.WithTimeout(ctx, compareLimit)
		ends, err := kafka.HighWatermarks(limited, c.client, topics...)
		cancel()
		if err != nil || !retriable(ends, offsets) || time.Since(began) >= availableLimit {
			return ends, err
		}
		select {
		case <-ctx.Done():
			return ends, ctx.Err()
		case <-time.After(compareEvery):
		}
	}
}

func retriable(ends map[string]map[int32]kafka.Place, offsets map[string]map[int32]kgo.Offset) bool {
	for topic, partitions := range offsets {
		for id := range partitions {
			if kerr.IsRetriable(ends[topic][id].Err) {
				return true
			}
		}
	}
	return false
}

// firstOffset returns the offset from which the partition at is read. It waits for the partition's lease, whose watermark it needs. No message of the
// partition can be handled before that.
func (c *consumer) firstOffset(ctx context.Context, at topicPartition, committed kgo.Offset) (kgo.Offset, error) {
	of := c.committed[at]
	if of.recreated {
		c.p.cfg.Log.Warn().Stringer("partition", at).Msg("the topic was deleted and created again: it is read from its start")
		committed = kgo.NewOffset().AtStart()
	}
	c.mu.Lock()
	w := c.workers[at]
	c.mu.Unlock()
	if w == nil {
		return committed, nil
	}
	select {
	case <-w.acquired:
	case <-w.done:
		return committed, nil
	case <-ctx.Done():
		return committed, ctx.Err()
	}
	start := w.firstOffset(ctx, committed, of)
	w.progress.unread.Store(w.firstUnread(start, of))
	return start, nil
}

// firstOffset returns the offset from which the partition is read, by the rules above. It is called once for each assignment, after acquire and
// before the first record.
func (w *worker) firstOffset(ctx context.Context, committed kgo.Offset, of committedOffset) kgo.Offset {
	s := &w.lease.seen
	offset := committed.EpochOffset().Offset // negative: the start of the log
	w.topicID, w.groupOffset = of.topicID, offset
	w.lastEnded.Store(w.lease.last(of.topicID))
	log := w.p.cfg.Log.With().Stringer("partition", w.at).Int64("committed", offset).Int64("watermark", s.watermark.offset).Logger()
	next := s.watermark.offset + 1
	if s.topicID != uuid.Nil && of.topicID != uuid.Nil && s.topicID != of.topicID { // the topic was deleted and created again
		w.reportLoss()
	}
	// A cancelled rebuild may have left a committed offset below the watermark. If this lease has undone the rebuild, the partition is read from the
	// watermark. It is also read from there if the watermark has no epoch, because an operator set the offset: such a watermark recognises no message
	// as handled.
	cancelled := s.topicID == of.topicID && of.byParticipant && offset < next && (w.lease.rebuilds.undone || s.watermark.epoch < 0)
	switch {
	case w.lease.rebuilds.under(of.topicID, next), cancelled:
		log.Info().Msg("the partition is read from the watermark, which a rebuild, or its cancellation, has set")
		return kgo.NewOffset().At(next).WithEpoch(max(s.watermark.epoch, -1))
	case s.topicID == of.topicID && of.byParticipant && offset > next:
		w.rereadUntil.Store(offset)
		log.Info().Msg("the committed offset is ahead of the database's watermark: the partition is read from the watermark")
		return kgo.NewOffset().At(next).WithEpoch(max(s.watermark.epoch, -1))
	case s.topicID == of.topicID && !of.byParticipant && offset < next && next > 0:
		log.Warn().Int64("offsets", next-max(offset, 0)).
			Msg("the group's offset was reset to before the watermark: messages below the watermark were handled and are passed over, " +
				"a reset does not repeat them; to let handlers of events handle them again, use troupe rebuild start: docs/rebuild.md")
	case s.topicID == of.topicID && !of.byParticipant && offset > next:
		log.Warn().Int64("offsets", offset-next).
			Msg("the group's offset was set to after the watermark: the messages between are skipped")
		w.reportLoss()
		w.skipTo(ctx, lowMark{topicID: of.topicID, offset: offset - 1, epoch: -1})
	case s.topicID == of.topicID:
	case of.byParticipant && s.topicID != uuid.Nil && offset > 0:
		// The first watermark of this topic was never written, or was lost.
		w.rereadUntil.Store(offset)
		log.Info().Msg("the database has no watermark of the topic: the partition is read from its start")
		return kgo.NewOffset().AtStart()
	default:
		if of.byParticipant && offset > 0 {
			log.Warn().Int64("offsets", offset).
				Msg("the database has no watermark of the partition: messages below the committed offset count as handled elsewhere; if the " +
					"database was restored to before the group's first run, see docs/upgrades.md, The group's offsets")
		}
		if of.topicID != uuid.Nil { // so that the next owner can tell a loss from a first start
			w.low.Store(&lowMark{topicID: of.topicID, offset: max(offset, 0) - 1, epoch: -1})
		}
	}
	return committed
}

// skipTo stores the watermark at, and waits until it is stored. Otherwise this owner could crash after it has committed an offset of its own and
// before the watermark has moved: the next owner would then read the partition from the old watermark, before the skipped messages.
//
// The epoch of at is lower than the epochs of the messages. So if the group's offset is reset to before the skipped messages, they are handled, as
// long as no message after them has ended.
func (w *worker) skipTo(ctx context.Context, at lowMark) {
	w.low.Store(&at)
	w.storeNow(ctx)
}

// storeNow waits until the low mark is stored as the watermark. It returns false if ctx or the worker ends before.
func (w *worker) storeNow(ctx context.Context) bool {
	moved := make(chan bool, 1)
	for failed := 1; ; failed++ {
		select {
		case w.moveNow <- moved:
			if <-moved {
				return true
			}
		case <-w.stop:
			return false
		case <-ctx.Done():
			return false
		}
		select {
		case <-time.After(probing.Wait(failed)):
		case <-w.stop:
		case <-ctx.Done():
		}
	}
}

// reread counts in Stats.Recovered the messages of ended that have taken effect now although a participant had committed their offsets before: the
// database had lost their effects.
func (w *worker) reread(ended []*message) {
	until := w.rereadUntil.Load()
	if until == 0 {
		return
	}
	for _, m := range ended {
		if m.due || m.passed != "" || m.held != nil || m.offset >= until || m.record.Attrs.IsControl() {
			continue
		}
		if w.recovered.Add(1) == 1 {
			w.p.cfg.Log.Error().Stringer("partition", w.at).Str("place", m.place()).
				Msg("the database has lost messages that had been handled, as after a failover to a standby that lagged: they are handled again")
		}
	}
}
