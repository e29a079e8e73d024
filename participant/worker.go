package participant

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/keyed"
)

const (
	// A partition fetches no more when so many messages, or bytes, wait or run, or when so many have ended behind one that has not. With large
	// batches more messages may wait: see backlog.
	backlogRecords = 512
	backlogBytes   = 1 << 20
	backlogGap     = 1 << 14

	// pushAtOnce limits the records of a fetch that become messages and enter the lane at once. The others stay records, which take a fifth of the
	// memory: a fetch may have a hundred thousand records of a partition, if they have a few bytes each.
	pushAtOnce = 8192

	// turnsShare limits the turns of held keys to a quarter of the backlog, and leaves the rest to messages of free keys. Without this
	// limit a partition with more due held keys than it can try would fetch nothing.
	turnsShare = 4

	// gatherLimit is the time for which less than a full batch waits for running transactions to end, counted from the beginning of the last one.
	// Then it runs concurrently with them. A transaction costs as much as several messages in it: with this wait bench/choreography handles half as
	// many orders again, and no order takes longer at moderate rates.
	gatherLimit = 20 * time.Millisecond

	// tickEvery is the interval at which the watermark is stored, and at which the held keys are read, since an operator may have made some due. The
	// second interval grows with the time that the read takes.
	tickEvery = time.Second
	// quietTicks is the number of ticks between two reads of the held keys while none is known. They are read nevertheless: a database that was set
	// back, as by a failover to a standby that lagged, may have one again.
	quietTicks = 10
	// longestRest limits the growth of that interval: one read that was slow for another reason, such as a database that was away, must not delay a
	// release by an operator for minutes.
	longestRest = 30 * time.Second
	// releaseLimit limits the release of the lease at the end of a worker. If the release fails, the next owner must assume that this one crashed.
	releaseLimit = time.Second
)

// worker handles one assigned partition: its records, and its held messages that are due.
type worker struct {
	*runner
	c        *consumer
	topic    string
	id       int32
	done     chan struct{} // closed when nothing runs and the lease is released
	acquired chan struct{} // closed when the lease was acquired
	idle     chan struct{} // closed when nothing runs
	lane     *keyed.Lane[*message, lowMark]

	lease           lease
	ownTerms        map[int64]bool // each term that this worker has written, with its lease.clean
	term            atomic.Int64   // lease.term, for other goroutines
	low             atomic.Pointer[lowMark]
	storedWatermark *lowMark // as far as this worker knows
	rows            committedRows
	lostFrom        atomic.Int64 // the first offset of the end of the log that the broker has lost; math.MaxInt64: none
	lowered         atomic.Pointer[loweredMark]
	lastEnded       atomic.Int64 // lease.last of topicID; -1: none, or not known yet
	topicID         uuid.UUID    // of the topic when the partition was assigned; Nil: not known
	groupOffset     int64        // the group's committed offset at that time; negative: none
	verified        time.Time    // when rows and storedWatermark were last compared with the database
	quarantined     atomic.Int64 // how many messages are still to run in quarantine; less than 0 is none
	starts          starts
	rereadUntil     atomic.Int64 // the committed offset, if the partition is read from a watermark before it; else 0
	recovered       atomic.Int64 // messages below rereadUntil that took effect
	skipped         atomic.Int64 // messages whose offsets had ended before they came
	endAtTakeOver   atomic.Int64 // the end of the log at the first fetch; messages from it on are newer than the take-over

	holds holds
	wake  chan struct{} // receives when a hold is due earlier than keep knows
	later later
	brake brake

	blocked     atomic.Pointer[unreadableBatch] // blocks the partition
	unreadBytes atomic.Int64                    // compressed size of the last batch that kgo did not unpack
	skip        atomic.Pointer[kgo.Record]      // queued in place of a skipped batch

	moveNow chan chan bool // requests that keep stores the watermark now

	progress progress
}

