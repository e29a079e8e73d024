// Package retry is a retry policy: how long to wait, how often to try, and which errors are not retried.
//
// The package only computes. The caller counts the attempts and waits. One hop has one place that retries.
package retry

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// A Policy configures how often to try and how long to wait between tries. The zero value means Default.
type Policy struct {
	Initial  time.Duration // wait after the first failure; doubles with each further failure; default 500 ms
	Cap      time.Duration // longest wait; default 1 min, or Initial if that is longer
	Attempts int           // number of tries, including the first; default 8
	NoJitter bool          // wait the exact time; by default a wait is random between zero and that time (full jitter)
}

// Default holds the values of the zero Policy: 8 tries, at most 63.5 s of waiting in total.
var Default = Policy{Initial: 500 * time.Millisecond, Cap: time.Minute, Attempts: 8}

// WithDefaults returns p with Default's values in the fields that are zero.
func (p Policy) WithDefaults() Policy {
	if p.Initial == 0 {
		p.Initial = Default.Initial
	}
	if p.Cap == 0 {
		p.Cap = max(Default.Cap, p.Initial)
	}
	if p.Attempts == 0 {
		p.Attempts = Default.Attempts
	}
	return p
}

// Validate returns an error for a policy that cannot be intended: negative numbers, or a cap below the first wait.
func (p Policy) Validate() error {
	q := p.WithDefaults()
	switch {
	case q.Initial < 0 || q.Cap < 0:
		return fmt.Errorf("retry: a wait is negative: initial %s, cap %s", p.Initial, p.Cap)
	case q.Attempts < 0:
		return fmt.Errorf("retry: attempts %d: want 1 or more", p.Attempts)
	case q.Cap < q.Initial:
		return fmt.Errorf("retry: cap %s is below initial %s", p.Cap, q.Initial)
	}
	return nil
}

// Wait returns how long to wait after failed attempt number attempt, counted from 1.
func (p Policy) Wait(attempt int) time.Duration {
	p = p.WithDefaults()
	d := p.Initial
	for i := 1; i < attempt && d < p.Cap; i++ {
		if d > p.Cap/2 {
			d = p.Cap
			break
		}
		d *= 2
	}
	d = min(d, p.Cap)
	if p.NoJitter {
		return d
	}
	return rand.N(d + 1)
}

// Longest returns the maximum total of all waits of the policy. A time-out for the whole operation must exceed it.
func (p Policy) Longest() time.Duration {
	p = p.WithDefaults()
	p.NoJitter = true
	var sum time.Duration
	for a := 1; a < p.Attempts; a++ {
		sum += p.Wait(a)
	}
	return sum
}

// Exhausted reports whether a message that has failed this many times gets no further try.
func (p Policy) Exhausted(failed int) bool { return failed >= p.WithDefaults().Attempts }

// Permanent marks err as an error that retrying cannot fix. Nil stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanent{err}
}

// IsPermanent reports whether err, or any error it wraps, was marked by Permanent.
func IsPermanent(err error) bool {
	var p permanent
	return errors.As(err, &p)
}

type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// MaxAfter limits the wait that After stores.
const MaxAfter = 24 * time.Hour

// After marks err with the time, given by the called service, before which a retry is useless. If the policy's own wait is
// longer, the policy's wait is used. Attempts are counted as usual. A wait longer than MaxAfter is reduced to MaxAfter, a
// negative one is zero. Nil stays nil.
func After(err error, wait time.Duration) error {
	if err == nil {
		return nil
	}
	return after{err, min(max(wait, 0), MaxAfter)}
}

// RateLimited marks err as the refusal of a service that limits the rate of calls, with the time after which it accepts the next.
// A participant waits for that time, at least a second, and counts no attempt. The wait is limited as by After. Nil stays nil.
func RateLimited(err error, wait time.Duration) error {
	if err == nil {
		return nil
	}
	return After(limited{err}, wait)
}

// IsRateLimited reports whether err, or any error it wraps, was marked by RateLimited.
func IsRateLimited(err error) bool {
	var l limited
	return errors.As(err, &l)
}

type limited struct{ error }

func (l limited) Unwrap() error { return l.error }

// NotBefore returns the wait that After or RateLimited set on err, or on an error it wraps; 0 if there is none.
func NotBefore(err error) time.Duration {
	var a after
	if errors.As(err, &a) {
		return a.wait
	}
	return 0
}

type after struct {
	error
	wait time.Duration
}

func (a after) Unwrap() error { return a.error }

// Unavailable marks err as the absence of a dependency, by its name: a service, a cache, a bank. It is not about the message. A
// participant's partition then begins no other message and tries this one from time to time until it succeeds, with no attempt
// counted; Ready reports it meanwhile. Nil stays nil.
//
// It is for dependencies that every message needs. For one that only some need, return an ordinary error: then their keys are
// held and others continue.
func Unavailable(dependency string, err error) error {
	if err == nil {
		return nil
	}
	return unavailable{dependency, err}
}

// IsUnavailable reports whether err, or any error it wraps, was marked by Unavailable, and with which dependency.
func IsUnavailable(err error) (dependency string, yes bool) {
	var u unavailable
	yes = errors.As(err, &u)
	return u.dependency, yes
}

type unavailable struct {
	dependency string
	error
}

func (u unavailable) Unwrap() error { return u.error }
