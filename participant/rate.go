package participant

import (
	"context"
	_ "embed"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/retry"
)

var (
	//go:embed sql/make_rate.sql
	makeRate string
	//go:embed sql/claim_rate.sql
	claimRate string
	//go:embed sql/wait_rate.sql
	waitRate string
)

// rate holds the permits of one handler's rate limit in this process. A permit has a start, by the database's clock. It can be used from its start
// on, and expires after life. The starts of all members' permits are spacing apart, so at most (per+life)/spacing = n permits are used in any time of
// length per.
//
// Members claim only permits that start soon, and no more than they have messages for. A permit that is not used is lost.
type rate struct {
	handler string
	n       int
	per     time.Duration
	life    time.Duration
	spacing time.Duration
	most    int // the most permits of one claim

	wake chan struct{}

	mu        sync.Mutex
	permits   []time.Time // the times at which permits expire that have started
	waiting   waiters
	unclaimed error // why no permits can be claimed, although messages wait for them
}

// mostLate is the number of claims in a row without a usable permit after which Ready reports that claims take too long.
const mostLate = 5

// lifeOf returns how long a permit can be used after its start: a fifth of per, at most one second, or a sixtieth of per if that is longer. The life
// must cover the time in which a run begins (a connection, a transaction). If a permit expires first, the message waits for the next one, which may
// be a day away. So a long per gives its permits a longer life.
func lifeOf(per time.Duration) time.Duration { return min(per/5, max(time.Second, per/60)) }

func newRate(n int, per time.Duration) *rate {
	r := &rate{n: n, per: per, life: lifeOf(per), wake: make(chan struct{}, 1)}
	r.spacing = (per + r.life + time.Duration(n) - 1) / time.Duration(n)
	r.most = max(int(r.life/2/r.spacing), 1)
	return r
}

// take takes a permit and returns the time at which the permit expires. It never blocks. If no permit is left, it adds w to the waiting workers,
// wakes the goroutine that claims permits, and returns ok = false.
func (r *rate) take(w *worker) (expires time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for now := time.Now(); len(r.permits) > 0; {
		expires, r.permits = r.permits[0], r.permits[1:]
		if now.Before(expires) {
			return expires, true
		}
	}
	r.waiting.add(w)
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return time.Time{}, false
}

// giveBack puts back the permit of a message that did not run.
func (r *rate) giveBack(expires time.Time) {
	r.put(expires)
	r.next()
}

// put adds a permit that has started.
func (r *rate) put(expires time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.permits = append(r.permits, expires)
}

// next lets one waiting key run.
func (r *rate) next() {
	rouseOne(r, func(do func(*waiters)) {
		r.mu.Lock()
		defer r.mu.Unlock()
		do(&r.waiting)
	})
}

// demand returns the number of keys that wait for a permit.
func (r *rate) demand() (n int) {
	r.mu.Lock()
	ws := append(waiters(nil), r.waiting...)
	r.mu.Unlock()
	for _, w := range ws {
		n += w.lane.Parked(r)
	}
	return n
}

// run claims permits while messages wait for them, until ctx ends.
func (r *rate) run(ctx context.Context, p *Participant) {
	outage := p.outage(theDatabase)
	policy := retry.Policy{Initial: 50 * time.Millisecond, Cap: 2 * time.Second}
	late := 0
	for failed := 0; ; {
		wait := time.Duration(-1)
		if demand := r.demand(); demand > 0 {
			starts, next, err := r.claim(ctx, p, demand)
			if late++; err != nil || next > 0 || len(starts) > 0 {
				late = 0
			}
			switch {
			case err != nil && ctx.Err() == nil:
				failed++
				outage.report(err)
				r.setUnclaimed(err)
				wait = policy.Wait(failed)
			case err == nil && late >= mostLate:
				r.setUnclaimed(errLateClaims)
				wait = policy.Wait(late)
			case err == nil:
				if failed > 0 {
					outage.report(nil)
				}
				failed, wait = 0, next
				r.setUnclaimed(nil)
			}
			for _, s := range starts {
				if !pause(ctx, time.Until(s.begin)) {
					return
				}
				r.put(s.expires)
				r.next()
			}
		}
		if wait >= 0 {
			if !pause(ctx, wait) {
				return
			}
			continue
		}
		r.setUnclaimed(nil) // no message here waits for a permit
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
	}
}

// A claimedPermit is a permit by this process's clock. For safety it begins later, and expires earlier, than in the database, by at most the duration
// of the claim.
type claimedPermit struct{ begin, expires time.Time }

// claim claims permits, at most demand. If the next permit starts too late to be claimed, it returns the wait until the next claim.
func (r *rate) claim(ctx context.Context, p *Participant, demand int) (starts []claimedPermit, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	n := min(demand, r.most)
	args := pg.Args{
		"group": p.cfg.Group, "handler": r.handler, "n": n, "spacing": r.spacing.Seconds(), "life": r.life.Seconds(),
		"calls": r.n, "span": r.per.Seconds(), "waiting": demand > n,
	}
	for range 2 {
		var after float64
		sent := time.Now()
		err = p.queryCommitted(ctx, claimRate, args, &after)
		got := time.Now()
		if err == nil {
			for i := range n {
				start := seconds(after) + time.Duration(i)*r.spacing
				if s := (claimedPermit{got.Add(start), sent.Add(start + r.life)}); s.begin.Before(s.expires) {
					starts = append(starts, s)
				}
			}
			return starts, 0, nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return nil, 0, err
		}
		err = p.cfg.Pool.QueryRow(ctx, waitRate, args).Scan(&after)
		if err == nil {
			return nil, max(seconds(after), time.Millisecond), nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return nil, 0, err
		}
		if err = p.queryCommitted(ctx, makeRate, args); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return nil, 0, err
		}
	}
	return nil, time.Millisecond, nil
}

// errLateClaims is the error that Ready returns while permits have expired by the time their claim returns.
var errLateClaims = errors.New("each claim takes longer than permits live: the database is too slow for a limit of so short a time")

// setUnclaimed stores the reason why no permits can be claimed, for Ready; nil if they can.
func (r *rate) setUnclaimed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unclaimed = err
}

// errUnclaimed returns why permits of any rate limit cannot be claimed, or nil.
func (p *Participant) errUnclaimed() (why error) {
	p.mu.Lock()
	rates := p.rates
	p.mu.Unlock()
	for _, r := range rates {
		r.mu.Lock()
		why = errors.Join(why, r.unclaimed)
		r.mu.Unlock()
	}
	return why
}
