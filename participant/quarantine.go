package participant

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

var (
	//go:embed sql/mark_started.sql
	markStarted string
	//go:embed sql/mark_group.sql
	markGroup string
	//go:embed sql/unmark_started.sql
	unmarkStarted string
	//go:embed sql/uncount_start.sql
	uncountStart string
	//go:embed sql/load_started.sql
	loadStarted string
	//go:embed sql/prune_started.sql
	pruneStarted string
)

// maxStarts is the number of processes that may end while a message runs with a mark, before the message counts as the cause.
//
// The crash that starts the quarantine is not counted, since the message had no mark: a message from Kafka becomes a dead letter after the sixth
// crash. With local work every crash is counted, and a message becomes a dead letter after the fifth.
const maxStarts = 5

// If the previous owner crashed, one of the first messages may have caused the crash. They run in quarantine: each is recorded in troupe.started before it
// runs, and the record (the mark) survives a crash. The messages run in groups at first. If the process crashes again, the messages of the group that
// ran are suspected, and run one by one. A partition whose owner shut down cleanly skips this.
//
// A clean release ends the quarantine, also if suspected messages have not run. If one of them crashes the next owner, it is suspected again after
// that crash, since its mark stays for a day.

// offsetKey identifies a message of a partition. The key is the same when the message is read again from troupe.held.
type offsetKey struct {
	topicID uuid.UUID
	offset  int64
}

func (m *message) offsetKey() offsetKey { return offsetKey{m.topicID, m.offset} }

// start is the state of a message with a mark, as this worker knows it.
type start struct {
	times int  // how often it was started, in a group or alone, and its run did not end: at most once per owner
	here  bool // this owner has started it
}

// starts holds the marks of messages that have not ended. It may be used concurrently.
type starts struct {
	mu sync.Mutex
	of map[offsetKey]start
}

func (s *starts) get(m *message) (start, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.of[m.offsetKey()]
	return known, ok
}

func (s *starts) set(m *message, to start) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[m.offsetKey()] = to
}

// uncount subtracts one start of each message.
func (s *starts) uncount(ms []*message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range ms {
		if n := s.of[m.offsetKey()].times; n > 1 {
			s.of[m.offsetKey()] = start{n - 1, false}
		} else {
			delete(s.of, m.offsetKey())
		}
	}
}

func (s *starts) drop(ms []*message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range ms {
		delete(s.of, m.offsetKey())
	}
}

// loadMarks reads the marks of messages that were running when an earlier owner crashed. It first deletes marks that are older than a day: if a crash
// comes between the end of a message and the deletion of its mark, the mark stays and has no use. If the message had failed and is held, it has not
// ended: its next run is alone, and counts that crash.
func (w *worker) loadMarks(ctx context.Context) error {
	args := pg.Args{"lease": w.lease.id}
	if _, err := w.p.cfg.Pool.Exec(ctx, pruneStarted, args); err != nil {
		return err
	}
	rows, err := w.p.cfg.Pool.Query(ctx, loadStarted, args)
	if err != nil {
		return err
	}
	w.starts.of = make(map[offsetKey]start)
	var at offsetKey
	var known start
	_, err = pgx.ForEachRow(rows, []any{&at.topicID, &at.offset, &known.times}, func() error {
		w.starts.of[at] = known
		return nil
	})
	return err
}

// suspected reports whether m was running when an earlier process ended, so that it must run alone.
func (w *worker) suspected(m *message) bool {
	if w.lease.clean {
		return false
	}
	known, marked := w.starts.get(m)
	return marked && (known.times > 1 || !known.here)
}

// inQuarantine reports whether m runs in quarantine: it has a mark, or must get one before it runs.
func (w *worker) inQuarantine(m *message) bool {
	if w.lease.clean {
		return false
	}
	_, marked := w.starts.get(m)
	return marked || w.quarantined.Load() > 0 && m.offset < w.endAtTakeOver.Load()
}

// bound sets the end of the quarantine to the end of the log at the first fetch. Later messages cannot have caused the previous owner's crash. first
// reports whether this was the first fetch with an end.
func (w *worker) bound() (end int64, first bool) {
	end = w.progress.end.Load()
	return end, end >= 0 && w.endAtTakeOver.CompareAndSwap(math.MaxInt64, end)
}