func newWorker(c *consumer, at topicPartition) *worker {
	w := &worker{
		c: c, topic: at.topic, id: at.partition, wake: make(chan struct{}, 1), moveNow: make(chan chan bool),
		done: make(chan struct{}), idle: make(chan struct{}), acquired: make(chan struct{}),
		ownTerms: make(map[int64]bool),
	}
	w.runner = newRunner(c.p, w, at)
	w.later.delay = delayOf(at.topic, w.p.cfg.Hop)
	w.brake.client, w.brake.part = c.client, map[string][]int32{at.topic: {at.partition}}
	w.progress.begin(time.Now())
	w.endAtTakeOver.Store(math.MaxInt64) // not known yet
	w.lostFrom.Store(math.MaxInt64)
	w.lastEnded.Store(-1)
	gather := w.p.gather
	if w.p.registered().haveCalls() {
		gather = 0 // its runs wait for another service, not for the database
	}
	var admit func(*message, keyed.Place) (any, bool)
	if w.p.limited {
		admit = w.takePermits
	}
	w.lane = keyed.NewLane(c.pool, keyed.Config[*message, lowMark]{
		Batch: w.p.cfg.Batch, Spread: w.p.registered().haveCalls(), Gather: gather, Run: w.run, Admit: admit, Low: w.ended,
		MaxItems: w.p.backlog(), MaxBytes: backlogBytes, MaxGap: backlogGap,
		Pause: func() { w.brake.set(full, true) },
		Resume: func() {
			w.brake.set(full, false)
			w.rouse() // for release
		},
	})
	return w
}

// ended is called by the lane with the new low mark at: all messages up to at have ended.
func (w *worker) ended(at lowMark) {
	defer w.joinBehind(at)
	w.progress.next.Store(at.offset + 1)
	w.c.offsets.set(w.at, at)
	if !w.lease.clean && at.offset+1 >= w.endAtTakeOver.Load() && w.holds.count() == 0 {
		w.quarantined.Store(0) // the messages of the previous owner, held ones too, have ended
	}
	if s := &w.lease.seen; at.topicID == s.topicID && at.offset <= s.watermark.offset && at.epoch <= s.watermark.epoch {
		return // the stored watermark is past at
	}
	w.low.Store(&at)
}

// run is called by the lane. It handles a batch, and returns how many of the batch's messages have ended, from the first one on. The others are tried
// again, unless the lane was closed.
func (w *worker) run(batch []*message) (ended int, again bool) {
	defer w.dismiss(batch)
	returned := false
	defer func() {
		if !returned {
			w.died.Store(true)
			w.p.cfg.Log.Error().Stringer("partition", w.at).Msg("a handler ended its goroutine: the partition is not consumed any more")
		}
	}()
	most, behind := len(batch), len(batch) // in one transaction: less with each failure, so that many of them do not cost a batch each
	for ok := true; ok && ended < len(batch) && !w.stopped(); {
		next := batch[ended:min(ended+most, len(batch))]
		var n int
		var failed bool
		if n, failed, ok = w.together(next); failed {
			most = max(most/2, 1)
		} else if ok && n == 0 {
			if n, failed, ok = w.single(batch[ended:min(ended+behind, len(batch))]); failed {
				behind = max(behind/2, 1)
			}
		}
		w.tellPassed(batch[ended : ended+n]...)
		w.reread(batch[ended : ended+n])
		if n > 0 {
			w.progress.touch(time.Now())
		}
		ended += n
	}
	returned = true
	w.continueTries()
	return ended, true
}

// inspect reports how m is handled. If passes is true, m needs no run: it has ended before, or has no handler here. If plain is true, m needs
// only a run of its handler, and may share a transaction with other messages.
func (w *worker) inspect(m *message) (passes, plain bool) {
	if m.record != nil && m.record.Attrs.IsControl() {
		return true, false
	}
	if m.record != nil && m.record == w.skip.Load() {
		m.passed = reasonSkipped
		return true, false
	}
	if m.held == nil && w.lease.seen.has(m.topicID, m.offset, m.epoch) {
		if m.passed == "" {
			w.skipped.Add(1)
		}
		m.passed = reasonRedelivered
		return true, false
	}
	if m.ID == "" {
		m.atTakeOver = m.offset < w.endAtTakeOver.Load()
		m.read(w.p, w.later.delay > 0)
		w.lease.rebuilds.classify(m, w.p.cfg.Group)
	}
	if w.lease.rebuilds.excludes(m, w.p.cfg.Group) {
		m.passed = reasonNotRebuilt
		return true, false
	}
	if reason := w.p.passReason(m, w.topic == w.p.cfg.Hop.Commands() || w.later.delay > 0); reason != "" {
		m.passed = reason
		return true, false
	}
	return false, m.plain() && !w.holds.has(m)
}

// plain reports whether m may share a transaction with others.
func (m *message) plain() bool {
	return m.unreadable == nil && m.handler != nil && !m.handler.alone && !m.handler.sets.Load() && (m.handler.ask != nil || !m.limited())
}

