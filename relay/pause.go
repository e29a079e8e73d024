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

// A gate makes callers wait while it is closed. Two pauses close it: the pause of this process, by the method Pause, and the pause in the
// database, which applies to every relay of the outbox.
type gate struct {
	mu      sync.Mutex
	since   time.Time     // when Pause was called; zero: it was not
	stored  *StoredPause  // nil: there is none in the database
	opened  chan struct{} // closed when the gate opens; nil: the gate is open
	readNow chan struct{} // signalled when the pause must be read from the database
}

// A StoredPause is an operator's pause of all relays of an outbox. It is stored with the leases, so it outlives every process. outbox-relay
// pause sets it, and outbox-relay resume ends it.
type StoredPause struct {
	Since  time.Time `json:"since"`
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
}

const (
	pausePrefix = "troupe.pause" // prefix of the message in the log that announces a change of the pause
	pauseLook   = time.Second    // time between two reads of the pause while there is one
)

// Pause makes the relay read nothing more until Resume. Rows in flight are still acknowledged and settled. The relay keeps its lease, so no
// standby takes over. A standby that is paused stays a standby, and publishes nothing if it takes over.
//
// A pause applies to this Relay in this process only: a new Relay publishes. Pause does not wait. Pause and Resume may be called at any
// time, from any goroutine, and more than once.
func (r *Relay) Pause() {
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	if r.gate.since.IsZero() {
		r.gate.since = time.Now()
		r.gate.swing()
		r.cfg.Log.Warn().Msg("paused: nothing is read until resume")
	}
}

// Resume ends a Pause. It does not end a pause stored in the database.
func (r *Relay) Resume() {
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	if !r.gate.since.IsZero() {
		r.cfg.Log.Info().Stringer("paused_for", time.Since(r.gate.since).Round(time.Millisecond)).Msg("resumed")
		r.gate.since = time.Time{}
		r.gate.swing()
	}
}

// pauses returns the time at which Pause was called, and the pause in the database; zero and nil if there is none.
func (g *gate) pauses() (since time.Time, stored *StoredPause) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.since, g.stored
}

// swing closes the gate if there is a pause, and otherwise opens it. The caller holds g.mu.
func (g *gate) swing() {
	switch closed := !g.since.IsZero() || g.stored != nil; {
	case closed && g.opened == nil:
		g.opened = make(chan struct{})
	case !closed && g.opened != nil:
		close(g.opened)
		g.opened = nil
	}
}

// closed reports whether there is a pause.
func (g *gate) closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opened != nil
}

// pass waits while the gate is closed. It returns true when the gate is open, and false if ctx ends or over is closed before that.
func (g *gate) pass(ctx context.Context, over <-chan struct{}) bool {
	for ctx.Err() == nil {
		g.mu.Lock()
		opened := g.opened
		g.mu.Unlock()
		if opened == nil {
			return true
		}
		select {
		case <-opened:
		case <-over:
			return false
		case <-ctx.Done():
		}
	}
	return false
}

// readRequested returns the channel that is signalled when the pause must be read from the database.
func (g *gate) readRequested() chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.readNow == nil {
		g.readNow = make(chan struct{}, 1)
	}
	return g.readNow
}

// onRenewal compares the result of a renewal, whether the outbox is paused, with the pause that was read last. If they differ, it requests
// another read. Each renewal of a lease calls it.
func (g *gate) onRenewal(paused bool) {
	g.mu.Lock()
	news := paused != (g.stored != nil)
	g.mu.Unlock()
	if news {
		tell(g.readRequested())
	}
}

// watchPause reads the pause from the database until ctx ends: when a renewal or the log signals a change, and each second during a pause.
func (r *Relay) watchPause(ctx context.Context) {
	again := false
	for {
		var timer <-chan time.Time
		if _, stored := r.gate.pauses(); again || stored != nil {
			timer = time.After(pauseLook)
		}
		requested := false
		select {
		case <-ctx.Done():
			return
		case <-timer:
		case <-r.gate.readRequested():
			requested = true
		}
		err := r.readPause(ctx)
		if err != nil && ctx.Err() == nil {
			r.quiet.failed("pause", err)
		} else {
			r.quiet.recovered("pause")
		}
		again = err != nil || requested // the log delivers a commit a moment before other sessions see it
	}
}

// readPause reads the pause from the database, and then opens or closes the gate.
func (r *Relay) readPause(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Lease)
	defer cancel()
	shard := 0
	if r.mapped != nil {
		shard = int(r.mapped.shard.Load())
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
		r.cfg.Log.Warn().Str("actor", now.Actor).Str("reason", now.Reason).Msg("paused in the database: nothing is read until resume")
	case now == nil && before != nil:
		r.cfg.Log.Info().Stringer("paused_for", time.Since(before.Since).Round(time.Millisecond)).Msg("resumed in the database")
	}
	return nil
}
