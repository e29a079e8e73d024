package participant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
)

// Heartbeats continue even if no message is handled: a fetch may never return, a partition may never be resumed, or a lease may never be acquired. So
// the consumer checks when a message of each partition last ended. If none ended lately and none waits here, the consumer asks the broker for the end
// of the log.

const (
	// stallAfter is the time without progress, beyond the longest time that a run can take, after which a partition counts as stalled.
	stallAfter = 10 * time.Second
	// askEvery is the interval at which the ends of idle partitions are requested: two requests to each broker, and a third one
	// if there is more than was fetched.
	askEvery = 5 * time.Second
	askLimit = 5 * time.Second
	// openLimit is the longest time-out of a transaction that brokers allow by default (transaction.max.timeout.ms). A transaction that is open for
	// longer hangs: no broker ends it.
	openLimit = 15 * time.Minute
)

// progress is the known progress of a partition. Fields that are not atomic are used by watchProgress only.
type progress struct {
	next    atomic.Int64          // the first offset that has not ended; unknown: -1
	end     atomic.Int64          // the end of the readable log, as last returned by the broker; unknown: -1
	start   atomic.Int64          // the start of the log, as last returned by the broker
	unread  atomic.Int64          // the first offset that was not fetched; unknown: -1
	last    atomic.Int64          // when a message last ended, in Unix nanoseconds
	behind  atomic.Int64          // when the partition began to have messages that have not ended, of which none has ended since, in Unix nanoseconds; 0: it has none
	stalled atomic.Pointer[error] // the reason, for Ready, why no message ends; nil: there is none

	busy   time.Time // since when there are messages to handle; zero: there are none
	at     int64     // the first offset that had not ended, at the time behind
	mute   time.Time // since when the broker does not return the end; zero: it does
	silent error     // the error that it returns instead

	open       time.Time // since when a transaction has kept messages behind openAt from being read; zero: none does
	openAt     int64     // the end of the readable log, at the time open
	unreadable int64     // number of offsets behind openAt that cannot be read
}

func (p *progress) begin(now time.Time) {
	p.next.Store(-1)
	p.end.Store(-1)
	p.unread.Store(-1)
	p.touch(now)
}

func (p *progress) touch(now time.Time) { p.last.Store(now.UnixNano()) }

// fetched sets first as the first offset that has not ended, if none is known.
func (p *progress) fetched(first int64) { p.next.CompareAndSwap(-1, first) }

// recordEnds stores the start and the end of the log, which a fetch returns with its records, and reports whether f has them. A fetch with an error has
// them too if it has records: the batch behind those cannot be read.
func (p *progress) recordEnds(f kgo.FetchPartition) (known bool) {
	if f.Err != nil && len(f.Records) == 0 {
		return false
	}
	end := f.LastStableOffset
	if end < 0 {
		end = f.HighWatermark
	}
	if n := len(f.Records); n > 0 {
		p.fetched(f.Records[0].Offset)
		end = max(end, f.Records[n-1].Offset+1) // a broker may return no end
	}
	p.end.Store(end)
	p.start.Store(max(p.start.Load(), f.LogStartOffset))
	return true
}

// recordRead stores the offset after the fetch's last record as the next unread one. It logs the messages that the broker had deleted before they
// were read. A fetch without records changes nothing.
func (w *worker) recordRead(f kgo.FetchPartition) {
	if n := len(f.Records); n > 0 {
		w.logDeleted(min(f.LogStartOffset, f.Records[0].Offset))
		w.progress.unread.Store(f.Records[n-1].Offset + 1)
	}
}

// logDeleted logs the messages that the broker deleted before they were read: the ones from the first unread offset to start, if the log starts later
// than that.
func (w *worker) logDeleted(start int64) {
	unread := w.progress.unread.Load()
	if unread < 0 || start <= unread || !w.progress.unread.CompareAndSwap(unread, start) {
		return
	}
	w.p.cfg.Log.Error().Stringer("partition", w.at).Int64("from", unread).Int64("offsets", start-unread).
		Msg("messages were deleted from the topic before they were read, by its retention or by a tool: they are lost to this group")
	w.reportLoss()
}

// reportLoss makes fireLost fire deadlines again, since messages of the partition were lost or skipped before they were read. Only the commands topic
// has messages of deadlines. The report is in memory. If this process ends before the deadlines have fired again, and the watermark is past the lost
// messages, the deadlines fire again only after lostAfter.
func (w *worker) reportLoss() {
	if w.topic != w.p.cfg.Hop.Commands() {
		return
	}
	select {
	case w.p.messagesLost <- struct{}{}:
	default: // it has been reported
	}
}

