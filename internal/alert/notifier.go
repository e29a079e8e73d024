package alert

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Stats has the counts since New. Every incident is in one of Told, Lost, Dropped and Waiting.
type Stats struct {
	Incidents int64 `json:"incidents"` // calls of Notify
	Alerts    int64 `json:"alerts"`    // alerts that the receiver accepted; without a URL, that were logged
	Attempts  int64 `json:"attempts"`  // failed requests

	Told    int64 `json:"told"`    // incidents in alerts that the receiver accepted
	Lost    int64 `json:"lost"`    // incidents in alerts that it refused, or that Close had no time for
	Dropped int64 `json:"dropped"` // incidents above Config.Causes, or after Close
	Waiting int64 `json:"waiting"` // incidents that are counted for the next alert of their cause
}

// A Notifier posts alerts. It may be used concurrently. Call Close at the end.
type Notifier struct {
	cfg    Config
	to     atomic.Pointer[target]
	client *http.Client
	close  func() // closes idle connections

	wake    chan struct{}
	closing chan struct{}
	once    sync.Once
	done    chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc

	mu      sync.Mutex
	causes  map[cause]*tally
	dropped int // since the last alert
	stats   Stats
}

// A tally holds the counts of one cause.
type tally struct {
	last  Incident
	count int // incidents since the last alert
	since time.Time
	due   time.Time // no alert before
}

// New validates the configuration, makes the body of a trial alert, and starts the Notifier's goroutine. It connects to nothing.
// Its errors do not repeat the URL.
func New(cfg Config) (*Notifier, error) {
	cfg, u, err := cfg.read()
	if err != nil {
		return nil, err
	}
	n := &Notifier{
		cfg: cfg, wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{}),
		causes: make(map[cause]*tally),
	}
	n.to.Store(newTarget(u, cfg.Header))
	n.newClient()
	n.ctx, n.cancel = context.WithCancel(context.Background())
	go n.run()
	return n, nil
}

// Notify counts an incident. It never blocks.
func (n *Notifier) Notify(i Incident) {
	i = i.trimmed()
	of := i.cause()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stats.Incidents++
	t := n.causes[of]
	if t == nil && !n.isClosing() {
		n.sweep(time.Now())
		if len(n.causes) < n.cfg.Causes {
			t = &tally{}
			n.causes[of] = t
		}
	}
	if t == nil || n.isClosing() {
		n.stats.Dropped++
		n.dropped++
		return
	}
	if t.count == 0 {
		t.since = i.At
	}
	t.last = i
	t.count++
	n.stats.Waiting++
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// sweep deletes causes without incidents for which an alert would be due at once, if there are too many causes.
func (n *Notifier) sweep(now time.Time) {
	if len(n.causes) < n.cfg.Causes {
		return
	}
	for of, t := range n.causes {
		if t.count == 0 && !t.due.After(now) {
			delete(n.causes, of)
		}
	}
}

// Stats returns the counts. It may be called at any time.
func (n *Notifier) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stats
}

// Close posts the counted incidents, even if they are not due, for at most Config.Drain, and ends the goroutine. Its error has
// the number of incidents that were lost. Later incidents are dropped. A second call waits for the same end.
func (n *Notifier) Close() error {
	before := n.Stats().Lost
	n.once.Do(func() { close(n.closing) })
	limit := time.AfterFunc(n.cfg.Drain, n.cancel)
	<-n.done
	limit.Stop()
	n.cancel()
	n.close()
	if lost := n.Stats().Lost - before; lost > 0 {
		return fmt.Errorf("alert: %d incidents were not told before the end", lost)
	}
	return nil
}

func (n *Notifier) isClosing() bool {
	select {
	case <-n.closing:
		return true
	default:
		return false
	}
}

// run sends the alerts one by one: there is one receiver, and if it is away, it is away for all alerts.
func (n *Notifier) run() {
	defer close(n.done)
	for {
		last := n.isClosing() // read first: nothing is counted after it
		a, of, wait := n.take(time.Now())
		if a != nil {
			n.settle(of, *a, n.deliver(*a))
			continue
		}
		if last {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-n.wake:
		case <-timer.C:
		case <-n.closing:
		}
		timer.Stop()
	}
}

// take makes an alert of the cause that is due the longest. If none is due, it returns the time until the next.
func (n *Notifier) take(now time.Time) (a *Alert, of cause, wait time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var first *tally
	for c, t := range n.causes {
		if t.count > 0 && (first == nil || t.due.Before(first.due)) {
			first, of = t, c
		}
	}
	if first == nil {
		return nil, of, n.cfg.Every
	}
	if wait = first.due.Sub(now); wait > 0 && !n.isClosing() {
		return nil, of, wait
	}
	a = &Alert{Incident: first.last, Source: n.cfg.Source, Count: first.count, Since: first.since, Dropped: n.dropped}
	first.count, n.dropped = 0, 0
	first.due = now.Add(n.cfg.Every)
	return a, of, 0
}

// settle counts the result of an alert. The incidents of an alert that can be posted later return to their cause.
func (n *Notifier) settle(of cause, a Alert, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err == nil:
		n.stats.Alerts++
		n.stats.Told += int64(a.Count)
		n.stats.Waiting -= int64(a.Count)
		return
	case errors.Is(err, errRefused) || n.isClosing():
		n.stats.Lost += int64(a.Count)
		n.stats.Waiting -= int64(a.Count)
		n.cfg.Log.Error().Str("error", err.Error()).Int("incidents", a.Count).Msg("alert lost")
	default:
		t := n.causes[of]
		if t == nil { // swept meanwhile
			t = &tally{}
			n.causes[of] = t
		}
		if t.count == 0 {
			t.last = a.Incident
		}
		t.count += a.Count
		t.since = a.Since
		t.due = time.Now().Add(min(n.cfg.Every, n.cfg.Retry.Cap))
		n.cfg.Log.Error().Str("error", err.Error()).Int("incidents", t.count).Msg("alert not delivered: it is sent again later")
	}
	n.dropped += a.Dropped
}
