package relay

import (
	"context"
	"sync"
	"time"
)

// A gate is open, or holds who comes until it is.
type gate struct {
	mu     sync.Mutex
	since  time.Time     // when it was closed; zero: open
	opened chan struct{} // closed when it opens
}

// Pause lets what is in flight be acknowledged and settled, and then nothing more is read until Resume. The lease is kept,
// so no standby takes over; a standby that is paused goes on standing by, and publishes nothing if it takes over. It is
// of this Relay alone and of this process: a relay made anew publishes. It does not wait. Both may be called at any time,
// from any goroutine, also twice.
func (r *Relay) Pause() {
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	if r.gate.since.IsZero() {
		r.gate.since, r.gate.opened = time.Now(), make(chan struct{})
		r.cfg.Log.Warn().Msg("paused: nothing is read until somebody resumes")
	}
}

// Resume ends a Pause.
func (r *Relay) Resume() {
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	if !r.gate.since.IsZero() {
		close(r.gate.opened)
		r.cfg.Log.Info().Stringer("paused_for", time.Since(r.gate.since).Round(time.Millisecond)).Msg("resumed")
		r.gate.since = time.Time{}
	}
}

// Paused is since when, or zero.
func (r *Relay) Paused() time.Time {
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	return r.gate.since
}

// pass waits while the gate is closed. It is false when ctx ended.
func (g *gate) pass(ctx context.Context) bool {
	for ctx.Err() == nil {
		g.mu.Lock()
		closed, opened := !g.since.IsZero(), g.opened
		g.mu.Unlock()
		if !closed {
			return true
		}
		select {
		case <-opened:
		case <-ctx.Done():
		}
	}
	return false
}
