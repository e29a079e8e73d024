package participant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
)

// Heartbeats go on whatever becomes of the messages: a fetch that never returns, a partition that nobody resumes, a
// lease that never comes. So each partition is asked what has ended of late, and, where nothing has although nothing is
// here to be done, the broker whether it has more.

const (
	// stallAfter is what is added to the longest time that can pass between two signs of life.
	stallAfter = 10 * time.Second
	// askEvery is how often the broker is asked for the ends of partitions that are quiet: one request to each broker,
	// and a second one where there is more than was fetched.
	askEvery = 5 * time.Second
	askLimit = 5 * time.Second
)

// progress is what is known of how far a partition is. What is plain in it is used by watchProgress only.
type progress struct {
	next    atomic.Int64 // the first offset that has not ended; unknown: -1
	end     atomic.Int64 // what can be read ends before this offset, as the broker said last; unknown: -1
	start   atomic.Int64 // where the log begins, as the broker said last
	last    atomic.Int64 // when something last ended, in Unix nanoseconds
	behind  atomic.Int64 // since when the broker has more and nothing comes, likewise; 0: not
	stalled atomic.Pointer[error]

	busy   time.Time // since when there is something to do; zero: there is nothing
	at     int64     // next at behind
	mute   time.Time // since when the broker does not say; zero: it does
	silent error     // what it says instead
}

func (p *progress) begin(now time.Time) {
	p.next.Store(-1)
	p.end.Store(-1)
	p.touch(now)
}

func (p *progress) touch(now time.Time) { p.last.Store(now.UnixNano()) }

// fetched is told the first offset of what came.
func (p *progress) fetched(first int64) { p.next.CompareAndSwap(-1, first) }

// heard is told what a fetch says beside its records.
func (p *progress) heard(f kgo.FetchPartition) {
	if f.Err != nil {
		return
	}
	end := f.LastStableOffset
	if end < 0 {
		end = f.HighWatermark
	}
	if n := len(f.Records); n > 0 {
		p.fetched(f.Records[0].Offset)
		end = max(end, f.Records[n-1].Offset+1) // a broker may say nothing of it
	}
	p.end.Store(end)
	p.start.Store(max(p.start.Load(), f.LogStartOffset))
}

// from is the first offset that has not ended and is still there; -1 where nothing is known.
func (p *progress) from() int64 {
	next := p.next.Load()
	if start := p.start.Load(); start > 0 {
		next = max(next, start)
	}
	return next
}

// begins is told where an assigned partition is read from; negative: from an end of it.
func (c *consumer) begins(at topicPartition, offset int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.workers[at]; w != nil && offset >= 0 {
		w.progress.fetched(offset)
	}
}

// watchProgress keeps each worker's progress.stalled.
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
			c.ask(ctx, workers)
		}
		trouble.report(judge(workers, time.Now(), c.p.patience))
	}
}

func (c *consumer) current() []*worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.workers))
}

// ask learns how far the partitions go that were quiet of late and have nothing to do.
func (c *consumer) ask(ctx context.Context, workers []*worker) {
	now := time.Now()
	var quiet []*worker
	var topics []string
	for _, w := range workers {
		s := w.lane.State()
		if s.Waiting+s.Running > 0 || w.later.count() > 0 || now.Sub(w.moment()) < watchEvery {
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
		more = w.learn(ends, err, now) || more
	}
	if !more {
		return
	}
	// What retention has removed never comes.
	starts, err := kafka.Starts(ctx, c.client, topics...)
	for _, w := range quiet {
		if o := starts[w.topic][w.id]; err == nil && o.Err == nil {
			w.progress.start.Store(max(w.progress.start.Load(), o.Offset))
			w.compare(now)
		}
	}
}

// learn takes what the broker says of w, and says whether it has more than has ended here.
func (w *worker) learn(ends map[string]map[int32]kafka.Place, err error, now time.Time) (more bool) {
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
	return w.compare(now)
}

// compare notes since when the broker has more than comes.
func (w *worker) compare(now time.Time) (more bool) {
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

// moment is when something last ended in the partition, or a handler of it began or returned.
func (w *worker) moment() time.Time {
	at := time.Unix(0, w.progress.last.Load())
	w.clocks.mu.Lock()
	defer w.clocks.mu.Unlock()
	if w.clocks.last.After(at) {
		return w.clocks.last
	}
	return at
}

// judge sets what Ready says of each worker, and returns one of the reasons.
func judge(workers []*worker, now time.Time, patience time.Duration) (any error) {
	var newest time.Time // in all of them: they take turns
	for _, w := range workers {
		if at := w.moment(); at.After(newest) {
			newest = at
		}
	}
	for _, w := range workers {
		err := w.judge(now, newest, patience)
		if err == nil {
			w.progress.stalled.Store(nil)
			continue
		}
		w.progress.stalled.Store(&err)
		any = fmt.Errorf("%s stands still: %w", w.at, err)
	}
	return any
}

func (w *worker) judge(now, newest time.Time, patience time.Duration) error {
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
	since := w.moment()
	var more int64 // messages that the broker has for longer than patience; all may have ended since the broker said so
	if behind := p.behind.Load(); behind != 0 && late(since, time.Unix(0, behind)) {
		more = p.end.Load() - max(p.from(), 0)
	}
	switch {
	case running > 0, w.gate.waits.Load() != nil, w.blocked.Load() != nil: // told by their own names
		return nil
	case !p.busy.IsZero():
		if !late(since, p.busy) {
			return nil
		}
		idle := now.Sub(since).Round(time.Second)
		switch {
		case s.Held:
			return fmt.Errorf("its lease was not got for %s, and %d messages wait", idle, s.Waiting)
		case s.Running > 0 && w.careful.Load() <= 0:
			return fmt.Errorf("no message has ended for %s, and %d are under way", idle, s.Running)
		case late(newest):
			return fmt.Errorf("no message has ended for %s, and %d wait", idle, s.Waiting)
		}
	case more > 0 && w.term.Load() == 0:
		return fmt.Errorf("its lease was not got for %s, and %d messages are there", now.Sub(since).Round(time.Second), more)
	case more > 0:
		return fmt.Errorf("nothing was fetched for %s, and %d messages are there from offset %d on",
			now.Sub(since).Round(time.Second), more, max(p.from(), 0))
	case !p.mute.IsZero() && late(since, p.mute):
		return fmt.Errorf("nothing was fetched for %s, and the broker does not say what there is: %w",
			now.Sub(since).Round(time.Second), p.silent)
	}
	return nil
}
