package relay

import "time"

// Reading is how long the checkpoint may take to be read, before Run.
func (r *Relay) Reading(d time.Duration) { r.reading = d }

// Silence sets for how long the server may send nothing before it is asked whether it still streams, and how long the answer may
// take, before Run.
func (r *Relay) Silence(silence, answer time.Duration) { r.silence, r.answer = silence, answer }

// ClosePool closes a pool as the relay closes its own.
var ClosePool = closePool
