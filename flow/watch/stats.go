package watch

import (
	"sync"
	"time"
)

// Stats is what a Watcher is at now.
type Stats struct {
	Flow string
	// Messages is how many this process has stored.
	Messages int64
	// Behind is the time since the moment up to which all that the brokers had is stored and judged; while that has not been
	// once, since Run began, and 0 before. A second or two where all is well: above a minute nothing is found.
	Behind time.Duration
}

// counts are what Stats reads.
type counts struct {
	mu       sync.Mutex
	messages int64
	judged   time.Time // or when Run began
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

// Stats says what w is at. It does no I/O.
func (w *Watcher) Stats() Stats {
	w.counts.mu.Lock()
	defer w.counts.mu.Unlock()
	s := Stats{Flow: w.cfg.Flow, Messages: w.counts.messages}
	if !w.counts.judged.IsZero() {
		s.Behind = max(time.Since(w.counts.judged), 0)
	}
	return s
}
