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

// leaseChannel is the notification channel on which the release of a lease is announced.
const leaseChannel = "troupe_relay"

// errLost means that the term is over: another relay holds the lease, or it could not be renewed in time.
var errLost = errors.New("the lease is lost")

// A querier is a pool or a connection.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// A lease is the right to publish for one term. It expires by the database's clock. The process measures the age of the lease by its own
// monotonic clock, from just before it requested the last renewal. So it never takes the lease for valid after the lease has expired.
type lease struct {
	shard  int // negative: the lease of a mapped table
	holder string
	term   int64
	length time.Duration
	paused func(bool) // called after each renewal with whether the outbox is paused; may be nil

	mu     sync.Mutex
	shards int       // number of shards of the outbox; 0: 1
	since  time.Time // when the last successful renewal was requested
	slot   *string   // slot that the holder streams; nil: none
}

// args returns the named arguments that identify the term, and adds others.
func (l *lease) args(others pg.Args) pg.Args {
	args := pg.Args{"shard": l.shard, "shards": l.shardCount(), "holder": l.holder, "term": l.term, "longest": longestLease(l.length)}
	for name, value := range others {
		args[name] = value
	}
	return args
}

// ordinal returns the shard's number within its outbox. A mapped table has one shard, number 0, although the number of its lease is
// negative.
func (l *lease) ordinal() int { return max(l.shard, 0) }

// shardCount returns the number of shards of the outbox.
func (l *lease) shardCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.shards, 1)
}

// setShards sets the number of shards.
func (l *lease) setShards(shards int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shards = shards
}

// reportPause calls paused after a renewal, with whether the outbox is paused.
func (l *lease) reportPause(paused bool) {
	if l.paused != nil {
		l.paused(paused)
	}
}

// renewed records that a renewal succeeded which was requested at asked.
func (l *lease) renewed(asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = asked
}

// age returns the time since the last successful renewal was requested.
func (l *lease) age() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.since)
}

// left returns for how long the lease is valid at least. It is negative if the lease may have expired.
func (l *lease) left() time.Duration { return l.long() - l.age() }

// A scope limits the rows that a claim reads, or that a renewal looks for. The zero value sets no limit.
type scope struct {
	low       int64   // only rows with higher positions
	past      int64   // only rows with higher positions, if the digest of the blocking rows equals the field blocking
	blocking  string  // digest of the blocking rows when past was set: see mark
	published *string // snapshot: only rows that it does not see, and failed rows
	sweep     *string // snapshot: only rows that it sees
}

// withoutMarks returns the scope of a claim that begins at the first row of the table.
func (s scope) withoutMarks() scope {
	s.low, s.past = 0, 0
	return s
}

// args returns the named arguments of the scope, and adds others.
func (s scope) args(others pg.Args) pg.Args {
	args := pg.Args{"low": s.low, "past": s.past, "blocking": s.blocking, "published": s.published, "sweep": s.sweep}
	for name, value := range others {
		args[name] = value
	}
	return args
}

// nothing is the scope of a renewal that does not look for rows.
var nothing = scope{low: math.MaxInt64}

// long returns the length that a renewal requests: streamLease while the holder streams a slot, else Config.Lease. The longer lease delays
// no standby, since a standby takes the lease as soon as it finds the slot idle.
func (l *lease) long() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.slot != nil {
		return streamLease
	}
	return l.length
}

// storeSlot renews the lease, and stores in it the name of the slot that the holder streams; nil: none.
func (l *lease) storeSlot(ctx context.Context, db querier, slot *string) error {
	l.mu.Lock()
	l.slot = slot
	l.mu.Unlock()
	_, err := l.renew(ctx, db, nothing)
	return err
}

// clearSlot removes the slot from the lease when a stream has ended. The next renewal stores the change. A standby that finds the stored slot idle
// may take the lease, also before that renewal.
func (l *lease) clearSlot() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slot = nil
}

// streamLease is the length of the lease of a relay that streams. It is long, so that an idle relay runs few statements.
const streamLease = time.Minute

// longestLease returns how long the lease of another relay can last, at most, by the database's clock: twice the longest lease of a relay
// with this configuration. A lease without a slot that lasts longer was taken while the database's clock was ahead, and counts as free. If
// its holder still runs, it loses the term, which causes repeats.
func longestLease(length time.Duration) time.Duration { return 2 * max(length, streamLease) }

// renew renews the lease, and reports whether a claim within the scope look would find a row. The error wraps errLost when the term is
// over.
func (l *lease) renew(ctx context.Context, db querier, look scope) (found bool, err error) {
	asked := time.Now()
	l.mu.Lock()
	slot := l.slot
	l.mu.Unlock()
	statement, args := renewLease, look.args(pg.Args{"length": l.long(), "slot": slot})
	if l.shard < 0 { // of a table with a mapping
		statement, args = renewMappedLease, pg.Args{"length": l.long(), "slot": slot}
	}
	var paused bool
	err = db.QueryRow(ctx, statement, l.args(args)).Scan(&paused, &found)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, fmt.Errorf("renew: %w", errLost)
	case err != nil:
		return false, fmt.Errorf("renew the lease: %w", err)
	}
	l.renewed(asked)
	l.reportPause(paused)
	return found, nil
}

// renewUntilLost renews the lease whenever a third of its length has passed. It returns nil when ctx ends, and an error that wraps errLost
// when the lease is lost. It calls onError with each other error, and tries again.
func (l *lease) renewUntilLost(ctx context.Context, db querier, onError func(error)) error {
	for {
		timer := time.NewTimer(min(l.long()/3-l.age(), l.length))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		if l.age() < l.long()/3 { // renewed by a claim or by the looker meanwhile, or not due yet
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

// release ends the term in the database, so that a standby need not wait until the lease expires.
func (l *lease) release(ctx context.Context, db querier) error {
	if _, err := db.Exec(ctx, releaseLease, l.args(nil)); err != nil {
		return fmt.Errorf("release the lease: %w", err)
	}
	return nil
}
