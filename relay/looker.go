package relay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

// A looker looks for rows in the shards of this process that rest: their last claim found no rows. The same statement renews the leases of
// all shards of the process. So the cost of an idle relay does not grow with the number of shards.
type looker struct {
	relay     *Relay
	session   session
	wake      chan struct{} // notifications of new rows
	restBegan chan struct{} // signalled when a shard begins to rest
	mayBeFree chan struct{} // signalled when a shard may be free, or another relay holds at least two more shards
	lead      chan struct{} // signalled at the same time, for the goroutine that waits for the lease of shard 0

	mu      sync.Mutex
	leases  map[int]*holding
	resting map[int]*resting
	looked  time.Time // when the last successful look was requested
	allHeld bool      // this look found every shard held, and no other relay that holds at least two more
}

// A holding is a shard whose lease this process holds.
type holding struct {
	lease *lease
	yield context.CancelFunc // ends the term once the rows in flight are settled; nil for shard 0
}

// A resting is a shard whose last claim found no rows. Its poll waits on found until the looker finds rows.
type resting struct {
	scope scope
	found chan restEnd
}

// A restEnd is the reason why the rest of a shard ended.
type restEnd int

const (
	restOver restEnd = iota // the term or the process ended, or the next claim begins at the first row of the table
	restRows                // there are rows
	restSlow                // there are none, but the look took longer than slowLook
)

// slowLook is the duration above which a look passed over so many rows that a new mark is worth its cost, see mark.
const slowLook = 20 * time.Millisecond

func newLooker(r *Relay) *looker {
	return &looker{
		relay: r, wake: make(chan struct{}, 1), restBegan: make(chan struct{}, 1),
		mayBeFree: make(chan struct{}, 1), lead: make(chan struct{}, 1),
		leases: make(map[int]*holding), resting: make(map[int]*resting),
	}
}

// addLease makes the looker renew a lease that this process has taken.
func (l *looker) addLease(h *holding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases[h.lease.ordinal()] = h
}

// removeLease ends the renewals of a lease that this process releases or has lost.
func (l *looker) removeLease(h *holding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leases[h.lease.ordinal()] == h {
		delete(l.leases, h.lease.ordinal())
	}
}

// held returns the shards that this process holds, lowest first.
func (l *looker) held() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.leases))
}

// allShardsHeld reports whether the last look is younger than within and found every shard held, and no other relay that holds at least two
// shards more than this one. Then this process has no shard to take or to request, and other goroutines need not read the leases.
func (l *looker) allShardsHeld(within time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.allHeld && time.Since(l.looked) < within
}

// rest waits until the looker finds rows in the lease's shard (restRows), until a look without rows took longer than slowLook (restSlow),
// or until ctx ends (restOver). s is the scope of the shard's next claim.
func (l *looker) rest(ctx context.Context, of *lease, s scope) restEnd {
	r := &resting{s, make(chan restEnd, 1)}
	l.mu.Lock()
	l.resting[of.shard] = r
	l.mu.Unlock()
	tell(l.restBegan)
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.resting[of.shard] == r {
			delete(l.resting, of.shard)
		}
	}()
	select {
	case w := <-r.found:
		return w
	case <-ctx.Done():
		return restOver
	}
}

// run looks for rows until ctx ends. While it finds none, the time between two looks grows up to Config.Interval.
func (l *looker) run(ctx context.Context) {
	l.session.pool = l.relay.pool
	defer l.session.close()
	wait := firstWait
	for {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-l.restBegan:
			timer.Stop()
			wait = min(wait, firstWait)
			continue
		case <-l.wake:
			timer.Stop()
			l.relay.quiet.recovered("notifications")
			wait = 0
		case <-timer.C:
		}
		found, err := l.renewAndLook(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			l.session.close()
			l.relay.state.failed(err)
			l.relay.quiet.failed("look", err)
			wait = l.relay.cfg.Interval
			continue
		case err == nil:
			l.relay.quiet.recovered("look")
		}
		if found {
			wait = 0
		}
		wait = min(max(2*wait, firstWait), l.relay.cfg.Interval)
	}
}

// looks holds the arguments of look.sql. Each slice has one element for each lease of the process, in the same order.
type looks struct {
	shards    []int
	terms     []int64
	lows      []int64
	pasts     []int64
	blockings []string
	published []*string
	holdings  []*holding
	resting   []*resting // nil: the shard does not rest
}

// due returns the arguments of the next look: all leases of the process, or none if no shard rests.
func (l *looker) due() (a looks) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.resting) == 0 {
		return a
	}
	for shard, h := range l.leases {
		r := l.resting[shard]
		sc := nothing
		if r != nil {
			sc = r.scope
		}
		a.shards, a.terms, a.lows = append(a.shards, shard), append(a.terms, h.lease.term), append(a.lows, sc.low)
		a.pasts, a.blockings = append(a.pasts, sc.past), append(a.blockings, sc.blocking)
		a.published, a.holdings, a.resting = append(a.published, sc.published), append(a.holdings, h), append(a.resting, r)
	}
	return a
}

// renewAndLook renews all leases of the process, and looks for rows in the shards that rest, in one statement. It ends the rest of each
// shard that has rows, and releases each shard that another relay has requested. It does nothing while no shard rests.
func (l *looker) renewAndLook(ctx context.Context) (found bool, err error) {
	a := l.due()
	if len(a.shards) == 0 {
		return false, nil
	}
	if _, err := l.session.connect(ctx); err != nil {
		return false, fmt.Errorf("connect: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, l.relay.cfg.Lease)
	defer cancel()
	asked := time.Now()
	seen, err := l.session.conn.Query(ctx, lookStatement, pg.Args{
		"holder": l.relay.cfg.Holder, "length": l.relay.cfg.Lease, "longest": longestLease(l.relay.cfg.Lease),
		"shard_list": a.shards, "terms": a.terms, "lows": a.lows, "pasts": a.pasts, "blockings": a.blockings,
		"published": a.published,
	})
	if err != nil {
		return false, fmt.Errorf("look for rows: %w", err)
	}
	type sight struct {
		Shard                                    int
		Wanted, MayBeFree, Found, Behind, Paused bool
	}
	sights, err := pgx.CollectRows(seen, pgx.RowToStructByPos[sight])
	if err != nil {
		return false, fmt.Errorf("look for rows: %w", err)
	}
	allHeld := len(sights) == len(a.shards)
	long := time.Since(asked) > slowLook
	for _, s := range sights {
		n := slices.Index(a.shards, s.Shard)
		a.holdings[n].lease.renewed(asked)
		a.holdings[n].lease.reportPause(s.Paused)
		allHeld = allHeld && !s.MayBeFree
		switch {
		case s.Wanted && a.holdings[n].yield != nil:
			a.holdings[n].yield()
		case a.resting[n] == nil:
		case !s.Found:
			l.relay.state.progressed(s.Shard, func(*Status) {})
			if long && s.Behind {
				l.ends(s.Shard, a.resting[n], restSlow)
			}
		default:
			found = true
			l.ends(s.Shard, a.resting[n], restRows)
		}
	}
	l.mu.Lock()
	l.looked, l.allHeld = asked, allHeld
	l.mu.Unlock()
	if !allHeld {
		tell(l.mayBeFree)
		tell(l.lead)
	}
	return found, nil
}

// ends ends the rest of a shard with the reason w.
func (l *looker) ends(shard int, r *resting, w restEnd) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resting[shard] == r {
		delete(l.resting, shard)
	}
	r.found <- w // buffered for one value, and sent to once
}
