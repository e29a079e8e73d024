package schemas

import "time"

// SetClock replaces the clock by which failures expire.
func (r *Registry) SetClock(now func() time.Time) { r.failures.now = now }

// The limits.
const (
	MaxCached      = maxCached // size of each cache
	MaxAnswer      = maxAnswer
	MaxSchema      = maxSchema
	MaxSchemaTypes = maxSchemaTypes
	MaxDepth       = maxDepth
	MaxValues      = maxValues
	MaxEmpty       = maxEmpty
)
