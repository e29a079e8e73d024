package personal

import "time"

// SetClock replaces the clock by which the codec's keys get old.
func (c *Codec) SetClock(now func() time.Time) { c.keys.now = now }

// ParseKeys reads a key-encryption key from a text.
var ParseKeys = parseKeys
