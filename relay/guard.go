package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

// SlotStatus is what a replication slot keeps from its server, when it was last looked at: at least every 35 s, every 5 s
// while rows wait for the broker or half of a threshold is reached.
type SlotStatus struct {
	Name string `json:"name"`
	// WALStatus is reserved, extended (more than max_wal_size is kept), unreserved (it may be removed with the next
	// checkpoint) or lost. Empty while the slot is being made.
	WALStatus string `json:"wal_status"`
	Active    bool   `json:"active"` // somebody streams it
	// RetainedBytes of log are kept for the slot; they take room on the server's disk.
	RetainedBytes int64 `json:"retained_bytes"`
	// UnconfirmedBytes of log are behind the last LSN that the relay confirmed.
	UnconfirmedBytes int64 `json:"unconfirmed_bytes"`
	// SafeBytes may still be written before the slot is in danger of being lost; nil without max_slot_wal_keep_size.
	SafeBytes *int64 `json:"safe_bytes,omitempty"`
	// InactiveSince is when somebody last streamed it: the server's word where it has one (Postgres 17 and newer), else
	// since when this relay has found it idle. Zero while it is streamed.
	InactiveSince time.Time `json:"inactive_since,omitzero"`
	ReadAt        time.Time `json:"read_at"`
}

const (
	guardEvery = 5 * time.Second  // between two looks when something may be wrong
	guardCalm  = 30 * time.Second // otherwise
)

// errGivenUp says that the slot held more than Config.SlotLimit.
var errGivenUp = errors.New("the slot was dropped: it held more of the server's log than it may")

// guard looks at the slot until ctx ends. It speaks of it by Status, by Ready and in the log, and drops it when it holds
// more than the limit, rather than fill the server's disk: the stream ends, and the table is polled from then on.
func (r *Relay) guard(ctx context.Context, l *lease) {
	if r.cfg.Source == Poll {
		return
	}
	var last *SlotStatus
	var looked time.Time
	for moved := false; ctx.Err() == nil; moved = pause(ctx, guardEvery, r.slotMoved) {
		if !moved && r.calm(last) && time.Since(looked) < guardCalm {
			continue
		}
		now, err := r.look(ctx, l, last)
		if err == nil {
			last, looked = now, time.Now()
			err = r.heed(ctx, l, now)
		}
		switch {
		case err == nil:
			r.quiet.recovered("slot guard")
		case ctx.Err() == nil:
			r.quiet.failed("slot guard", err)
		}
	}
}

func (r *Relay) calm(s *SlotStatus) bool {
	switch {
	case r.flight.Load() > 0:
		return false
	case s == nil: // not for long, where it is streamed
		return r.Status().Source != WAL
	}
	least := r.cfg.SlotWarn
	if r.cfg.SlotLimit > 0 {
		least = min(least, r.cfg.SlotLimit)
	}
	return s.RetainedBytes < least/2 && s.WALStatus != "unreserved" && s.WALStatus != "lost"
}

// look reads the slot; nil: there is none.
func (r *Relay) look(ctx context.Context, l *lease, last *SlotStatus) (*SlotStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, guardEvery)
	defer cancel()
	now := &SlotStatus{Name: r.cfg.Slot, ReadAt: time.Now()}
	var since *time.Time
	read := func(statement string) error {
		return r.pool.QueryRow(ctx, statement, pg.Args{"slot": r.cfg.Slot, "shard": l.shard}).
			Scan(&now.Active, &now.WALStatus, &now.RetainedBytes, &now.UnconfirmedBytes, &now.SafeBytes, &since)
	}
	err := read(noteGuard)
	if denied(err) { // granted by who knew no samples: the guard is worth more than they
		r.quiet.failed("slot samples", err)
		err = read(readGuard)
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		now = nil
	case err != nil:
		return nil, fmt.Errorf("look at slot %s: %w", r.cfg.Slot, err)
	case now.Active:
	case since != nil:
		now.InactiveSince = *since
	case last != nil && !last.Active:
		now.InactiveSince = last.InactiveSince
	default:
		now.InactiveSince = now.ReadAt
	}
	r.state.update(func(s *Status) { s.Slot = now })
	return now, nil
}

// heed does what the figures ask for.
func (r *Relay) heed(ctx context.Context, l *lease, s *SlotStatus) error {
	if s == nil {
		r.quiet.recovered("slot size")
		return nil
	}
	if limit := r.cfg.SlotLimit; limit > 0 && s.RetainedBytes > limit {
		return r.giveUp(ctx, l, s)
	}
	if err := r.worry(s, r.cfg.SlotWarn); err != nil {
		r.quiet.failed("slot size", err)
	} else {
		r.quiet.recovered("slot size")
	}
	return nil
}

// worry says what is wrong with a slot that should hold no more than some bytes.
func (r *Relay) worry(s *SlotStatus, most int64) error {
	switch {
	case s.WALStatus == "lost":
		return fmt.Errorf("slot %s is lost: the server has removed log that it needs; it will be made anew", s.Name)
	case s.WALStatus == "unreserved":
		return fmt.Errorf("slot %s will be lost with the next checkpoint: it holds %d MB, more than max_slot_wal_keep_size; see why nothing is published",
			s.Name, s.RetainedBytes>>20)
	case s.RetainedBytes > most:
		return fmt.Errorf("slot %s makes the server keep %d MB of its log: see why nothing is published, or look for a transaction that is open for long",
			s.Name, s.RetainedBytes>>20)
	}
	return nil
}

// giveUp drops the slot for as long as this relay lives. The stored state remains: what was published is known, and the
// table has the rest.
func (r *Relay) giveUp(ctx context.Context, l *lease, s *SlotStatus) error {
	if _, err := l.renew(ctx, r.pool, nothing); err != nil { // the slot may be the next leader's by now
		return err
	}
	if !r.givenUp.Swap(true) {
		why := fmt.Sprintf("%s: %d MB, the limit is %d MB", errGivenUp, s.RetainedBytes>>20, r.cfg.SlotLimit>>20)
		r.state.failed(errors.New(why))
		r.state.update(func(s *Status) { s.GivenUp = why })
		r.cfg.Log.Error().Str("slot", s.Name).Int64("retained_bytes", s.RetainedBytes).Int64("limit_bytes", r.cfg.SlotLimit).
			Msg("slot dropped rather than fill the server's disk: the table is polled until this relay is started again")
	}
	slot, err := r.readSlot(ctx, r.pool)
	if err != nil || !slot.there || r.foreign(slot) != nil {
		return err
	}
	if err := r.free(ctx, r.pool, slot); err != nil {
		return err
	}
	if err := r.dropSlot(ctx, r.pool); err != nil {
		return err
	}
	r.state.update(func(s *Status) { s.Slot = nil })
	return nil
}
