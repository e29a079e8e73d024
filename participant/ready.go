package participant

import (
	"errors"
	"fmt"
	"time"
)

// wedgedAfter is the longest time that a handler may take to return after its time-out. After that it counts as ignoring the time-out.
const wedgedAfter = 5 * time.Second

// Ready returns nil while messages are handled as they come, and else the reason why not:
//
//   - Run has not begun or has ended, the topics are missing, or the group was not joined or was lost;
//   - a partition waits for the database or another dependency, or cannot be read;
//   - a handler ended its goroutine, or continues after its time-out;
//   - deadlines cannot be fired, or permits of rate limits cannot be claimed;
//   - a transaction waits for an advisory lock of a role without rights;
//   - local work has no connection of its own to the database, or a topic is not local any more;
//   - a partition has stalled: there are messages, or the broker no longer reports whether there are, and nothing has ended for 10 s longer
//     than Config.Timeout (40 s at least), for no known reason;
//   - messages cannot be read, since a producer's transaction has been open for 15 minutes.
//
// A participant without partitions, since other members have them, is ready. Ready does no I/O.
func (p *Participant) Ready() error {
	p.mu.Lock()
	state, c, l, unfired, blocked := p.state, p.consumer, p.local, p.unfired, p.blocked
	p.mu.Unlock()
	switch {
	case state != nil:
	case l != nil:
		state = l.ready(time.Now())
	default:
		state = c.ready(time.Now())
	}
	if state == nil && unfired != nil {
		state = fmt.Errorf("deadlines are not fired: %w", unfired)
	}
	if unclaimed := p.errUnclaimed(); state == nil && unclaimed != nil {
		state = fmt.Errorf("no permits of rate limits are claimed: %w", unclaimed)
	}
	if state == nil {
		state = blocked
	}
	if state != nil {
		return fmt.Errorf("participant %s: %w", p.cfg.Group, state)
	}
	return nil
}

func (c *consumer) ready(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost != nil {
		return fmt.Errorf("the group was lost: %w", c.lost)
	}
	if !c.joined {
		return errors.New("the group was not joined yet")
	}
	for at, w := range c.workers {
		if waits := w.gate.waits.Load(); waits != nil {
			return fmt.Errorf("%s waits for %s since %s: %w", at, waits.what, now.Sub(waits.since).Round(time.Second), waits.unavailable)
		}
		if blocked := w.blocked.Load(); blocked != nil {
			return fmt.Errorf("%s cannot be read: %w", at, blocked.err)
		}
		if w.died.Load() {
			return fmt.Errorf("%s: a handler ended its goroutine", at)
		}
		if ran, wedged := w.wedged(now); wedged {
			return fmt.Errorf("%s: a handler runs for %s and ignores its time-out", at, ran.Round(time.Second))
		}
		if stalled := w.progress.stalled.Load(); stalled != nil {
			return fmt.Errorf("%s is stalled: %w", at, *stalled)
		}
	}
	return nil
}

// wedged reports whether a handler ignores its time-out, and how long the longest one has run.
func (w *runner) wedged(now time.Time) (ran time.Duration, wedged bool) {
	ran, _ = w.clocks.longest(now)
	return ran, ran > w.p.cfg.Timeout+min(w.p.cfg.Timeout, wedgedAfter)
}