// single handles the first message of a batch, which is one of three: the turn of a held key, a message behind a held one, or a message
// that runs alone. Messages behind held ones are stored together with the next ones of their kind; failed reports that the database cannot store
// one of them, and the first was stored alone. n is the number of messages handled.
func (w *worker) single(batch []*message) (n int, failed, ok bool) {
	m := batch[0]
	if m.due {
		if !w.runStep(func() error { return w.retry(m) }) {
			return 0, false, false
		}
		w.startTurns() // keep may be waiting for the database
		w.rouse()
		return 1, false, true
	}
	var waiting []*message
	for _, m := range batch {
		if m.due {
			break
		}
		if passes, _ := w.inspect(m); passes || !w.holds.has(m) || m.isCallTo(w.p.cfg.Hop, compensate) {
			break
		}
		waiting = append(waiting, m)
	}
	if len(waiting) > 1 {
		ok := w.runStep(func() error {
			err := w.append(waiting)
			if failed = isUnstorable(err); failed {
				return nil // it is not known of which message
			}
			return err
		})
		switch {
		case !ok:
			return 0, failed, false
		case !failed:
			return len(waiting), false, true
		}
	}
	if !w.runStep(func() error { return w.deliver(m) }) {
		return 0, failed, false
	}
	return 1, failed, true
}

// deliver handles m until m has ended or is in troupe.held. If it returns an error, that error is not about m, and m must be tried again.
func (w *worker) deliver(m *message) error {
	err := w.deliverOnce(m)
	if isUnstorable(err) && m.markUnreadable(err) {
		return w.deliverOnce(m)
	}
	return err
}

// deliverOnce handles m as deliver does, but returns an error if the database cannot store an attribute of m.
func (w *worker) deliverOnce(m *message) error {
	switch passes, _ := w.inspect(m); {
	case passes:
		return nil
	case w.holds.has(m) && m.isCallTo(w.p.cfg.Hop, compensate):
		return w.overtake(m)
	case w.holds.has(m):
		return w.append([]*message{m})
	}
	return w.try(m)
}

// try runs m, in quarantine if m needs it, and handles the error of the run.
func (w *worker) try(m *message) error {
	if w.inQuarantine(m) {
		return w.runQuarantined(m)
	}
	return w.decide(m, w.runAlone(m))
}

// decide handles err, the error of a run of m. If decide returns an error, that error is not about m.
func (w *worker) decide(m *message, err error) error {
	if !w.counts(err) {
		return err
	}
	f := failureOf(err)
	if m.handler != nil && !m.rebuilt && (m.handler.delays != nil || m.again.stage > 0) && !f.final() && !f.uncounted {
		return w.unordered(m, f)
	}
	return w.settle(m, f)
}

// queueEnd queues the statements that check the term, store the offsets of messages from the topic, and delete the rows of messages from troupe.held.
func (w *worker) queueEnd(b *pgx.Batch, ms []*message, _ *failure) (read func(pgx.BatchResults) ([]*message, error)) {
	held := ms[0].held != nil
	if held {
		w.queueTermCheck(b, nil) // they had ended when they were held
		for _, m := range ms {
			b.Queue(releaseHeld, w.releaseArgs(m))
		}
	} else {
		w.queueTermCheck(b, ms)
	}
	return func(results pgx.BatchResults) (mine []*message, err error) {
		if err := readTermCheck(results); err != nil || !held {
			return ms, err
		}
		for _, m := range ms {
			tag, err := results.Exec()
			if err != nil {
				return nil, err
			}
			if tag.RowsAffected() > 0 || m.txEnded != nil { // otherwise another member has it
				mine = append(mine, m)
			}
		}
		return mine, nil
	}
}

func (w *worker) pause() {
	w.lane.Hold()
	w.p.offerSlots()
}

func (w *worker) resume() { w.lane.Release() }
func (w *worker) tryOne() { w.lane.Try() }

// work takes the lease, runs the partition until w.stop is closed, and releases the lease. After a clean release the next owner runs no message in
// quarantine.
func (w *worker) work() {
	defer close(w.done)
	defer w.cancel()
	if w.insist(func() error { return w.acquire(w.ctx) }) {
		close(w.acquired)
		w.lane.Release()
		w.keep()
	}
	idle := w.lane.Close()
	w.p.offerSlots()
	<-idle
	close(w.idle)
	if w.lease.term == 0 {
		return
	}
	w.lowerWatermark()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), releaseLimit)
	defer cancel()
	if err := w.storeWatermark(ctx, !w.died.Load()); err != nil && !errors.Is(err, errFenced) {
		w.p.cfg.Log.Warn().Err(err).Stringer("partition", w.at).Msg("lease not released: its next owner will put messages in quarantine")
	}
}

// hold makes a key wait until due, and wakes keep.
func (w *worker) hold(key holdKey, due time.Time) {
	w.holds.set(key, due)
	w.rouse()
}

// rouse wakes keep, which then looks again when the next held key is due.
func (w *worker) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
