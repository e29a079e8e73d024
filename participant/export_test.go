package participant

import "context"

// Backlog is how many records wait for p's workers.
func (p *Participant) Backlog() (n int) {
	p.mu.Lock()
	c := p.consumer
	p.mu.Unlock()
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.workers {
		waiting, _ := w.lane.Load()
		n += waiting
	}
	return n
}

// PruneInbox forgets what is old enough now, instead of within the next minute.
func (p *Participant) PruneInbox() error { return p.pruneAll(context.Background()) }

// Assigned is how many partitions p has.
func (p *Participant) Assigned() int {
	p.mu.Lock()
	c := p.consumer
	p.mu.Unlock()
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.workers)
}

// WithDefaults is what New makes of a Config.
var WithDefaults = Config.withDefaults
