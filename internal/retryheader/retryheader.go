// Package retryheader writes and parses the header __troupe.retry of a command, by which its sender sets how it is retried. A saga
// sends it for a step with retry settings; a participant reads it.
package retryheader

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

// The limits of the header.
const (
	maxAttempts = 1000
	maxCap      = 24 * time.Hour
	maxBytes    = 200
)

// Override holds the retry settings of a command's sender.
type Override struct {
	retry.Policy
	Try time.Duration // how long one run may take; 0: the participant's time-out
}

// Header returns the header for o, whose zero fields mean retry.Default. It refuses values that a participant would ignore: less
// than one attempt or more than 1000, an initial wait of zero, a cap above 24 hours or below the initial wait, a negative Try.
func (o Override) Header() (envelope.Header, error) {
	o.Policy = o.WithDefaults()
	if err := o.check(); err != nil {
		return envelope.Header{}, fmt.Errorf("header %s: %w", ce.HeaderRetry, err)
	}
	text := fmt.Sprintf("attempts=%d;initial=%s;cap=%s", o.Attempts, o.Initial, o.Cap)
	if o.Try > 0 {
		text += fmt.Sprintf(";try=%s", o.Try)
	}
	if o.NoJitter {
		text += ";jitter=no"
	}
	return envelope.Header{Key: ce.HeaderRetry, Value: []byte(text)}, nil
}

func (o Override) check() error {
	switch {
	case o.Attempts < 1 || o.Attempts > maxAttempts:
		return fmt.Errorf("attempts %d: want 1 to %d", o.Attempts, maxAttempts)
	case o.Initial <= 0:
		return fmt.Errorf("initial %s: want more than nothing", o.Initial)
	case o.Cap > maxCap:
		return fmt.Errorf("cap %s: want at most %s", o.Cap, maxCap)
	case o.Cap < o.Initial:
		return fmt.Errorf("cap %s is below initial %s", o.Cap, o.Initial)
	case o.Try < 0:
		return fmt.Errorf("try %s is negative", o.Try)
	}
	return nil
}

// Parse parses the value of a header. Parts that it lacks are taken from own, the participant's policy.
func Parse(text string, own retry.Policy) (*Override, error) {
	if len(text) > maxBytes {
		return nil, fmt.Errorf("%d bytes: want at most %d", len(text), maxBytes)
	}
	own.Attempts, own.Initial, own.Cap = min(own.Attempts, maxAttempts), min(own.Initial, maxCap), min(own.Cap, maxCap)
	o := &Override{Policy: own}
	seen := make(map[string]bool, 5)
	for part := range strings.SplitSeq(text, ";") {
		name, value, _ := strings.Cut(part, "=")
		if seen[name] {
			return nil, fmt.Errorf("%q comes twice", name)
		}
		seen[name] = true
		if err := o.set(name, value); err != nil {
			return nil, err
		}
	}
	if !seen["cap"] {
		o.Cap = max(o.Cap, o.Initial)
	}
	if !seen["initial"] {
		o.Initial = min(o.Initial, o.Cap)
	}
	return o, o.check()
}

func (o *Override) set(name, value string) (err error) {
	switch name {
	case "attempts":
		o.Attempts, err = strconv.Atoi(value)
	case "initial":
		o.Initial, err = time.ParseDuration(value)
	case "cap":
		o.Cap, err = time.ParseDuration(value)
	case "try":
		if o.Try, err = time.ParseDuration(value); err == nil && o.Try == 0 {
			err = errors.New("try 0s: want more than nothing")
		}
	case "jitter":
		if o.NoJitter = value == "no"; !o.NoJitter {
			err = fmt.Errorf("jitter %q: want no, or leave it out", value)
		}
	default:
		err = fmt.Errorf("part %q: want attempts, initial, cap, try or jitter", name)
	}
	return err
}
