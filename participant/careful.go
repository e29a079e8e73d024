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
	//go:embed sql/load_started.sql
	loadStarted string
	//go:embed sql/prune_started.sql
	pruneStarted string
)

// maxStarts is how often a message may be running when its process ends, before it is taken for the cause.
const maxStarts = 5

// After an owner that crashed, one of the first messages may be what it crashed of. They run behind marks that a crash
// leaves behind: in groups at first, which tells who is suspected, and those who are, one by one, which tells who it was.
// Others pay nothing for it.

// place is a message's, by which it is known again when it comes from troupe.held anew.
type place struct {
	topicID uuid.UUID
	offset  int64
}

func (m *message) spot() place { return place{m.topicID, m.offset} }

// start is what is known of a message with a mark.
type start struct {
	n    int  // how often it was begun, in a group or alone: once per owner, however often something it needs is away
	here bool // this owner has begun it
}

// starts are the marks of messages that have not ended. It may be used concurrently.
type starts struct {
	mu sync.Mutex
	of map[place]start
}

func (s *starts) get(m *message) (start, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.of[m.spot()]
	return known, ok
}

func (s *starts) set(m *message, to start) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[m.spot()] = to
}

func (s *starts) drop(ms []*message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range ms {
		delete(s.of, m.spot())
	}
}

// loadMarks reads which messages had begun when an owner before this one crashed: as many as were under way. It forgets
// marks of yesterday: a crash between the end of a message and its mark's leaves one to nobody.
func (w *worker) loadMarks(ctx context.Context) error {
	args := pg.Args{"lease": w.lease.id}
	if _, err := w.p.cfg.Pool.Exec(ctx, pruneStarted, args); err != nil {
		return err
	}
	rows, err := w.p.cfg.Pool.Query(ctx, loadStarted, args)
	if err != nil {
		return err
	}
	w.starts.of = make(map[place]start)
	var at place
	var known start
	_, err = pgx.ForEachRow(rows, []any{&at.topicID, &at.offset, &known.n}, func() error {
		w.starts.of[at] = known
		return nil
	})
	return err
}

// suspected says whether m had begun when its process ended: then it runs alone.
func (w *worker) suspected(m *message) bool {
	if w.lease.clean {
		return false
	}
	known, marked := w.starts.get(m)
	return marked && (known.n > 1 || !known.here)
}

// behindMark says whether m has a mark, or needs one.
func (w *worker) behindMark(m *message) bool {
	if w.lease.clean {
		return false
	}
	_, marked := w.starts.get(m)
	return marked || w.careful.Load() > 0 && m.offset < w.written.Load()
}

// bound takes where the log ends with the first fetch: what comes later cannot be what the owner before crashed of.
func (w *worker) bound() {
	if end := w.progress.end.Load(); end >= 0 {
		w.written.CompareAndSwap(math.MaxInt64, end)
	}
}

// inGroup runs messages in one transaction, after a crash behind marks of all of them. Groups may run at once: none of
// theirs is blamed for a crash by more than one start. But none runs beside a message that is suspected.
func (w *worker) inGroup(ms ...*message) error {
	if !slices.ContainsFunc(ms, w.behindMark) {
		return w.attempt(ms...)
	}
	w.p.alone.RLock()
	defer w.p.alone.RUnlock()
	ctx, cancel := context.WithTimeout(w.ctx, statementLimit)
	defer cancel()
	if _, err := w.p.cfg.Pool.Exec(ctx, markGroup, w.markArgs(ms)); err != nil {
		return database(err)
	}
	for _, m := range ms {
		w.starts.set(m, start{1, true}) // those that had more run alone
	}
	if err := w.attempt(ms...); err != nil {
		return err
	}
	w.careful.Add(-int64(len(ms)))
	w.attend(func(ctx context.Context) error { return w.unmark(ctx, ms) }) // they have ended: a mark that stays is nobody's
	return nil
}

// carefully runs m alone in the process, behind a mark of its own.
func (w *worker) carefully(m *message) error {
	w.p.alone.Lock()
	defer w.p.alone.Unlock()
	known, _ := w.starts.get(m)
	if !known.here {
		ctx, cancel := context.WithTimeout(w.ctx, statementLimit)
		defer cancel()
		args := pg.Args{"lease": w.lease.id, "topic_id": m.topicID, "offset": m.offset}
		if err := w.p.cfg.Pool.QueryRow(ctx, markStarted, args).Scan(&known.n); err != nil {
			return database(err)
		}
		w.starts.set(m, start{known.n, true})
	}
	var err error
	if known.n > maxStarts {
		m.began = time.Now()
		err = w.bury(m, failure{class: Poison, err: fmt.Errorf("the process ended %d times while this message ran", known.n-1)})
	} else {
		err = w.decide(m, w.alone(m))
	}
	if err != nil {
		return err
	}
	w.careful.Add(-1)
	ctx, cancel := context.WithTimeout(w.ctx, statementLimit)
	defer cancel()
	if err := w.unmark(ctx, []*message{m}); err != nil {
		return database(err)
	}
	return nil
}

// unmark is for messages that have ended.
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

// clocks say since when each handler runs. They may be used concurrently.
type clocks struct {
	mu    sync.Mutex
	since map[*message]time.Time
	last  time.Time // when one began or returned
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

// longest is how long the longest of them has run, and how many there are.
func (c *clocks) longest(now time.Time) (ran time.Duration, running int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, since := range c.since {
		ran = max(ran, now.Sub(since))
	}
	return ran, len(c.since)
}
