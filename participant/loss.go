package participant

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/pg"
)

// If this member's connections break, new ones may reach a standby that was promoted. If the standby lagged, the effects of some messages that this
// member has handled are lost, and neither the term nor the next message shows the loss. So each worker keeps the watermark that it stored last, and
// the highest offset of each row of troupe.inbox_offsets that it has committed above that watermark. It compares both with the database before it
// stores the next watermark, and every verifyEvery while there is none to store. If the database has less, the member leaves the group and joins
// again, and its partitions are read from the stored watermarks.
//
// The database may have more: transactions of this worker that are under way, or whose COMMIT got no answer. Such a COMMIT may have stored a later
// watermark, and then it has also deleted the rows below that watermark. So only rows above the database's watermark are compared.

//go:embed sql/verify_progress.sql
var verifyProgress string

// verifyEvery is the interval of the comparison while the watermark does not move.
const verifyEvery = 10 * time.Second

var errLost = errors.New("the database has lost transactions of this member, as after a failover to a standby that lagged")

// committedRows holds the highest offset of each row of troupe.inbox_offsets that this member has committed above the watermark. Rows of an earlier
// owner need no count: they were committed before the lease's new term, and are lost only together with it.
type committedRows struct {
	mu    sync.Mutex
	highs []int64
}

func (r *committedRows) add(high int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.highs = append(r.highs, high)
}

func (r *committedRows) all() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.highs)
}

func (r *committedRows) prune(watermark int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.highs = slices.DeleteFunc(r.highs, func(high int64) bool { return high <= watermark })
}

// committed is called once a transaction has committed, and records the row with the offsets of its messages.
func (w *worker) committed(ms []*message) {
	if len(ms) > 0 && ms[0].held == nil {
		_, high, _, _ := span(ms)
		w.rows.add(high)
	}
}

// verify compares the progress that this worker has committed with the database. It returns errFenced if another member has the lease, and errLost if
// the database has less.
func (w *worker) verify(ctx context.Context, tx interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}) error {
	highs := w.rows.all() // before the query, which does not see rows that are committed after it
	var taken, own bool
	var topicID *uuid.UUID
	var watermark int64
	var rows int
	args := pg.Args{"lease": w.lease.id, "term": w.lease.term}
	err := tx.QueryRow(ctx, verifyProgress, args).Scan(&taken, &own, &topicID, &watermark, &rows)
	w.verified = time.Now()
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return errLost
	case err != nil:
		return err
	case taken:
		return errFenced
	}
	highs = slices.DeleteFunc(highs, func(high int64) bool { return high <= watermark })
	if !own || rows < len(highs) || !w.mayHaveStored(topicID, watermark) && !w.mayHaveLowered(topicID, watermark) {
		return errLost
	}
	return nil
}

// mayHaveStored reports whether the watermark in the database is the one that this worker stored last, or a later one whose COMMIT got no answer.
func (w *worker) mayHaveStored(topicID *uuid.UUID, watermark int64) bool {
	var id uuid.UUID
	if topicID != nil {
		id = *topicID
	}
	if id == w.storedWatermark.topicID {
		return watermark >= w.storedWatermark.offset
	}
	low := w.low.Load() // the first watermark of its topic may have got no answer
	return low != nil && id == low.topicID
}

// mayHaveLowered reports whether the watermark in the database is the lower one after a loss, whose COMMIT got no answer.
func (w *worker) mayHaveLowered(topicID *uuid.UUID, watermark int64) bool {
	l := w.lowered.Load()
	return l != nil && l.low == w.low.Load() && topicID != nil && *topicID == l.low.topicID && watermark == l.low.offset
}

const endLost = "the broker has lost the end of a log: its messages must be sent again"

// lossGrace: before a member leaves the group it waits for reports about its other partitions, since kgo reports a loss once.
const lossGrace = time.Second

// errEndLost ends a membership: its workers count offsets of lost messages as ended.
var errEndLost = errors.New("the broker has lost the end of a log: the member joins again")

// loweredMark is the low mark after a loss. No offset from the offset from on counts as ended in a rebuild either.
type loweredMark struct {
	low  *lowMark
	from int64
}

