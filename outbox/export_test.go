package outbox

import "time"

// Due returns the topics that a notification names for a commit that writes to topics at now.
func (o *Outbox) Due(now time.Time, topics ...string) []string { return o.hints.due(now, topics) }
