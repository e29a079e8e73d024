package relay

import "time"

// Reading is how long the place may take to be read, before Run.
func (r *Relay) Reading(d time.Duration) { r.reading = d }