// loseEnd is called when kgo, or the end of the log at a fetch, shows that the broker has lost the end of the log: the offset from, and later ones, may
// belong to other messages now. Before the first fetch no run reads lease.seen. After it, the member leaves the group, with a lower watermark, and joins
// again.
func (w *worker) loseEnd(from int64) {
	w.reportLoss()
	if w.endAtTakeOver.Load() == math.MaxInt64 {
		if w.lastEnded.Load() >= from {
			w.reset(from, from)
		}
		return
	}
	w.lostFrom.Store(min(from, w.lostFrom.Load()))
	w.lane.Close()
	time.AfterFunc(lossGrace, func() { w.c.abandon(fmt.Errorf("%s: %w", w.at, errEndLost)) })
}

// lowerWatermark sets the low mark to before the lost end of the log, if there is one. The inbox recognises the messages from there on that have
// ended and are not lost. Nothing runs any more.
func (w *worker) lowerWatermark() {
	low := w.low.Load()
	if low == nil {
		low = w.storedWatermark
	}
	from := w.lostFrom.Load()
	if from == math.MaxInt64 || low.topicID == uuid.Nil {
		return
	}
	lowered := *low
	lowered.offset = min(low.offset, from-1)
	w.lower(lowered, from)
	w.c.offsets.set(w.at, lowered)
}

// lower sets the low mark that storeWatermark stores next. from is the first lost offset: storeWatermark also ends the rebuild's part there.
func (w *worker) lower(to lowMark, from int64) {
	w.lowered.Store(&loweredMark{&to, from})
	w.low.Store(&to)
}

// resetToEnd compares the offsets that had ended with end, the end of the log at the first fetch. If there are any from end on, the broker has lost the
// end of the log, such as by a restore from a copy of its disks. Messages that it gets now have offsets of lost ones, and their leader's epoch need not
// be later, since the epochs were set back too.
//
// resetToEnd is called before the first record enters the lane. If the loss cannot be stored, the member leaves the group and joins again.
func (w *worker) resetToEnd(ctx context.Context, topicID uuid.UUID, end int64) {
	if w.topicID != topicID || w.lastEnded.Load() < end {
		return
	}
	from, err := w.lostSince(ctx, end)
	if err != nil {
		w.rejoin(err)
		return
	}
	w.reset(end, from)
}

// rejoin lets the member leave the group and join again, since the broker does not answer. The next owner of the partition compares the end of its log.
func (w *worker) rejoin(err error) {
	w.lane.Close()
	w.c.abandon(fmt.Errorf("%s: the broker does not say which messages come after the loss of the log's end: %w", w.at, err))
}

// reset logs the loss of the end of the log, and lets no offset count as ended from the offset from on: see forgetEnd.
func (w *worker) reset(end, from int64) {
	w.p.cfg.Log.Error().Stringer("partition", w.at).Int64("watermark", w.lease.seen.watermark.offset).Int64("end", end).
		Msg("the log ends before messages that have ended: it was set back, or the broker has lost its end; new messages are handled although their offsets were used before")
	ctx, cancel := context.WithTimeout(w.ctx, w.p.statementTimeout)
	defer cancel()
	if !w.forgetEnd(ctx, from) {
		w.lane.Close()
		w.c.abandon(fmt.Errorf("%s: the loss of the end of a log was not stored: %w", w.at, errEndLost))
	}
}

// lostSince returns the first offset that may belong to a message from after a loss, when the log ends at end: the group's offset, which was set back with
// the log. If there is none, or it was not set back, it does not show where the log was cut: then the first message of the last half of InboxRetention
// counts. A rebuild may have set the group's offset back further before the copy, to messages that the inbox has forgotten.
func (w *worker) lostSince(ctx context.Context, end int64) (int64, error) {
	known := w.groupOffset >= 0 && w.groupOffset <= end
	if known && !w.lease.rebuilds.ever {
		return w.groupOffset, nil
	}
	recent, err := w.c.recentBefore(ctx, w.at, end)
	if known {
		recent = max(recent, w.groupOffset)
	}
	return recent, err
}

