package participant

import (
	"time"

	"github.com/troupe-go/troupe/retry"
)

// A message whose handler returns retry.RateLimited waits with its key for the time that the error names, and counts no attempt.
// Config.RateLimitedWait limits the time since the message's first failure.

// leastLimitedWait is the shortest wait after a rate limit, also if the error names no time.
const leastLimitedWait = time.Second

// limitedTooLong reports whether m is rate limited and failed for the first time at least Config.RateLimitedWait ago.
func (p *Participant) limitedTooLong(m *message, f failure) bool {
	return f.class == RateLimited && m.failing() >= p.cfg.RateLimitedWait
}

// waitForLimit returns how long m waits for its next try: as long as the error names, but not beyond Config.RateLimitedWait.
func (p *Participant) waitForLimit(m *message, f failure) time.Duration {
	return max(min(retry.NotBefore(f.err), p.cfg.RateLimitedWait-m.failing()), leastLimitedWait)
}

// failing returns how long ago m has failed for the first time; 0 if it fails for the first time now. A failure in the database is timed by its clock,
// and one before a retry topic by the clocks of the members.
func (m *message) failing() (ago time.Duration) {
	if m.held != nil {
		ago = m.held.failingFor
	}
	if first := m.again.firstFailed; first != nil {
		ago = max(ago, time.Since(*first))
	}
	return ago
}

// reportLimited logs a run that was rate limited, once it is recorded.
func (w *runner) reportLimited(m *message, f failure) {
	w.cuts.forget(m)
	d := w.delivery(m)
	d.Class = f.class
	w.p.failures.of(d).report(f.err)
}
