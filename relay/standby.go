package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/retry"
)

// acquire waits for the lease of shard 0 and takes it. While another relay holds the lease, acquire reads it again when it would expire, or
// when its release is notified. These are a few statements per length of the lease. acquire returns an error only when ctx has ended: ctx's
// error.
func (r *Relay) acquire(ctx context.Context) (*lease, error) {
	listen, stop := context.WithCancel(ctx)
	wake := make(chan struct{}, 1)
	var side sync.WaitGroup
	defer side.Wait()
	defer stop()

	backoff := retry.Policy{Initial: 100 * time.Millisecond, Cap: 2 * time.Second}
	listening := false
	for failures := 0; ctx.Err() == nil; {
		l, remaining, err := r.tryLease(ctx)
		switch {
		case ctx.Err() != nil:
			if l != nil { // taken at that very moment
				r.giveBack(ctx, l)
			}
			return nil, ctx.Err()
		case err != nil:
			failures++
			r.state.failed(err)
			r.quiet.failed("lease", err)
			sleep(ctx, backoff.Wait(failures), nil)
			continue
		case l != nil:
			r.quiet.recovered("lease")
			return l, nil
		}
		failures = 0
		r.quiet.recovered("lease")
		if !listening {
			listening = true
			side.Go(func() { r.listen(listen, leaseChannel, wake) })
		}
		for again := true; again; { // if this process holds other shards, their looker also watches the lease of shard 0
			timer := time.NewTimer(min(remaining, r.cfg.Lease) + time.Millisecond)
			again = false
			select {
			case <-ctx.Done():
			case <-r.looker.lead:
			case <-wake:
				r.quiet.recovered("notifications")
			case <-timer.C:
				again = r.looker.allShardsHeld(r.cfg.Lease)
			}
			timer.Stop()
		}
	}
	return nil, ctx.Err()
}

// tryLease takes the lease if it is free. Otherwise it returns for how much longer another relay holds it.
func (r *Relay) tryLease(ctx context.Context) (*lease, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Lease)
	defer cancel()
	shard := 0
	if r.mapped != nil {
		var err error
		if shard, err = r.mapped.claim(ctx, r.pool); err != nil {
			return nil, 0, r.whyDenied(ctx, notMigrated(err))
		}
	}
	var leader string
	var term int64
	var remaining time.Duration
	var shards int
	err := r.pool.QueryRow(ctx, readLease, pg.Args{"shard": shard, "longest": longestLease(r.cfg.Lease)}).Scan(&leader, &term, &shards, &remaining)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, 0, notMigrated(fmt.Errorf("read the lease: %w", err))
	}
	if err == nil {
		r.shards.setShards(shards)
	}
	if remaining > 0 {
		r.standsBy(leader, term)
		return nil, remaining, nil
	}
	l := &lease{shard: shard, holder: r.cfg.Holder, length: r.cfg.Lease, since: time.Now(), paused: r.gate.onRenewal}
	ctx, cancel = toTheEnd(ctx, r.cfg.Lease)
	defer cancel()
	err = r.pool.QueryRow(ctx, claimLease, l.args(pg.Args{"length": l.length})).Scan(&l.term)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, 0, nil // another relay was faster; the next read returns which one
	case err != nil:
		return nil, 0, r.whyDenied(ctx, fmt.Errorf("claim the lease: %w", err))
	}
	return l, 0, nil
}

// toTheEnd returns a context for a statement that takes or renews a lease. This context ends after limit, or releaseLimit after ctx has
// ended. If it ended together with ctx, the server could still execute the statement. Then a lease that this process does not know would
// block other relays until it expires.
func toTheEnd(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(releaseLimit, cancel) })
	return whole, func() {
		stop()
		cancel()
	}
}

// notMigrated adds the cause to the error of a missing table or schema: the database is not migrated.
func notMigrated(err error) error {
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && (refusal.Code == "42P01" || refusal.Code == "3F000") {
		return fmt.Errorf("the database is not migrated: %w", err)
	}
	return err
}

// standsBy records in Status that this relay is a standby, and which relay is active.
func (r *Relay) standsBy(leader string, term int64) {
	now := time.Now()
	r.state.progressed(0, func(s *Status) {
		if s.Role != Standby {
			s.Role, s.Since = Standby, now
			r.cfg.Log.Info().Str("leader", leader).Int64("term", term).Msg("standby")
		}
		s.Leader, s.Term = leader, term
	})
}

// giveBack releases a lease, even after ctx has ended. If that fails, the lease expires.
func (r *Relay) giveBack(ctx context.Context, l *lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	if err := l.release(ctx, r.pool); err != nil {
		r.cfg.Log.Warn().Err(err).Dur("runs_out_in", l.length).Msg("the lease was not released")
	}
}
