package relay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/troupe-go/troupe/internal/pg"
)

// leaseChannel is notified when a lease is released.
const leaseChannel = "troupe_relay"

// errLost says that the term is over: somebody else holds the lease, or it could not be renewed in time.
var errLost = errors.New("the lease is lost")

// A querier is a pool or a connection.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// A lease is the right to publish for one term. Expiry is decided by the database's clock; this side only knows the
// moment before it asked for the last renewal, and by its own monotonic clock how long ago that was.
type lease struct {
	shard  int // below 0: of a table with a mapping
	holder string
	term   int64
	length time.Duration
	paused func(bool) // is told with each renewal whether the outbox is; nil: nobody

	mu     sync.Mutex
	shards int       // of how many shards; 0: 1
	since  time.Time // when the renewal that last succeeded was asked for
	slot   *string   // that the holder streams; nil: none
}

// args are the named arguments that identify the term, together with others.
func (l *lease) args(others pg.Args) pg.Args {
	args := pg.Args{"shard": l.shard, "shards": l.of(), "holder": l.holder, "term": l.term, "longest": longest(l.length)}
	for name, value := range others {
		args[name] = value
	}
	return args
}

// ordinal is the shard's number among those of its outbox. A table with a mapping has one, whatever its lease's number.
func (l *lease) ordinal() int { return max(l.shard, 0) }

// of is into how many shards the outbox is divided.
func (l *lease) of() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.shards, 1)
}

// divided says into how many it is from now on.
func (l *lease) divided(shards int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shards = shards
}

// heard passes on what a renewal said.
func (l *lease) heard(paused bool) {
	if l.paused != nil {
		l.paused(paused)
	}
}

// renewed says when a renewal that succeeded was asked for.
func (l *lease) renewed(asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = asked
}

// age is how long ago the lease was renewed, and left how long it is good for at least.
func (l *lease) age() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.since)
}

func (l *lease) left() time.Duration { return l.long() - l.age() }

// A scope is which rows a claim looks at.
type scope struct {
	low       int64   // those above it
	past      int64   // those above it alone, while blocking holds
	blocking  string  // a digest of which rows others wait behind
	published *string // a snapshot: not those that it sees, but for those in trouble
	sweep     *string // a snapshot: only those that it sees
}

func (s scope) args(others pg.Args) pg.Args {
	args := pg.Args{"low": s.low, "past": s.past, "blocking": s.blocking, "published": s.published, "sweep": s.sweep}
	for name, value := range others {
		args[name] = value
	}
	return args
}

// nothing is for a renewal that does not look for rows.
var nothing = scope{low: math.MaxInt64}

// long is the length that renewals ask for. A holder that streams a slot may take longer: who finds the slot idle need
// not wait.
func (l *lease) long() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.slot != nil {
		return streamLease
	}
	return l.length
}

// streams says which slot the holder streams, with the next renewal; nil: none.
func (l *lease) streams(ctx context.Context, db querier, slot *string) error {
	l.mu.Lock()
	l.slot = slot
	l.mu.Unlock()
	_, err := l.renew(ctx, db, nothing)
	return err
}

// rests says that the slot is streamed no more; the next renewal stores it.
func (l *lease) rests() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slot = nil
}

// streamLease keeps an idle relay's statements few.
const streamLease = time.Minute

// longest is how long a lease of other relays may last by the database's clock: twice the longest that one set like this
// takes. A lease beyond it was taken while the clock was ahead; its holder, if it lives, loses the term, which costs repeats.
func longest(length time.Duration) time.Duration { return 2 * max(length, streamLease) }

// renew says whether a claim would find a row. The error is errLost when the term is over.
func (l *lease) renew(ctx context.Context, db querier, look scope) (found bool, err error) {
	asked := time.Now()
	l.mu.Lock()
	slot := l.slot
	l.mu.Unlock()
	var paused bool
	err = db.QueryRow(ctx, renewLease, l.args(look.args(pg.Args{"length": l.long(), "slot": slot}))).Scan(&paused, &found)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, fmt.Errorf("renew: %w", errLost)
	case err != nil:
		return false, fmt.Errorf("renew the lease: %w", err)
	}
	l.renewed(asked)
	l.heard(paused)
	return found, nil
}

// keep renews at a third of the length until ctx ends or the lease is lost, which it returns.
func (l *lease) keep(ctx context.Context, db querier, onError func(error)) error {
	for {
		timer := time.NewTimer(min(l.long()/3-l.age(), l.length))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		if l.age() < l.long()/3 { // renewed by a look meanwhile, or not due yet
			continue
		}
		for {
			once, cancel := toTheEnd(ctx, l.length/3)
			_, err := l.renew(once, db, nothing)
			cancel()
			if err == nil || ctx.Err() != nil {
				break
			}
			if errors.Is(err, errLost) {
				return err
			}
			onError(err)
			if l.left() <= 0 {
				return fmt.Errorf("%w: not renewed for %s: %w", errLost, l.long(), err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(l.length / 20):
			}
		}
	}
}

// release ends the term, so that a standby need not wait for the lease to run out.
func (l *lease) release(ctx context.Context, db querier) error {
	if _, err := db.Exec(ctx, releaseLease, l.args(nil)); err != nil {
		return fmt.Errorf("release the lease: %w", err)
	}
	return nil
}
