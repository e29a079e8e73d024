package relay

import "time"

// Reading is how long the place may take to be read, before Run.
func (r *Relay) Reading(d time.Duration) { r.reading = d }

// Silence is for how long the server may send nothing before it is asked whether it still streams, before Run.
func (r *Relay) Silence(d time.Duration) { r.silence = d }

// ClosePool closes a pool as the relay closes its own.
var ClosePool = closePool
