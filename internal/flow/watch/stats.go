package watch

import (
	"sync"
	"time"
)

// Stats is the progress of a Watcher.
type Stats struct {
	Flow string
	// Messages counts the messages that this process has stored.
	Messages int64
	// Behind is the time since the latest moment up to which all records of the brokers are stored and judged. While there is no
	// such moment it counts from the begin of Run, and it is 0 before. Normally it is a second or two. While it is above a
	// minute, no answer is found missing.
	Behind time.Duration
}

// counts holds the values that Stats returns.
type counts struct {
	mu       sync.Mutex
	messages int64
	judged   time.Time // or the begin of Run
}

func (c *counts) stored(messages int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messages += int64(messages)
}

func (c *counts) judgedUpTo(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.judged = at
}

// Stats returns the progress of w. It does no I/O.
func (w *Watcher) Stats() Stats {
	w.counts.mu.Lock()
	defer w.counts.mu.Unlock()
	s := Stats{Flow: w.cfg.Flow, Messages: w.counts.messages}
	if !w.counts.judged.IsZero() {
		s.Behind = max(time.Since(w.counts.judged), 0)
	}
	return s
}