// firstUnread returns the first offset that the group has not handled in the partition, which is read from start on. It returns -1 if this offset is
// not known, as for a new group, which reads a topic from its start.
func (w *worker) firstUnread(start kgo.Offset, of committedOffset) int64 {
	first := max(start.EpochOffset().Offset, -1) // negative: the start of the log
	if s := &w.lease.seen; s.topicID == of.topicID && s.watermark.offset >= 0 {
		first = max(first, s.watermark.offset+1)
	}
	if r := w.lease.rebuilds.now; r != nil && r.topicID == of.topicID && first >= 0 {
		first = max(first, r.until) // the messages before it were handled before
	}
	return first
}

// from returns the first offset that has not ended and is still in the log; -1 if it is not known.
func (p *progress) from() int64 {
	next := p.next.Load()
	if start := p.start.Load(); start > 0 {
		next = max(next, start)
	}
	return next
}

// begins stores the offset from which an assigned partition is read. It ignores a negative offset, which means an end of the log.
func (c *consumer) begins(at topicPartition, offset int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.workers[at]; w != nil && offset >= 0 {
		w.progress.fetched(offset)
	}
}

// watchProgress updates each worker's progress.stalled.
func (c *consumer) watchProgress(ctx context.Context) {
	trouble := c.p.repeated("consumption")
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	asked := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		workers := c.current()
		if time.Since(asked) >= min(askEvery, c.p.patience/2) {
			asked = time.Now()
			c.requestEnds(ctx, workers)
		}
		trouble.report(setStalls(workers, time.Now(), c.p.patience))
	}
}

func (c *consumer) current() []*worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.workers))
}

// requestEnds asks the broker for the ends of the partitions in which nothing has happened lately and which have no messages here.
func (c *consumer) requestEnds(ctx context.Context, workers []*worker) {
	now := time.Now()
	var quiet []*worker
	var topics []string
	for _, w := range workers {
		s := w.lane.State()
		if s.Waiting+s.Running > 0 || w.later.count() > 0 || now.Sub(w.lastActivity()) < watchEvery {
			w.progress.behind.Store(0)
			w.progress.mute = time.Time{}
			continue
		}
		quiet = append(quiet, w)
		if !slices.Contains(topics, w.topic) {
			topics = append(topics, w.topic)
		}
	}
	if len(quiet) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	ends, err := kafka.Ends(ctx, c.client, topics...)
	more := false
	for _, w := range quiet {
		more = w.learnEnd(ends, err, now) || more
	}
	if highWatermarks, err := kafka.HighWatermarks(ctx, c.client, topics...); err == nil {
		for _, w := range quiet {
			w.learnOpen(highWatermarks, now)
		}
	}
	if !more {
		return
	}
	// Messages that retention has removed never come.
	starts, err := kafka.Starts(ctx, c.client, topics...)
	for _, w := range quiet {
		if o := starts[w.topic][w.id]; err == nil && o.Err == nil {
			w.progress.start.Store(max(w.progress.start.Load(), o.Offset))
			w.compareEnd(now)
			w.logDeleted(o.Offset)
		}
	}
}

// learnEnd stores the end of w's partition that the broker has returned. It reports whether the broker has messages that have not ended here.
func (w *worker) learnEnd(ends map[string]map[int32]kafka.Place, err error, now time.Time) (more bool) {
	p := &w.progress
	place, known := ends[w.topic][w.id]
	switch {
	case err == nil && !known:
		err = errors.New("the broker does not know the partition")
	case err == nil:
		err = place.Err
	}
	if p.silent = err; err != nil {
		if p.mute.IsZero() {
			p.mute = now
		}
		return false
	}
	p.mute = time.Time{}
	p.end.Store(place.Offset)
	return w.compareEnd(now)
}

// learnOpen records since when an open transaction has kept messages from being read: there are messages behind the end of the readable log, and that
// end does not move.
func (w *worker) learnOpen(highWatermarks map[string]map[int32]kafka.Place, now time.Time) {
	p := &w.progress
	top, known := highWatermarks[w.topic][w.id]
	if !known || top.Err != nil {
		return
	}
	if last := w.lastEnded.Load(); last >= top.Offset && w.lostFrom.Load() == math.MaxInt64 && w.term.Load() > 0 {
		w.p.cfg.Log.Error().Stringer("partition", w.at).Int64("last", last).Int64("end", top.Offset).Msg(endLost)
		w.c.abandon(fmt.Errorf("%s: %w", w.at, errEndLost))
	}
	end := p.end.Load()
	if p.unreadable = top.Offset - end; end < 0 || p.unreadable <= 0 {
		p.open = time.Time{}
	} else if p.open.IsZero() || p.openAt != end {
		p.open, p.openAt = now, end
	}
}

