package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

// A gate is open, or holds who comes until it is. It has two bolts: one of this process, by Pause, and one of the database,
// which is every relay's of the outbox.
type gate struct {
	mu     sync.Mutex
	since  time.Time     // when Pause was called; zero: it was not
	stored *StoredPause  // nil: the database has none
	opened chan struct{} // closed when it opens; nil: it is open
	look   chan struct{} // told when the database is to be asked
}

// A StoredPause is what somebody asked of all relays of an outbox, by its table of leases: it outlives every process.
// Package desk sets and ends it.
type StoredPause struct {
	Since  time.Time `json:"since"`
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
}

const (
	pausePrefix = "troupe.pause" // of a message in the log
	pauseLook   = time.Second    // between two looks while it lasts
)

// Pause lets what is in flight be acknowledged and settled, and then nothing more is read until Resume. The lease is kept,
// so no standby takes over; a standby that is paused goes on standing by, and publishes nothing if it takes over. It is
// of this Relay alone and of this process: a relay made anew publishes. It does not wait. Both may be called at any time,
// from any goroutine, also twice.
func (r *Relay) Pause() {
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	if r.gate.since.IsZero() {
		r.gate.since = time.Now()
		r.gate.swing()
		r.cfg.Log.Warn().Msg("paused: nothing is read until somebody resumes")
	}
}

// Resume ends a Pause. One that the database holds goes on.
func (r *Relay) Resume() {
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	if !r.gate.since.IsZero() {
		r.cfg.Log.Info().Stringer("paused_for", time.Since(r.gate.since).Round(time.Millisecond)).Msg("resumed")
		r.gate.since = time.Time{}
		r.gate.swing()
	}
}

// Paused is since when Pause holds, or zero.
func (r *Relay) Paused() time.Time {
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	return r.gate.since
}

// StoredPause is the one that the database holds, as this relay last saw it: nil for none. A relay that holds no lease does
// not look.
func (r *Relay) StoredPause() *StoredPause {
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	return r.gate.stored
}

// swing opens the gate, or closes it, as the bolts are.
func (g *gate) swing() {
	switch closed := !g.since.IsZero() || g.stored != nil; {
	case closed && g.opened == nil:
		g.opened = make(chan struct{})
	case !closed && g.opened != nil:
		close(g.opened)
		g.opened = nil
	}
}

// pass waits while the gate is closed. It is false when ctx ended.
func (g *gate) pass(ctx context.Context) bool {
	for ctx.Err() == nil {
		g.mu.Lock()
		opened := g.opened
		g.mu.Unlock()
		if opened == nil {
			return true
		}
		select {
		case <-opened:
		case <-ctx.Done():
		}
	}
	return false
}

// asked is told when the database is to be asked.
func (g *gate) asked() chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.look == nil {
		g.look = make(chan struct{}, 1)
	}
	return g.look
}

// heard is told by a renewal whether the database holds a pause.
func (g *gate) heard(paused bool) {
	g.mu.Lock()
	news := paused != (g.stored != nil)
	g.mu.Unlock()
	if news {
		tell(g.asked())
	}
}

// watchPause asks the database when a renewal or the log says that there is something to know, and while a pause lasts, until
// ctx ends.
func (r *Relay) watchPause(ctx context.Context) {
	again := false
	for {
		var timer <-chan time.Time
		if again || r.StoredPause() != nil {
			timer = time.After(pauseLook)
		}
		told := false
		select {
		case <-ctx.Done():
			return
		case <-timer:
		case <-r.gate.asked():
			told = true
		}
		err := r.readPause(ctx)
		if err != nil && ctx.Err() == nil {
			r.quiet.failed("pause", err)
		} else {
			r.quiet.recovered("pause")
		}
		again = err != nil || told // the log tells of a commit a moment before others see it
	}
}

// readPause asks the database.
func (r *Relay) readPause(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Lease)
	defer cancel()
	shard := 0
	if r.mapped != nil {
		shard = r.mapped.shard
	}
	var since *time.Time
	var p StoredPause
	err := r.pool.QueryRow(ctx, readPause, pg.Args{"shard": shard}).Scan(&since, &p.Actor, &p.Reason)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("read whether the outbox is paused: %w", err)
	}
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	before := r.gate.stored
	if r.gate.stored = nil; since != nil {
		p.Since = *since
		r.gate.stored = &p
	}
	r.gate.swing()
	switch now := r.gate.stored; {
	case now != nil && before == nil:
		r.cfg.Log.Warn().Str("actor", now.Actor).Str("reason", now.Reason).Msg("paused in the database: nothing is read until somebody resumes")
	case now == nil && before != nil:
		r.cfg.Log.Info().Stringer("paused_for", time.Since(before.Since).Round(time.Millisecond)).Msg("resumed in the database")
	}
	return nil
}
