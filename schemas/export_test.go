package schemas

import "time"

// SetClock replaces the clock by which failures are forgotten.
func (r *Registry) SetClock(now func() time.Time) { r.trouble.now = now }

// MaxCached is the size of each cache.
const MaxCached = maxCached
