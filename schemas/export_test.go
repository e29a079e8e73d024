package schemas

import "time"

// SetClock replaces the clock by which failures expire.
func (r *Registry) SetClock(now func() time.Time) { r.failures.now = now }

// MaxCached is the maximum size of each cache.
const MaxCached = maxCached
