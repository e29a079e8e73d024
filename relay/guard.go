package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/troupe-go/troupe/internal/pg"
)

// SlotStatus describes a replication slot and the log that the server keeps for it, when it was last read. The relay reads the slot at
// least every 35 s, and every 5 s while rows wait for the broker or half of a threshold is reached.
type SlotStatus struct {
	Name string `json:"name"`
	// WALStatus is reserved, extended (more than max_wal_size is kept), unreserved (it may be removed at the next checkpoint)
	// or lost. It is empty while the slot is being created.
	WALStatus string `json:"wal_status"`
	// Invalidation is the server's reason for a slot that is lost, as in pg_replication_slots.invalidation_reason (Postgres 17 and
	// newer).
	Invalidation string `json:"invalidation_reason,omitempty"`
	Active       bool   `json:"active"` // a client streams it
	// RetainedBytes is the size of the log kept for the slot, on the server's disk.
	RetainedBytes int64 `json:"retained_bytes"`
	// UnconfirmedBytes is the size of the log after the last LSN that the relay confirmed.
	UnconfirmedBytes int64 `json:"unconfirmed_bytes"`
	// SafeBytes is the amount of log that may still be written before the slot is in danger of being lost; nil without
	// max_slot_wal_keep_size.
	SafeBytes *int64 `json:"safe_bytes,omitempty"`
	// InactiveSince is the time since which no client streams it: according to the server (Postgres 17 and newer), else the
	// time at which this relay first found it idle. Zero while it is streamed.
	InactiveSince time.Time `json:"inactive_since,omitzero"`
	ReadAt        time.Time `json:"read_at"`
}

const (
	guardEvery = 5 * time.Second  // between two reads when something may be wrong
	guardCalm  = 30 * time.Second // between two reads otherwise
)

// errGivenUp means that the slot was dropped because it held more than Config.SlotLimit.
var errGivenUp = errors.New("the slot was dropped: it held more of the server's log than it may")

// guard reads the slot's state regularly until ctx ends, in a goroutine of the leader. It reports the state in Status, in Ready and in the
// log. It drops a slot that holds more than Config.SlotLimit, so that the server's disk does not fill. Then the stream ends, and this
// process polls the table from then on.
func (r *Relay) guard(ctx context.Context, l *lease) {
	if r.cfg.Source == Poll {
		return
	}
	var last *SlotStatus
	var looked time.Time
	for moved := false; ctx.Err() == nil; moved = sleep(ctx, guardEvery, r.slotMoved) {
		if !moved && r.calm(last) && time.Since(looked) < guardCalm {
			continue
		}
		now, err := r.readSlotStatus(ctx, l, last)
		if err == nil {
			last, looked = now, time.Now()
			err = errors.Join(r.checkSlot(ctx, l, now), r.keepIdleSlotInUse(ctx, now))
		}
		switch {
		case err == nil:
			r.quiet.recovered("slot guard")
		case ctx.Err() == nil:
			r.quiet.failed("slot guard", err)
		}
	}
}

// calm reports whether guard may wait for guardCalm before it reads the slot again. s is the state that guard read last; nil: there was no
// slot.
func (r *Relay) calm(s *SlotStatus) bool {
	switch {
	case r.flight.Load() > 0:
		return false
	case s == nil: // no slot; under wal this does not last long
		return r.Status().Source != WAL
	}
	least := r.cfg.SlotWarn
	if r.cfg.SlotLimit > 0 {
		least = min(least, r.cfg.SlotLimit)
	}
	return s.RetainedBytes < least/2 && s.WALStatus != "unreserved" && s.WALStatus != "lost"
}

// readSlotStatus reads the slot's state, and sets Status.Slot. It returns nil if there is no slot. Once a minute it also stores the size of
// the retained log in troupe.relay_slot_samples, for the console. last is the state that the call before returned.
func (r *Relay) readSlotStatus(ctx context.Context, l *lease, last *SlotStatus) (*SlotStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, guardEvery)
	defer cancel()
	now := &SlotStatus{Name: r.cfg.Slot, ReadAt: time.Now()}
	var since *time.Time
	read := func(statement string) error {
		return r.pool.QueryRow(ctx, statement, pg.Args{"slot": r.cfg.Slot, "shard": l.shard}).
			Scan(&now.Active, &now.WALStatus, &now.Invalidation, &now.RetainedBytes, &now.UnconfirmedBytes, &now.SafeBytes, &since)
	}
	err := read(sampleGuard)
	if denied(err) { // the rights of an older version, without those on the samples: read the slot all the same
		r.quiet.failed("slot samples", err)
		err = read(readGuard)
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		now = nil
	case err != nil:
		return nil, fmt.Errorf("look at slot %s: %w", r.cfg.Slot, err)
	case now.Active:
	case last != nil && !last.Active && (r.mapped != nil || since == nil): // keepInUse makes the server count from its last use
		now.InactiveSince = last.InactiveSince
	case since != nil:
		now.InactiveSince = *since
	default:
		now.InactiveSince = now.ReadAt
	}
	r.state.update(func(s *Status) { s.Slot = now })
	return now, nil
}

