package coordinator

import "time"

// LearnLimit replaces the limit of a search for definitions. Call it before the participant runs.
func (c *Coordinator) LearnLimit(limit time.Duration) { c.learnLimit = limit }

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
