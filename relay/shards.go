package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/internal/pg"
)

// maxShards is the maximum of Config.Shards. A CHECK of troupe.relay_leases has the same limit.
const maxShards = 64

// A sharing holds the number of shards, as this process last read it, and signals its changes.
type sharing struct {
	mu     sync.Mutex
	number int           // last read; 0: not yet
	moved  chan struct{} // closed when the number changes
}

// setShards stores the number of shards, and signals a change.
func (s *sharing) setShards(number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.number == number {
		return
	}
	s.number = number
	close(s.moved)
	s.moved = make(chan struct{})
}

// now returns the number of shards, and a channel that is closed when the number changes.
func (s *sharing) now() (number int, moved <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.number, s.moved
}

// shares reports whether this relay takes shards other than shard 0. A relay that is configured to stream takes none, and a mapped table
// has one shard.
func (r *Relay) shares() bool {
	return r.mapped == nil && r.cfg.Source != WAL && r.cfg.Delivery != ExactlyOnce
}

// divide stores that the outbox has number shards, and waits until no relay holds a lease of another layout. workOnce calls it before the
// leader polls or streams. The error wraps errLost when the term is over.
func (r *Relay) divide(ctx context.Context, l *lease, number int) error {
	changed, err := r.pool.Exec(ctx, divide, l.args(pg.Args{"number": number}))
	if err != nil {
		return fmt.Errorf("divide the outbox: %w", err)
	}
	if changed.RowsAffected() > 0 {
		r.cfg.Log.Info().Int("shards", number).Msg("divided into another number of shards: waits until the former ones are free")
	}
	for {
		var shards int
		var layout int64
		var lasts *time.Duration
		err := r.pool.QueryRow(ctx, readLayout, l.args(nil)).Scan(&shards, &layout, &lasts)
		switch {
		case errors.Is(err, pgx.ErrNoRows), err == nil && shards != number:
			return fmt.Errorf("divide the outbox: %w", errLost)
		case err != nil:
			return fmt.Errorf("read the layout: %w", err)
		case lasts == nil:
			l.setShards(number)
			r.shards.setShards(number)
			return nil
		}
		if sleep(ctx, min(*lasts+time.Millisecond, 100*time.Millisecond), nil); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// share takes and polls shards other than shard 0, until ctx ends. While there is one shard it waits.
func (r *Relay) share(ctx, work context.Context) {
	for ctx.Err() == nil {
		number, moved := r.shards.now()
		if number > 1 {
			r.shareAmong(ctx, work)
			continue
		}
		select {
		case <-ctx.Done():
		case <-moved:
		}
	}
}

// shareAmong takes and polls this process's part of the shards, until there is only one shard or ctx ends.
func (r *Relay) shareAmong(ctx, work context.Context) {
	ctx, stop := context.WithCancel(ctx)
	var side, serving sync.WaitGroup
	defer side.Wait()
	defer stop()
	freed := make(chan struct{}, 1)
	side.Go(func() { r.listen(ctx, leaseChannel, freed) })
	side.Go(func() { r.listen(ctx, outboxrow.Channel, r.looker.wake) })
	looking, stopLooking := context.WithCancel(work)
	defer stopLooking()
	defer serving.Wait() // the looker renews the leases until the goroutines of all shards have ended
	side.Go(func() { r.looker.run(looking) })

	mine := &share{relay: r, work: work, serving: &serving}
	defer mine.yield()
	for ctx.Err() == nil {
		wait, err := mine.takeFree(ctx)
		switch {
		case errors.Is(err, errUndivided):
			return
		case err != nil && ctx.Err() == nil:
			r.state.failed(err)
			r.quiet.failed("shards", err)
			wait = time.Second
		case err == nil:
			r.quiet.recovered("shards")
		}
		for {
			timer := time.NewTimer(min(wait, r.cfg.Lease))
			allHeld := false // then takeFree would find nothing to do
			select {
			case <-ctx.Done():
			case <-freed:
			case <-r.looker.mayBeFree:
			case <-timer.C:
				allHeld = r.looker.allShardsHeld(r.cfg.Lease)
			}
			timer.Stop()
			if !allHeld {
				break
			}
		}
	}
}

// errUndivided ends shareAmong: the outbox has one shard now.
var errUndivided = errors.New("there is one shard")

// A share is the set of shards, without shard 0, that this process holds in one layout. A layout is a division of the outbox into a number
// of shards; the leader numbers the layouts.
type share struct {
	relay   *Relay
	work    context.Context
	serving *sync.WaitGroup
	layout  int64
	stop    context.CancelFunc // ends ctx
	ctx     context.Context    // context of all shards of the share
}

// yield ends the goroutines of all shards of the share. Each settles its rows in flight, and releases its lease.
func (s *share) yield() {
	if s.stop != nil {
		s.stop()
	}
}

// A shardLease is a shard's row of troupe.relay_leases.
type shardLease struct {
	Shard     int
	Holder    string
	Remaining time.Duration
	Shards    int
	Layout    int64
	Wanted    *string
}

// takeFree takes all free shards, and requests one shard from a relay that holds at least two more than this one. It returns the longest
// time to wait before the next call.
func (s *share) takeFree(ctx context.Context) (wait time.Duration, err error) {
	r := s.relay
	found, err := r.pool.Query(ctx, readShards, pg.Args{"longest": longestLease(r.cfg.Lease)})
	if err != nil {
		return 0, fmt.Errorf("read the shards: %w", err)
	}
	leases, err := pgx.CollectRows(found, pgx.RowToStructByPos[shardLease])
	if err != nil {
		return 0, fmt.Errorf("read the shards: %w", err)
	}
	if len(leases) == 0 || leases[0].Shard != 0 {
		return 0, errors.New("read the shards: no relay has led yet")
	}
	lead := leases[0]
	if lead.Layout != s.layout || s.ctx == nil {
		s.yield()
		s.layout = lead.Layout
		s.ctx, s.stop = context.WithCancel(ctx)
	}
	r.shards.setShards(lead.Shards)
	if lead.Shards == 1 {
		return 0, errUndivided
	}
	wait = r.cfg.Lease
	held := make([]*shardLease, lead.Shards)
	for n := range leases {
		l := &leases[n]
		if l.Remaining > 0 {
			wait = min(wait, l.Remaining+time.Millisecond)
			if l.Shard < lead.Shards && l.Layout == lead.Layout {
				held[l.Shard] = l
			}
			if l.Holder == r.cfg.Holder && l.Wanted != nil {
				r.looker.releaseShard(l.Shard)
			}
		}
	}
	for shard := 1; shard < lead.Shards; shard++ {
		if held[shard] != nil {
			continue
		}
		taken, err := s.claim(ctx, shard, lead.Shards)
		if err != nil {
			return 0, err
		}
		if !taken {
			wait = min(wait, r.cfg.Lease/4)
		}
	}
	return wait, s.requestShard(ctx, held)
}

// requestShard requests one shard from a relay that holds at least two more than this one. In the first second after the holder has
// released the shard, only this relay may take it. If this relay has died, any relay takes the shard after that second.
func (s *share) requestShard(ctx context.Context, held []*shardLease) error {
	holder := s.relay.cfg.Holder
	count := make(map[string]int)
	for _, l := range held {
		if l != nil {
			count[l.Holder]++
			if l.Wanted != nil && *l.Wanted == holder {
				return nil // one request at a time
			}
		}
	}
	ours := len(s.relay.looker.held())
	for shard := len(held) - 1; shard > 0; shard-- {
		l := held[shard]
		if l == nil || l.Holder == holder || l.Wanted != nil || count[l.Holder] < ours+2 {
			continue
		}
		_, err := s.relay.pool.Exec(ctx, wantShard, pg.Args{"shard": shard, "holder": holder, "from": l.Holder})
		if err != nil {
			return fmt.Errorf("ask for shard %d: %w", shard, err)
		}
		return nil
	}
	return nil
}

// claim takes the lease of a shard, and starts a goroutine that polls the shard. It returns false if it did not take the lease, for example
// because another relay was faster.
func (s *share) claim(ctx context.Context, shard, shards int) (bool, error) {
	r := s.relay
	l := &lease{shard: shard, shards: shards, holder: r.cfg.Holder, length: r.cfg.Lease, since: time.Now(), paused: r.gate.onRenewal}
	ctx, cancel := toTheEnd(ctx, r.cfg.Lease)
	defer cancel()
	err := r.pool.QueryRow(ctx, claimShard, l.args(pg.Args{"length": l.length, "layout": s.layout})).Scan(&l.term)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("claim shard %d: %w", shard, err)
	}
	serve, yield := context.WithCancel(s.ctx)
	h := &holding{l, yield}
	r.state.progressed(shard, func(*Status) {})
	r.looker.addLease(h)
	s.serving.Go(func() {
		defer yield()
		defer r.state.leaves(shard)
		defer r.looker.removeLease(h)
		r.cfg.Log.Info().Int("shard", shard).Int64("term", l.term).Msg("shard taken")
		err := r.hold(serve, s.work, l, func(idle, term context.Context, p *publisher) error {
			return r.work(idle, term, p, r.pollShard)
		})
		switch {
		case serve.Err() != nil:
			r.cfg.Log.Info().Int("shard", shard).Msg("shard left")
		case err != nil:
			r.cfg.Log.Warn().Err(err).Int("shard", shard).Int64("term", l.term).Msg("shard lost")
			r.state.failed(fmt.Errorf("shard %d: %w", shard, err))
		}
	})
	return true, nil
}

// releaseShard makes the goroutine of a shard stop, since another relay has requested the shard. That goroutine settles its rows in flight
// and then releases the lease. releaseShard does nothing for shard 0, or for a shard that this process does not hold.
func (l *looker) releaseShard(shard int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.leases[shard]; h != nil && h.yield != nil {
		h.yield()
	}
}

// pollShard polls the rows of one shard. If the outbox was streamed before, pollShard returns an error until the leader has stored that the
// source is poll.
func (r *Relay) pollShard(idle, term context.Context, p *publisher) error {
	db, err := bindNow(idle, r.pool)
	if err != nil {
		return err
	}
	defer db.Close()
	st, err := r.readState(idle, db)
	if err != nil {
		return err
	}
	if st.there {
		system, err := systemOf(idle, db)
		if err != nil {
			return err
		}
		if st.source != Poll || st.system != system && st.published != nil {
			return errors.New("the leader has not begun to poll yet")
		}
	}
	return r.poll(idle, term, p, streamedRows{db.id, st.published})
}
