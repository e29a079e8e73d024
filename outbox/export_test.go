package outbox

import "time"

// At has step called between two steps of r: detaching, detached, noted, dropped. An error of it ends the call there.
func (r *Retention) At(step func(string) error) { r.at = step }

// Due is which topics a commit names that writes to these.
func (o *Outbox) Due(now time.Time, topics ...string) []string { return o.hints.due(now, topics) }
