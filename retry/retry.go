// Package retry is one policy for trying again: how long to wait, how often, and which errors are not worth it.
//
// It only computes; whoever owns the retry keeps the count and does the waiting. One hop has one owner of retries.
package retry

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// A Policy says how often to try and how long to wait in between. The zero value means Default.
type Policy struct {
	Initial  time.Duration // wait after the first failure; doubles with each further one; default 500 ms
	Cap      time.Duration // the longest wait; default 1 min
	Attempts int           // tries in all, the first included; default 8
	NoJitter bool          // wait exactly; by default a wait is random between nothing and all of it (full jitter)
}

// Default is what the zero Policy means: 8 tries, at most 63.5 s of waiting in all.
var Default = Policy{Initial: 500 * time.Millisecond, Cap: time.Minute, Attempts: 8}

// WithDefaults fills the fields that are zero.
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

// Validate refuses what cannot be meant: negative numbers, or a cap below the first wait.
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

// Wait is how long to wait after the failed attempt of that number, counted from 1.
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

// Longest is the most that all waits of the policy can add up to: what a time-out over the whole must exceed.
func (p Policy) Longest() time.Duration {
	p = p.WithDefaults()
	p.NoJitter = true
	var sum time.Duration
	for a := 1; a < p.Attempts; a++ {
		sum += p.Wait(a)
	}
	return sum
}

// Exhausted says whether a message that has failed that often gets no further try.
func (p Policy) Exhausted(failed int) bool { return failed >= p.WithDefaults().Attempts }

// Permanent marks err as one that trying again cannot cure. Nil stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanent{err}
}

// IsPermanent says whether err, or anything it wraps, was marked by Permanent.
func IsPermanent(err error) bool {
	var p permanent
	return errors.As(err, &p)
}

type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// MaxAfter is the longest wait that After asks for.
const MaxAfter = 24 * time.Hour

// After marks err as one after which trying again is no use before wait has passed: whoever was asked said so. The
// policy's own wait stands where it is longer, and the attempts are counted as ever. What is longer than MaxAfter, and a
// wait that is not positive, is cut to these bounds. Nil stays nil.
func After(err error, wait time.Duration) error {
	if err == nil {
		return nil
	}
	return after{err, min(max(wait, 0), MaxAfter)}
}

// NotBefore is the wait that err, or anything it wraps, was marked with by After; 0 where it was not.
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
