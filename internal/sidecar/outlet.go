package sidecar

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/troupe-go/troupe/internal/alert"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/retry"
)

// An outlet is one outbox of the process with its relay. A reload that changes its settings makes a new outlet.
type outlet struct {
	plan   outboxPlan
	alerts *alert.Notifier
	replay replays

	// again reports whether a relay that failed is tried again: true with more than one outlet, so that the others continue.
	again func() bool

	mu      sync.Mutex
	relay   *relay.Relay  // a new one after a failure, since a relay runs once
	pool    *pgxpool.Pool // of the relay
	stats   *statistics
	failure error        // why the relay is not running
	before  relay.Status // counts of the earlier relays
	former  *outlet      // replaced by this one, and still ending; nil: none

	stop  context.CancelFunc
	ended chan struct{}
	err   error // result of run; valid after ended is closed
}

var (
	errStarting = errors.New("starting: the database has not answered yet")
	errFormer   = errors.New("starting: the relay with the former settings drains")
)

// newOutlet checks the parts of the configuration that the plan does not check. It connects to nothing.
func newOutlet(plan outboxPlan, latency *prometheus.HistogramVec, traced func(outbox.PublishedRow), again func() bool) (*outlet, error) {
	o := &outlet{again: again, ended: make(chan struct{})}
	o.failure = errStarting
	observe := latency.WithLabelValues(plan.name)
	plan.relay.Hooks.Acked = func(rows int, took time.Duration) {
		for range rows {
			observe.Observe(took.Seconds())
		}
	}
	plan.relay.Hooks.Traced = traced
	var err error
	if o.alerts, err = plan.tellOfParked(); err != nil {
		return nil, usageError{err}
	}
	o.plan = plan
	if err := o.renew(); err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

// renew makes the relay that runs next.
func (o *outlet) renew() error {
	database := o.plan.database.Copy()
	database.ShouldPing = restedLong
	pool, err := pgxpool.NewWithConfig(context.Background(), database) // connects to nothing yet
	if err != nil {
		return usageError{err}
	}
	config := o.plan.relay
	config.Pool = pool
	r, err := relay.New(config)
	if err != nil {
		pool.Close()
		return usageError{err}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.relay != nil {
		last := o.relay.Status()
		o.before = sum(o.before, last)
		if !last.PausedSince.IsZero() {
			r.Pause()
		}
		o.pool.Close()
	}
	o.relay, o.pool, o.stats = r, pool, &statistics{pool: pool, of: o.plan.table}
	return nil
}

// restedLong reports whether a session is pinged before it is used: after five minutes without use. The pool's default, one
// second, would double the statements of an idle relay. The relay repeats its own statements if a session broke meanwhile; an
// operator's request, such as to retry a parked row, fails with the reason.
func restedLong(_ context.Context, session pgxpool.ShouldPingParams) bool {
	return session.IdleDuration > 5*time.Minute
}

// start runs the relay until stop is called or ctx ends. If the outlet replaces another one, it first waits for the end of that one.
func (o *outlet) start(ctx context.Context) {
	ctx, o.stop = context.WithCancel(ctx)
	go func() {
		defer close(o.ended)
		o.awaitFormer()
		o.err = o.run(ctx)
	}()
}

// replaces makes o continue with the counts and the pause of an outlet that was stopped.
func (o *outlet) replaces(former *outlet) {
	o.former = former
	o.failure = errFormer
	o.pauseAs(former)
}

func (o *outlet) pauseAs(former *outlet) {
	if !former.status().PausedSince.IsZero() {
		o.relay.Pause()
	}
}

func (o *outlet) awaitFormer() {
	if o.former == nil {
		return
	}
	o.former.waitAndLog()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.before, o.former, o.failure = o.former.status(), nil, errStarting
}

// run returns nil when ctx has ended, or the error of the only outlet.
func (o *outlet) run(ctx context.Context) error {
	backoff := retry.Policy{Initial: time.Second, Cap: time.Minute}
	for failures := 1; ; failures++ {
		err := o.runOnce(ctx)
		if ctx.Err() != nil {
			return err
		}
		o.fails(err)
		if !o.again() {
			return err
		}
		wait := backoff.Wait(failures)
		o.plan.relay.Log.Error().Err(err).Stringer("again_in", wait.Round(time.Millisecond)).
			Msg("the relay ended; the other outboxes go on")
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if err := o.renew(); err != nil {
			o.fails(err)
		}
	}
}

func (o *outlet) runOnce(ctx context.Context) error {
	if err := o.look(ctx); err != nil {
		return err
	}
	o.fails(nil)
	err := o.current().Run(ctx)
	if err == nil && ctx.Err() == nil {
		err = errors.New("the relay ended without being asked to")
	}
	return err
}

// look waits until the database answers, and refuses a pooler that a relay cannot work through.
func (o *outlet) look(ctx context.Context) error {
	backoff := retry.Policy{Initial: 100 * time.Millisecond, Cap: 2 * time.Second}
	log := o.plan.relay.Log
	for failures := 1; ; failures++ {
		var found pg.Pooler
		config, err := pg.ConnConfig(ctx, o.plan.database) // before the time limit: a command may take longer than a connection
		if err == nil {
			once, cancel := context.WithTimeout(ctx, askLimit)
			found, err = pg.FindPooler(once, config)
			cancel()
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && found == pg.PoolsStatement:
			return pg.ErrPooled
		case err == nil:
			if found == pg.PoolsSessions {
				log.Warn().Msg("the connection goes through a pooler; each connection seems to keep its session, as the relay needs")
			}
			if failures > 1 {
				log.Info().Int("count", failures).Msg("database: works again")
			}
			return nil
		}
		if failures == 1 {
			log.Warn().Err(err).Msg("database: failed, trying on")
		}
		o.fails(fmt.Errorf("starting: %w", err))
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Wait(failures)):
		}
	}
}

