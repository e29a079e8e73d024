package relay

import "time"

// Reading sets the time limit for reading the checkpoint. Call it before Run.
func (r *Relay) Reading(d time.Duration) { r.reading = d }

// Silence sets for how long the server may send nothing before the relay checks whether it still streams, and the time limit
// of that check. Call it before Run.
func (r *Relay) Silence(silence, answer time.Duration) { r.silence, r.answer = silence, answer }

// ClosePool closes a pool in the same way as the relay closes its own.
var ClosePool = closePool