// compareEnd reports whether the broker has messages that have not ended here. It stores in progress.behind since when the broker has had such messages
// and none of them has ended: the time starts again whenever the first offset that has not ended moves.
func (w *worker) compareEnd(now time.Time) (more bool) {
	p := &w.progress
	from := p.from()
	if p.end.Load() <= max(from, 0) {
		p.behind.Store(0)
		return false
	}
	if p.behind.Load() == 0 || p.at != from {
		p.behind.Store(now.UnixNano())
		p.at = from
	}
	return true
}

// lastActivity returns when a message of the partition last ended, or a handler last began or returned.
func (w *worker) lastActivity() time.Time {
	at := time.Unix(0, w.progress.last.Load())
	w.clocks.mu.Lock()
	defer w.clocks.mu.Unlock()
	if w.clocks.last.After(at) {
		return w.clocks.last
	}
	return at
}

// setStalls stores for each worker why it is stalled, or that it is not; Ready reports it. It returns the error of one stalled partition, or nil if
// none is stalled.
func setStalls(workers []*worker, now time.Time, patience time.Duration) (any error) {
	var newest time.Time // of all partitions, which take turns
	for _, w := range workers {
		if at := w.lastActivity(); at.After(newest) {
			newest = at
		}
	}
	for _, w := range workers {
		err := w.stall(now, newest, patience)
		if err == nil {
			w.progress.stalled.Store(nil)
			continue
		}
		w.progress.stalled.Store(&err)
		any = fmt.Errorf("%s is stalled: %w", w.at, err)
	}
	return any
}

// stall returns the reason why the partition is stalled, or nil.
func (w *worker) stall(now, newest time.Time, patience time.Duration) error {
	p := &w.progress
	s := w.lane.State()
	if s.Waiting+s.Running == 0 {
		p.busy = time.Time{}
	} else if p.busy.IsZero() {
		p.busy = now
	}
	late := func(times ...time.Time) bool {
		for _, at := range times {
			if now.Sub(at) <= patience {
				return false
			}
		}
		return true
	}
	_, running := w.clocks.longest(now)
	since := w.lastActivity()
	var more int64 // messages that the broker has for longer than patience; all may have ended since its answer
	if behind := p.behind.Load(); behind != 0 && late(since, time.Unix(0, behind)) {
		more = p.end.Load() - max(p.from(), 0)
	}
	switch {
	case running > 0, s.Parked > 0, w.gate.waits.Load() != nil, w.blocked.Load() != nil: // Ready reports these separately
		return nil
	case !p.busy.IsZero():
		if !late(since, p.busy) {
			return nil
		}
		idle := now.Sub(since).Round(time.Second)
		switch {
		case s.Held:
			return fmt.Errorf("its lease was not got for %s, and %d messages wait", idle, s.Waiting)
		case s.Running > 0 && w.quarantined.Load() <= 0:
			return fmt.Errorf("no message has ended for %s, and %d are under way", idle, s.Running)
		case late(newest):
			return fmt.Errorf("no message has ended for %s, and %d wait", idle, s.Waiting)
		}
	case more > 0 && w.term.Load() == 0:
		return fmt.Errorf("its lease was not got for %s, and %d messages are there", now.Sub(since).Round(time.Second), more)
	case more > 0:
		return fmt.Errorf("nothing was fetched for %s, and %d messages are there from offset %d on",
			now.Sub(since).Round(time.Second), more, max(p.from(), 0))
	case !p.open.IsZero() && now.Sub(p.open) >= w.p.openLimit:
		return fmt.Errorf("a producer's transaction is open for %s: %d messages from offset %d on cannot be read; if it hangs, abort it with "+
			"kafka-transactions.sh", now.Sub(p.open).Round(time.Second), p.unreadable, p.openAt)
	case !p.mute.IsZero() && late(since, p.mute):
		return fmt.Errorf("nothing was fetched for %s, and the broker does not say what there is: %w",
			now.Sub(since).Round(time.Second), p.silent)
	}
	return nil
}
