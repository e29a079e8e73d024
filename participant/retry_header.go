package participant

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/retry"
)

// The limits of the header __troupe.retry.
const (
	maxOverrideAttempts = 1000
	maxOverrideCap      = 24 * time.Hour
	maxOverrideBytes    = 200
)

// retryOverride holds the retry settings of a command's sender.
type retryOverride struct {
	retry.Policy
	try time.Duration // 0: the participant's time-out
}

// RetryHeader returns the header __troupe.retry for a command, which sets how its sender wants it to be retried, instead of
// Config.Retry and Config.Immediate: policy, whose zero fields mean retry.Default, and how long a run may take, or
// 0 for the participant's own time-out. It refuses values that a participant would ignore: less than one attempt or more than
// 1000, an initial wait of zero, a cap above 24 hours or below the initial wait, a negative try.
func RetryHeader(policy retry.Policy, try time.Duration) (envelope.Header, error) {
	w := retryOverride{policy.WithDefaults(), try}
	if err := w.check(); err != nil {
		return envelope.Header{}, fmt.Errorf("participant: header %s: %w", ce.HeaderRetry, err)
	}
	text := fmt.Sprintf("attempts=%d;initial=%s;cap=%s", w.Attempts, w.Initial, w.Cap)
	if try > 0 {
		text += fmt.Sprintf(";try=%s", try)
	}
	if policy.NoJitter {
		text += ";jitter=no"
	}
	return envelope.Header{Key: ce.HeaderRetry, Value: []byte(text)}, nil
}

func (w retryOverride) check() error {
	switch {
	case w.Attempts < 1 || w.Attempts > maxOverrideAttempts:
		return fmt.Errorf("attempts %d: want 1 to %d", w.Attempts, maxOverrideAttempts)
	case w.Initial <= 0:
		return fmt.Errorf("initial %s: want more than nothing", w.Initial)
	case w.Cap > maxOverrideCap:
		return fmt.Errorf("cap %s: want at most %s", w.Cap, maxOverrideCap)
	case w.Cap < w.Initial:
		return fmt.Errorf("cap %s is below initial %s", w.Cap, w.Initial)
	case w.try < 0:
		return fmt.Errorf("try %s is negative", w.try)
	}
	return nil
}

// parseRetryOverride parses a header. Parts that it lacks are taken from own.
func parseRetryOverride(text string, own retry.Policy) (*retryOverride, error) {
	if len(text) > maxOverrideBytes {
		return nil, fmt.Errorf("%d bytes: want at most %d", len(text), maxOverrideBytes)
	}
	own.Attempts, own.Initial, own.Cap = min(own.Attempts, maxOverrideAttempts), min(own.Initial, maxOverrideCap), min(own.Cap, maxOverrideCap)
	w := &retryOverride{Policy: own}
	seen := make(map[string]bool, 5)
	for part := range strings.SplitSeq(text, ";") {
		name, value, _ := strings.Cut(part, "=")
		if seen[name] {
			return nil, fmt.Errorf("%q comes twice", name)
		}
		seen[name] = true
		if err := w.set(name, value); err != nil {
			return nil, err
		}
	}
	if !seen["cap"] {
		w.Cap = max(w.Cap, w.Initial)
	}
	if !seen["initial"] {
		w.Initial = min(w.Initial, w.Cap)
	}
	return w, w.check()
}

func (w *retryOverride) set(name, value string) (err error) {
	switch name {
	case "attempts":
		w.Attempts, err = strconv.Atoi(value)
	case "initial":
		w.Initial, err = time.ParseDuration(value)
	case "cap":
		w.Cap, err = time.ParseDuration(value)
	case "try":
		if w.try, err = time.ParseDuration(value); err == nil && w.try == 0 {
			err = errors.New("try 0s: want more than nothing")
		}
	case "jitter":
		if w.NoJitter = value == "no"; !w.NoJitter {
			err = fmt.Errorf("jitter %q: want no, or leave it out", value)
		}
	default:
		err = fmt.Errorf("part %q: want attempts, initial, cap, try or jitter", name)
	}
	return err
}

// retryOverride returns the settings of m's sender, or nil if it sent none or none that can be read.
func (p *Participant) retryOverride(m *message) *retryOverride {
	for _, h := range m.Extra {
		if h.Key != ce.HeaderRetry {
			continue
		}
		w, err := parseRetryOverride(string(h.Value), p.cfg.Retry)
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

// timeout returns how long a run of m may take.
func (p *Participant) timeout(m *message) time.Duration {
	if m.override != nil && m.override.try > 0 {
		return min(m.override.try, p.cfg.Timeout)
	}
	return p.cfg.Timeout
}
