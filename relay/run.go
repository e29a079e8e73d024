package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/retry"
)

// releaseLimit limits the time for the release of a lease. A lease that is not released expires.
const releaseLimit = 5 * time.Second

// Run publishes, or waits as a standby, until ctx ends. Then it claims no more rows, waits up to Drain for outstanding acknowledgements,
// deletes the acknowledged rows, releases the lease and returns nil. While the database or the broker is unavailable, Run waits, however
// long.
//
// Run releases the lease and returns an error in cases that only an operator can resolve: some failures under ExactlyOnce, and an UPDATE of
// a mapped table whose OnUpdate is fatal. The error says how. Run may be called once.
func (r *Relay) Run(ctx context.Context) error {
	if r.ran.Swap(true) {
		return errors.New("relay: run twice")
	}
	pool, err := pg.SessionPool(r.cfg.Pool)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	defer closePool(pool)
	r.pool = pool
	// The context work outlives ctx, so that rows in flight are settled. It ends when Run returns, or Config.Drain after ctx has ended.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		select {
		case <-work.Done():
		case <-time.After(r.cfg.Drain):
			err := fmt.Errorf("not drained within %s: rows that are in flight will be published again", r.cfg.Drain)
			r.state.failed(err)
			r.cfg.Log.Warn().Err(err).Msg("stopped")
			cancel()
		}
	})()
	defer r.state.update(func(s *Status) { s.Role, s.Since = Stopped, time.Now() })

	var others sync.WaitGroup
	defer others.Wait()
	sharing, stopSharing := context.WithCancel(ctx)
	defer stopSharing()
	others.Go(func() { r.watchPause(sharing) })
	if r.shares() {
		others.Go(func() { r.share(sharing, work) })
	}
	for {
		l, err := r.acquire(ctx)
		if err != nil { // only ctx's error
			return nil
		}
		cause := r.lead(ctx, work, l)
		if r.cfg.Hooks.Standing != nil {
			r.cfg.Hooks.Standing(cause)
		}
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(cause, errStop) {
			r.state.failed(cause)
			return fmt.Errorf("relay: %w", cause)
		}
		r.cfg.Log.Warn().Err(cause).Int64("term", l.term).Msg("standby: no longer the active relay")
		r.state.failed(cause)
	}
}

// lead publishes under the lease of shard 0 for one term. Meanwhile it watches the slot, runs maintenance, and removes partitions and
// records. It returns nil when ctx has ended, else the reason why the term ended.
func (r *Relay) lead(ctx, work context.Context, l *lease) error {
	now := time.Now()
	r.state.progressed(0, func(s *Status) { s.Role, s.Since, s.Term, s.Leader = Active, now, l.term, l.holder })
	r.cfg.Log.Info().Int64("term", l.term).Str("holder", l.holder).Msg("active")
	if r.cfg.Hooks.Leading != nil {
		r.cfg.Hooks.Leading(l.term)
	}

	h := &holding{lease: l}
	r.looker.addLease(h)
	defer r.looker.removeLease(h)
	defer r.state.lags(0, 0)
	defer r.state.update(func(s *Status) { s.Source, s.Slot = "", nil })
	return r.hold(ctx, work, l, func(idle, term context.Context, p *publisher) error {
		aside, stop := context.WithCancel(idle)
		var side sync.WaitGroup
		defer side.Wait()
		defer stop()
		side.Go(func() { r.guard(aside, l) })
		side.Go(func() { r.keepHouse(aside) })
		if r.mapped == nil { // another table's partitions and rows are its owner's to delete
			side.Go(func() { r.retain(aside, retainEvery) })
			side.Go(func() { r.removeRecords(aside, recordsEvery) })
		}
		return r.work(idle, term, p, r.workOnce)
	})
}

// hold calls do, which publishes under the lease, until ctx ends or the lease is lost. Meanwhile it renews the lease. At the end it closes
// the Kafka client and releases the lease. It returns nil when ctx has ended, else the reason why the term ended.
//
// do gets two contexts. idle ends with ctx or with the term: then do claims and sends nothing more. term ends with the term or with work:
// until then do may settle rows that it has sent.
func (r *Relay) hold(ctx, work context.Context, l *lease, do func(idle, term context.Context, p *publisher) error) error {
	client, err := r.newProducer() // one per term: records left in it at the end of one term must not be sent in a later one
	if err != nil {
		return err // unexpected: New made a client with the same options
	}
	term, lose := context.WithCancelCause(work)
	defer lose(nil)
	idle, stopIdling := context.WithCancel(ctx)
	defer stopIdling()
	defer context.AfterFunc(term, stopIdling)()

	p := &publisher{
		relay: r, lease: l, client: client, sender: newSender(client), failing: make(map[string]refusal),
		renderer: newRenderer(outboxrow.Defaults{Source: r.cfg.Service, ContentType: r.cfg.ContentType}),
	}
	p.sender.patience = r.newPatience()
	var side sync.WaitGroup
	side.Go(func() {
		if err := l.renewUntilLost(term, r.pool, func(err error) { r.quiet.failed("lease", err) }); err != nil {
			lose(err)
		}
	})
	err = r.readPause(idle) // before any row is read
	if err == nil {
		err = do(idle, term, p)
	}
	if err != nil {
		lose(err)
	}
	cause := context.Cause(term)
	stopIdling()
	lose(nil)
	// The client is closed before the lease is released: after that it must send nothing.
	p.client.Close()
	side.Wait()
	if !errors.Is(cause, errLost) || l.shard > 0 { // the lease of a shard is also lost when the layout changes, and the new layout waits until it is free
		r.giveBack(work, l)
	}
	if ctx.Err() != nil {
		return nil
	}
	return cause
}

