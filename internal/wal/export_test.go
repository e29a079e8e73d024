package wal

// Len returns the number of values left.
func (t *Tuple) Len() int { return t.left }
