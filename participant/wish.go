package participant

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/retry"
)

// HeaderRetry sets, on a command, how its sender wants it to be retried, instead of Config.Retry and Config.Immediate:
//
//	attempts=3;initial=500ms;cap=10s;try=10s
//
// The participant's own values apply for missing parts. A run may take as long as try, or Config.Timeout if that is
// shorter. The waits begin after the first failure: no try follows at once. jitter=no makes them exact. A value that breaks the
// format or its limits is ignored and logged; the command is handled by the participant's own policy.
const HeaderRetry = "__troupe.retry"

// The limits of HeaderRetry.
const (
	maxWishAttempts = 1000
	maxWishCap      = 24 * time.Hour
	maxWishBytes    = 200
)

// wish holds the retry settings of a command's sender.
type wish struct {
	retry.Policy
	try time.Duration // 0: the participant's time-out
}

// RetryHeader returns HeaderRetry for a command: policy, whose zero fields mean retry.Default, and how long a run may take, or
// 0 for the participant's own time-out. It refuses values that a participant would ignore: less than one attempt or more than
// 1000, an initial wait of zero, a cap above 24 hours or below the initial wait, a negative try.
func RetryHeader(policy retry.Policy, try time.Duration) (envelope.Header, error) {
	w := wish{policy.WithDefaults(), try}
	if err := w.check(); err != nil {
		return envelope.Header{}, fmt.Errorf("participant: header %s: %w", HeaderRetry, err)
	}
	text := fmt.Sprintf("attempts=%d;initial=%s;cap=%s", w.Attempts, w.Initial, w.Cap)
	if try > 0 {
		text += fmt.Sprintf(";try=%s", try)
	}
	if policy.NoJitter {
		text += ";jitter=no"
	}
	return envelope.Header{Key: HeaderRetry, Value: []byte(text)}, nil
}

func (w wish) check() error {
	switch {
	case w.Attempts < 1 || w.Attempts > maxWishAttempts:
		return fmt.Errorf("attempts %d: want 1 to %d", w.Attempts, maxWishAttempts)
	case w.Initial <= 0:
		return fmt.Errorf("initial %s: want more than nothing", w.Initial)
	case w.Cap > maxWishCap:
		return fmt.Errorf("cap %s: want at most %s", w.Cap, maxWishCap)
	case w.Cap < w.Initial:
		return fmt.Errorf("cap %s is below initial %s", w.Cap, w.Initial)
	case w.try < 0:
		return fmt.Errorf("try %s is negative", w.try)
	}
	return nil
}

// parseWish parses a header. Parts that it lacks are taken from own.
func parseWish(text string, own retry.Policy) (*wish, error) {
	if len(text) > maxWishBytes {
		return nil, fmt.Errorf("%d bytes: want at most %d", len(text), maxWishBytes)
	}
	own.Attempts, own.Initial, own.Cap = min(own.Attempts, maxWishAttempts), min(own.Initial, maxWishCap), min(own.Cap, maxWishCap)
	w := &wish{Policy: own}
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

func (w *wish) set(name, value string) (err error) {
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

// wish returns the settings of m's sender, or nil if it sent none or none that can be read.
func (p *Participant) wish(m *message) *wish {
	for _, h := range m.Extra {
		if h.Key != HeaderRetry {
			continue
		}
		w, err := parseWish(string(h.Value), p.cfg.Retry)
		if err == nil {
			return w
		}
		p.strange.report(fmt.Errorf("message %s on %s: %w", m.id, m.Topic, err))
		return nil
	}
	return nil
}

// policy returns the policy by which m is retried.
func (p *Participant) policy(m *message) retry.Policy {
	if m.wish != nil {
		return m.wish.Policy
	}
	return p.cfg.Retry
}

// timeout returns how long a run of m may take.
func (p *Participant) timeout(m *message) time.Duration {
	if m.wish != nil && m.wish.try > 0 {
		return min(m.wish.try, p.cfg.Timeout)
	}
	return p.cfg.Timeout
}