func (o *outlet) fails(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failure = err
}

func (o *outlet) current() *relay.Relay {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.relay
}

// status returns the relay's status, with the counts of earlier relays added.
func (o *outlet) status() relay.Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.relay.Status()
	before := o.before
	if o.former != nil {
		before = o.former.status()
	}
	counted := sum(before, s)
	s.Claimed, s.Published, s.Deleted = counted.Claimed, counted.Published, counted.Deleted
	s.Retried, s.Parked = counted.Retried, counted.Parked
	return s
}

func sum(a, b relay.Status) relay.Status {
	return relay.Status{
		Claimed: a.Claimed + b.Claimed, Published: a.Published + b.Published, Deleted: a.Deleted + b.Deleted,
		Retried: a.Retried + b.Retried, Parked: a.Parked + b.Parked,
	}
}

// ready returns the reason why no rows are published, or nil.
func (o *outlet) ready() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failure != nil {
		return o.failure
	}
	paused := o.relay.Status()
	if since := paused.PausedSince; !since.IsZero() {
		return fmt.Errorf("paused for %s: POST /resume ends it", time.Since(since).Round(time.Second))
	}
	if p := paused.StoredPause; p != nil {
		return fmt.Errorf("paused for %s in the database by %s (%s): outbox-relay resume ends it",
			time.Since(p.Since).Round(time.Second), p.Actor, p.Reason)
	}
	return o.relay.Ready()
}

// wait waits for the end of run and closes the outlet's resources.
func (o *outlet) wait() error {
	<-o.ended
	o.close()
	return o.err
}

// waitAndLog is wait for an outlet that a reload has stopped.
func (o *outlet) waitAndLog() {
	if err := o.wait(); err != nil {
		o.plan.relay.Log.Error().Err(err).Msg("reload: ended")
	}
}

func (o *outlet) close() {
	o.replay.stop()
	if o.pool != nil {
		o.pool.Close()
	}
	if o.alerts != nil {
		if err := o.alerts.Close(); err != nil { // sends the alerts that are still counted
			o.plan.relay.Log.Error().Err(err).Msg("ended")
		}
	}
}
