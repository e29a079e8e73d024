package coordinator

import "time"

// LookLimit replaces the limit of a look for definitions. Call it before the participant runs.
func (c *Coordinator) LookLimit(limit time.Duration) { c.lookLimit = limit }

// Submissions returns the number of callers of Submit that wait.
func (c *Coordinator) Submissions() int {
	n, _ := c.submissions.Load()
	return n
}

// Waiting returns the number of calls of Wait for a saga.
func (c *Coordinator) Waiting(id string) int {
	c.waits.mu.Lock()
	defer c.waits.mu.Unlock()
	return len(c.waits.calls[id])
}
