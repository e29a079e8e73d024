package participant

import (
	"fmt"
	"time"

	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/retryheader"
	"github.com/troupe-go/troupe/retry"
)

// retryOverride returns the retry settings in m's headers, or nil if there are none. It logs and ignores settings that cannot be read.
func (p *Participant) retryOverride(m *message) *retryheader.Override {
	for _, h := range m.Extra {
		if h.Key != ce.HeaderRetry {
			continue
		}
		w, err := retryheader.Parse(string(h.Value), p.cfg.Retry)
		if err == nil {
			return w
		}
		p.badRetryHeaders.report(fmt.Errorf("message %s on %s: %w", m.id, m.Topic, err))
		return nil
	}
	return nil
}

// policy returns the policy by which m is retried.
func (p *Participant) policy(m *message) retry.Policy {
	if m.override != nil {
		return m.override.Policy
	}
	return p.cfg.Retry
}

// timeout returns the time-out of a run of m. m's own settings can only shorten Config.Timeout.
func (p *Participant) timeout(m *message) time.Duration {
	if m.override != nil && m.override.Try > 0 {
		return min(m.override.Try, p.cfg.Timeout)
	}
	return p.cfg.Timeout
}