// checkSlot compares the slot's state with the thresholds. It logs a warning above Config.SlotWarn, and drops the slot above
// Config.SlotLimit.
func (r *Relay) checkSlot(ctx context.Context, l *lease, s *SlotStatus) error {
	if s == nil {
		r.quiet.recovered("slot size")
		return nil
	}
	if limit := r.cfg.SlotLimit; limit > 0 && s.RetainedBytes > limit {
		return r.giveUpSlot(ctx, l, s)
	}
	if err := s.problem(r.cfg.SlotWarn); err != nil {
		r.quiet.failed("slot size", err)
	} else {
		r.quiet.recovered("slot size")
	}
	return nil
}

// keepIdleSlotInUse uses the slot of a mapped table while nothing streams it: while a person must decide, or while the table is read for a
// new slot.
func (r *Relay) keepIdleSlotInUse(ctx context.Context, s *SlotStatus) error {
	if r.mapped == nil || s == nil || s.Active {
		return nil
	}
	return r.keepInUse(ctx, r.cfg.Slot)
}

// keepInUse advances an idle slot to its own position, so that the server does not count it as idle. Otherwise the server could give the
// slot up (idle_replication_slot_timeout), and rows may be in its log alone.
func (r *Relay) keepInUse(ctx context.Context, slot string) error {
	ctx, cancel := context.WithTimeout(ctx, guardEvery)
	defer cancel()
	_, err := r.pool.Exec(ctx, useSlot, pg.Args{"slot": slot})
	// A stream has just begun (55006), or has also ended since (22023), or the slot was dropped (42704).
	if refusal := (*pgconn.PgError)(nil); errors.As(err, &refusal) && slices.Contains([]string{"55006", "22023", "42704"}, refusal.Code) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("use slot %s, which is idle: %w", slot, err)
	}
	return nil
}

// problem returns an error if the slot is lost, will be lost, or makes the server keep more than most bytes of its log.
func (s *SlotStatus) problem(most int64) error {
	switch {
	case s.WALStatus == "lost":
		cause, remedy := pg.Invalidation(s.Invalidation)
		return fmt.Errorf("slot %s is lost: %s; the relay creates it again; to prevent that, %s", s.Name, cause, remedy)
	case s.WALStatus == "unreserved":
		return fmt.Errorf("slot %s will be lost with the next checkpoint: it holds %d MB, more than max_slot_wal_keep_size; see why nothing is published",
			s.Name, s.RetainedBytes>>20)
	case s.RetainedBytes > most:
		return fmt.Errorf("slot %s makes the server keep %d MB of its log: see why nothing is published, or look for a transaction that is open for long",
			s.Name, s.RetainedBytes>>20)
	}
	return nil
}

// giveUpSlot drops a slot that holds more than Config.SlotLimit. This process does not create a slot again: it polls. The stored state
// stays, so the poll knows which rows of the table are published. If the process dies before the drop, the next relay streams from the slot.
func (r *Relay) giveUpSlot(ctx context.Context, l *lease, s *SlotStatus) error {
	if _, err := l.renew(ctx, r.pool, nothing); err != nil { // the slot may belong to a new leader by now
		return err
	}
	if err := r.checkSlotOwner(ctx, r.pool); err != nil {
		return err
	}
	if !r.slotGivenUp.Swap(true) {
		why := fmt.Sprintf("%s: %d MB, the limit is %d MB", errGivenUp, s.RetainedBytes>>20, r.cfg.SlotLimit>>20)
		r.state.failed(errors.New(why))
		r.state.update(func(s *Status) { s.GivenUp = why })
		r.cfg.Log.Error().Str("slot", s.Name).Int64("retained_bytes", s.RetainedBytes).Int64("limit_bytes", r.cfg.SlotLimit).
			Msg("slot is dropped rather than fill the server's disk: the table is polled until this relay is started again")
	}
	slot, err := r.readSlot(ctx, r.pool)
	if err != nil || !slot.there || r.foreign(slot) != nil {
		return err
	}
	if err := r.freeSlot(ctx, r.pool, slot); err != nil {
		return err
	}
	if err := r.dropSlot(ctx, r.pool, l); err != nil {
		return err
	}
	r.state.update(func(s *Status) { s.Slot = nil })
	return nil
}