// inGroup runs messages in one transaction. In quarantine it marks all of them first. Groups may run at the same time: a crash counts one start for
// each of their messages. But no group runs at the same time as a suspected message.
func (w *worker) inGroup(ms ...*message) error {
	if !slices.ContainsFunc(ms, w.inQuarantine) {
		return w.attempt(ms...)
	}
	if err := w.lock(w.p.quarantineLock.RLock, w.p.quarantineLock.RUnlock); err != nil {
		return err
	}
	defer w.p.quarantineLock.RUnlock()
	ctx, cancel := context.WithTimeout(w.ctx, statementLimit)
	defer cancel()
	if _, err := w.p.cfg.Pool.Exec(ctx, markGroup, w.markArgs(ms)); err != nil {
		return database(err)
	}
	for _, m := range ms {
		w.starts.set(m, start{1, true}) // a message with more starts runs alone
	}
	if err := w.attempt(ms...); err != nil {
		if !w.counts(err) { // else they run alone now, behind these marks
			w.uncountStarts(ms)
		}
		return err
	}
	w.quarantined.Add(-int64(len(ms)))
	w.attend(func(ctx context.Context) error { return w.unmark(ctx, ms) }) // if this fails, the marks stay without effect, since the messages have ended
	return nil
}

// lock calls lock, and returns an error if w's runs are cancelled before lock has returned. It is cancelled, for example, when w's partition moves to
// another member while lock waits for a run of another partition.
func (w *worker) lock(lock, unlock func()) error {
	locked := make(chan struct{})
	go func() {
		defer close(locked)
		lock()
	}()
	select {
	case <-locked:
		return nil
	case <-w.ctx.Done():
		go func() {
			<-locked
			unlock()
		}()
		return w.ctx.Err()
	}
}

// runQuarantined marks m and runs it. While a suspected message runs, no other message in quarantine runs in the process; any other message runs like
// a group of one. If the mark cannot be deleted after the run, the error makes the caller try m again: m then counts as a duplicate, and its mark is
// deleted.
func (w *worker) runQuarantined(m *message) error {
	lock, unlock := w.p.quarantineLock.RLock, w.p.quarantineLock.RUnlock
	if w.suspected(m) {
		lock, unlock = w.p.quarantineLock.Lock, w.p.quarantineLock.Unlock
	}
	if err := w.lock(lock, unlock); err != nil {
		return err
	}
	defer unlock()
	known, _ := w.starts.get(m)
	if !known.here {
		ctx, cancel := context.WithTimeout(w.ctx, statementLimit)
		defer cancel()
		args := pg.Args{"lease": w.lease.id, "topic_id": m.topicID, "offset": m.offset}
		if err := w.p.cfg.Pool.QueryRow(ctx, markStarted, args).Scan(&known.times); err != nil {
			return database(err)
		}
		w.starts.set(m, start{known.times, true})
	}
	var err error
	if known.times > maxStarts {
		m.began = time.Now()
		err = w.bury(m, failure{class: Poison, err: fmt.Errorf("the process ended %d times while this message ran", known.times-1)})
	} else {
		err = w.decide(m, w.runAlone(m))
	}
	if err != nil {
		w.uncountStarts([]*message{m})
		return err
	}
	w.quarantined.Add(-1)
	ctx, cancel := context.WithTimeout(w.ctx, statementLimit)
	defer cancel()
	if err := w.unmark(ctx, []*message{m}); err != nil {
		return database(err)
	}
	return nil
}

// uncountStarts subtracts the last start of messages whose run has ended without ending the process and is tried again without an attempt, such as
// while a dependency is away. If the statement fails, that start counts as a crash if the process ends before the message does.
func (w *worker) uncountStarts(ms []*message) {
	if w.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, releaseLimit)
	defer cancel()
	args := w.markArgs(ms)
	args["term"] = w.lease.term
	if _, err := w.p.cfg.Pool.Exec(ctx, uncountStart, args); err == nil {
		w.starts.uncount(ms)
	}
}

// unmark deletes the quarantine marks of messages that have ended.
func (w *worker) unmark(ctx context.Context, ms []*message) error {
	_, err := w.p.cfg.Pool.Exec(ctx, unmarkStarted, w.markArgs(ms))
	if err == nil {
		w.starts.drop(ms)
	}
	return err
}

func (w *worker) markArgs(ms []*message) pg.Args {
	topicIDs, offsets := make([][16]byte, len(ms)), make([]int64, len(ms))
	for i, m := range ms {
		topicIDs[i], offsets[i] = m.topicID, m.offset
	}
	return pg.Args{"lease": w.lease.id, "topic_ids": topicIDs, "offsets": offsets}
}

// clocks holds the start time of each running handler. It may be used concurrently.
type clocks struct {
	mu    sync.Mutex
	since map[*message]time.Time
	last  time.Time // when one started or returned
}

func (c *clocks) start(m *message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since == nil {
		c.since = make(map[*message]time.Time)
	}
	c.last = time.Now()
	c.since[m] = c.last
}

func (c *clocks) stop(m *message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = time.Now()
	delete(c.since, m)
}

// longest returns how long the longest-running handler has run, and how many handlers run.
func (c *clocks) longest(now time.Time) (ran time.Duration, running int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, since := range c.since {
		ran = max(ran, now.Sub(since))
	}
	return ran, len(c.since)
}