// publish runs rounds until idle ends. It returns errors that end the source or the term, and runs another round after any other error.
func (r *Relay) publish(idle, term context.Context, p *publisher) error {
	backoff := retry.Policy{Initial: 100 * time.Millisecond, Cap: 2 * time.Second}
	wait, failures := time.Duration(0), 0
	for {
		if may, err := p.mayGoOn(idle); !may {
			return err
		}
		found, err := p.round(idle, term, wait)
		switch {
		case errors.Is(err, errLost), errors.Is(err, errStream), errors.Is(err, errSwept),
			errors.Is(err, errAborted), errors.Is(err, errAgain), errors.Is(err, errStop), errors.Is(err, errServer):
			return err
		case idle.Err() != nil:
			return nil
		case err != nil:
			failures++
			r.state.failed(err)
			r.quiet.failed("publish", err)
			sleep(idle, backoff.Wait(failures), nil)
			continue
		case failures > 0:
			failures = 0
			r.quiet.recovered("publish")
		}
		if found {
			wait = 0
			continue
		}
		wait = min(max(2*wait, firstWait), r.cfg.Interval)
		if p.source.awaitRows(idle, wait) {
			r.quiet.recovered("notifications")
			wait = 0
		}
	}
}

// sleep waits for d, until wake is signalled, or until ctx ends. It reports whether wake ended the wait.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) (woken bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-wake:
		return true
	}
	return false
}

// listen signals on wake for each notification on a channel of the database, until ctx ends.
func (r *Relay) listen(ctx context.Context, channel string, wake chan<- struct{}) {
	l := pg.Listener{
		Config:  r.cfg.Pool.Config(),
		Channel: channel,
		OnError: func(err error) { r.quiet.failed("notifications", err) },
	}
	l.Run(ctx, wake)
}

const houseEvery = 2 * time.Minute // time between two runs of the maintenance

// keepHouse runs maintenance every houseEvery, until ctx ends. It creates partitions in advance, and deletes the failure records of rows
// that no longer exist. It warns of slots that are no longer used, and of failed rows whose table no longer exists.
func (r *Relay) keepHouse(ctx context.Context) {
	warned := make(map[string]bool)
	for {
		if err := r.warnOfLeftSlots(ctx, warned); err != nil && ctx.Err() == nil {
			r.quiet.failed("look for slots left behind", err)
		}
		if err := r.warnOfMissingTables(ctx, warned); err != nil && ctx.Err() == nil {
			r.quiet.failed("missing tables", err)
		}
		if err := r.tidy(ctx); err != nil && ctx.Err() == nil {
			r.quiet.failed("housekeeping", err)
		}
		if sleep(ctx, houseEvery, nil); ctx.Err() != nil {
			return
		}
	}
}

// tidy runs the part of the maintenance that changes rows and tables. For a mapped table it only calls recall.
func (r *Relay) tidy(ctx context.Context) error {
	if err := r.recall(ctx); err != nil {
		return fmt.Errorf("make rows due whose next try was recorded while the database's clock was ahead: %w", err)
	}
	if r.mapped != nil {
		r.quiet.recovered("housekeeping")
		return nil
	}
	if _, err := r.pool.Exec(ctx, forgetFailures); err != nil {
		return fmt.Errorf("delete the failure records of rows that no longer exist: %w", err)
	}
	// Ensure creates partitions ahead of the writers, each in one transaction, so that a kill leaves no part of a partition. It fails if the
	// role does not own the table. Then the owner must create partitions before the existing ones are full.
	headroom, err := retention.Partitions{}.Ensure(ctx, r.pool)
	if headroom > 0 {
		r.state.update(func(s *Status) { s.Headroom = headroom })
	}
	if err != nil {
		return fmt.Errorf("%d positions left: %w", headroom, err)
	}
	r.quiet.recovered("housekeeping")
	return nil
}

// recall makes failed rows due whose next try is further away than twice the longest wait of the configuration: they were recorded while
// the database's clock was ahead.
func (r *Relay) recall(ctx context.Context) error {
	statement, args := recallFailures, pg.Args{"longest": 2 * max(r.cfg.Retry.Cap, r.cfg.UnknownTopic/10)}
	if r.mapped != nil {
		statement, args = recallMappedFailures, r.mapped.args(args)
	}
	_, err := r.pool.Exec(ctx, statement, args)
	return err
}
