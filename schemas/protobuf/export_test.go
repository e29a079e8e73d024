package protobuf

import "time"

// SetMaxTime sets the time that a compilation may take, and returns the function that sets it back.
func SetMaxTime(t time.Duration) (back func()) {
	before := maxTime
	maxTime = t
	return func() { maxTime = before }
}
