package participant

import (
	"context"
	_ "embed"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

var (
	//go:embed sql/mark_started.sql
	markStarted string
	//go:embed sql/unmark_started.sql
	unmarkStarted string
)

// maxStarts is how often a message may be running when its process ends, before it is taken for the cause.
const maxStarts = 5

// carefully runs m alone in the process, behind a mark that a crash leaves behind: after an owner that crashed, one of
// the first messages may be what it crashed of. Others pay nothing for it.
func (w *worker) carefully(m *message) error {
	w.p.alone.Lock()
	defer w.p.alone.Unlock()
	args := pgx.NamedArgs{"lease": w.lease.id, "topic_id": m.topicID, "offset": m.offset}
	at := place{m.topicID, m.offset}
	starts := w.starts[at]
	if starts == 0 { // once per owner, however often something it needs is away
		ctx, cancel := context.WithTimeout(w.ctx, statementLimit)
		defer cancel()
		if err := w.p.cfg.Pool.QueryRow(ctx, markStarted, args).Scan(&starts); err != nil {
			return database(err)
		}
		if w.starts == nil {
			w.starts = make(map[place]int)
		}
		w.starts[at] = starts
	}
	var err error
	if starts > maxStarts {
		m.began = time.Now()
		err = w.bury(m, failure{Poison, fmt.Errorf("the process ended %d times while this message ran", starts-1)})
	} else {
		err = w.decide(m, w.alone(m))
	}
	if err != nil {
		return err
	}
	w.careful.Add(-1)
	ctx, cancel := context.WithTimeout(w.ctx, statementLimit)
	defer cancel()
	if _, err := w.p.cfg.Pool.Exec(ctx, unmarkStarted, args); err != nil {
		return database(err)
	}
	delete(w.starts, at)
	return nil
}

// place is a message's, by which it is known again when it comes from troupe.held anew.
type place struct {
	topicID uuid.UUID
	offset  int64
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