// forgetEnd lets no offset count as ended from the offset from on. The inbox recognises messages that had ended. forgetEnd waits until this is stored, since
// the log may have grown beyond the watermark when the next owner asks for its end, and reports whether it is. No run reads lease.seen yet, and no row of
// this worker is in troupe.inbox_offsets.
func (w *worker) forgetEnd(ctx context.Context, from int64) bool {
	w.reportLoss()
	s := &w.lease.seen
	s.watermark.offset = min(s.watermark.offset, from-1)
	s.above = nil
	if r := w.lease.rebuilds.now; r != nil && r.topicID == w.topicID && r.until > from {
		w.p.cfg.Log.Error().Stringer("partition", w.at).Int64("from", from).
			Msg("the broker has lost the end of the log: the rebuild handles no message again from this offset on; if its read model lacks messages, start another one")
		r.cut(from)
	}
	w.lastEnded.Store(w.lease.last(w.topicID))
	lowered := lowMark{topicID: w.topicID, offset: s.watermark.offset, epoch: s.watermark.epoch}
	w.lower(lowered, from)
	if w.groupOffset > lowered.offset+1 { // else the next owner would count new messages before it as messages that the database has lost
		w.c.offsets.set(w.at, lowered)
	}
	return w.storeNow(ctx)
}

// checkEnd compares the end of the log at a later fetch, which begins at the offset first, with the offsets that had ended. A partition that is read
// again, as in a rebuild, may lose its end before the member has read it. A new leader may return an earlier end at first, so checkEnd requests the end once more.
func (w *worker) checkEnd(ctx context.Context, end, first int64) {
	last := w.lastEnded.Load()
	if last < end || w.lostFrom.Load() != math.MaxInt64 {
		return
	}
	limited, cancel := context.WithTimeout(ctx, compareLimit)
	defer cancel()
	ends, err := kafka.HighWatermarks(limited, w.c.client, w.topic)
	now := ends[w.topic][w.id]
	if err = cmp.Or(err, now.Err); err != nil || last < now.Offset {
		return
	}
	w.p.cfg.Log.Error().Stringer("partition", w.at).Int64("last", last).Int64("end", now.Offset).Msg(endLost)
	recent, err := w.c.recentBefore(ctx, w.at, now.Offset)
	if err != nil {
		w.rejoin(err)
		return
	}
	w.loseEnd(max(min(first, now.Offset), recent)) // kgo may have begun again with the first message of the log
}

// deleteOffsets deletes the offsets above one, unless the partition has another owner.
const deleteOffsets = "DELETE FROM troupe.inbox_offsets WHERE lease_id = $1 AND high > $3 AND EXISTS (SELECT FROM troupe.leases WHERE id = $1 AND term = $2)"

// lostFrom returns the first offset of the end of the log that loss reports. If the broker cannot tell where its log was cut, kgo has reset the
// partition to the start of the log. Then the end begins with the first message of the last half of InboxRetention: a message is handled again only
// if the inbox has not forgotten it. If the broker does not answer soon, no offset counts as lost.
func (c *consumer) lostFrom(ctx context.Context, loss *kgo.ErrDataLoss) int64 {
	at := topicPartition{loss.Topic, loss.Partition}
	limited, cancel := context.WithTimeout(ctx, compareLimit)
	defer cancel()
	starts, err := kafka.Starts(limited, c.client, loss.Topic)
	start := starts[loss.Topic][loss.Partition]
	if err = cmp.Or(err, start.Err); err == nil && start.Offset < loss.ResetTo {
		return loss.ResetTo
	}
	var recent int64
	if err == nil {
		recent, err = c.recent(ctx, at)
	}
	if err != nil {
		c.p.cfg.Log.Error().Err(err).Stringer("partition", at).
			Msg("the broker does not say which messages are recent: new messages whose offsets were used before are not handled: have them sent again")
		return math.MaxInt64
	}
	return recent
}

// recentBefore returns recent's offset, or end if that is earlier.
func (c *consumer) recentBefore(ctx context.Context, at topicPartition, end int64) (int64, error) {
	recent, err := c.recent(ctx, at)
	return min(recent, end), err
}

// recent returns the offset of the first message of the last half of InboxRetention. An inbox that forgets nothing counts as one of maxDays: it does not
// know the messages that had no handler.
func (c *consumer) recent(ctx context.Context, at topicPartition) (int64, error) {
	half := c.p.cfg.InboxRetention / 2
	if c.p.days() == 0 {
		half = maxDays * 24 * time.Hour / 2
	}
	ctx, cancel := context.WithTimeout(ctx, availableLimit)
	defer cancel()
	listed, err := kafka.Since(ctx, c.client, time.Now().Add(-half), at.topic)
	first, known := listed.Lookup(at.topic, at.partition)
	if known { // another partition's broker may not answer
		return first.Offset, first.Err
	}
	return 0, cmp.Or(err, error(kerr.UnknownTopicOrPartition))
}
