package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/wal"
)

// slotState is a slot as pg_replication_slots shows it.
type slotState struct {
	there            bool
	plugin, database string
	activePID        int32
	confirmed        wal.LSN
	walStatus        string
}

func (r *Relay) readSlot(ctx context.Context, db querier) (s slotState, err error) {
	var confirmed *string
	err = db.QueryRow(ctx, readSlot, pg.Args{"slot": r.cfg.Slot}).
		Scan(&s.plugin, &s.database, &s.activePID, &confirmed, &s.walStatus)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return s, nil
	case err != nil:
		return s, fmt.Errorf("read slot %s: %w", r.cfg.Slot, err)
	}
	s.there = true
	if confirmed != nil {
		s.confirmed, err = wal.ParseLSN(*confirmed)
	}
	return s, err
}

// foreign says that the slot is somebody else's; nothing is done to it.
func (r *Relay) foreign(s slotState) error {
	database := r.cfg.Pool.Config().ConnConfig.Database
	if s.there && (s.plugin != "pgoutput" || s.database != database) {
		if s.plugin == "" {
			return fmt.Errorf("slot %s is a physical one: give this relay a slot of another name", r.cfg.Slot)
		}
		return fmt.Errorf("slot %s belongs to plugin %q and database %q: give this relay a slot of another name",
			r.cfg.Slot, s.plugin, s.database)
	}
	return nil
}

// unusable says why the slot does not go on where this outbox's relay left off; nothing if it does. Nothing was ever
// acknowledged behind the stored checkpoint, so a slot that is ahead of it is not the one that was left.
func unusable(st standing, slot slotState, system wal.System) string {
	switch {
	case !st.there || st.source != WAL:
		return "the outbox was not streamed so far"
	case st.system != system.ID:
		return "the stored state is of another cluster: a copy or a restored dump"
	case !slot.there:
		return "the slot is gone"
	case slot.walStatus == "lost":
		return "the slot was invalidated: the server has removed WAL that it needs"
	case slot.confirmed > st.lsn:
		return fmt.Sprintf("the slot was made anew: it stands at %s, %s was the last LSN acknowledged", slot.confirmed, st.lsn)
	}
	return ""
}

// free ends whoever still streams the slot: it had the lease before. A frozen one would keep the slot until the server
// gives it up.
func (r *Relay) free(ctx context.Context, db querier, s slotState) error {
	if s.activePID == 0 {
		return nil
	}
	if _, err := db.Exec(ctx, "SELECT pg_terminate_backend($1)", s.activePID); err != nil {
		r.quiet.failed("free the slot", err) // it will be free when the server misses its holder
	}
	for range 20 {
		if pause(ctx, 50*time.Millisecond, nil); ctx.Err() != nil {
			return ctx.Err()
		}
		now, err := r.readSlot(ctx, db)
		if err != nil {
			return err
		}
		if now.activePID == 0 {
			return nil
		}
	}
	return fmt.Errorf("slot %s: %w by process %d", r.cfg.Slot, wal.ErrActive, s.activePID)
}

func (r *Relay) dropSlot(ctx context.Context, db querier) error {
	_, err := db.Exec(ctx, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1", r.cfg.Slot)
	if err != nil {
		return fmt.Errorf("drop slot %s: %w", r.cfg.Slot, err)
	}
	return nil
}

// leaveSlot goes from streaming to polling: what the stored snapshot sees is published and is left alone by the poll,
// which begins with the rest. A slot that nobody streams would fill the server's disk.
func (r *Relay) leaveSlot(ctx context.Context, db *server, l *lease, st standing) error {
	if !st.there {
		return nil
	}
	slot, err := r.readSlot(ctx, db)
	if err != nil {
		return err
	}
	if st.source != Poll {
		st.source, st.sweep = Poll, nil
		if err := r.store(ctx, db, l, st); err != nil {
			return err
		}
	}
	if !slot.there || r.foreign(slot) != nil {
		return nil
	}
	if err = r.free(ctx, db, slot); err == nil {
		err = r.dropSlot(ctx, db)
	}
	if err != nil {
		r.cfg.Log.Error().Err(err).Msg("a slot that nobody reads is left, and the server keeps its log for it: drop it by hand")
	}
	return nil
}

// makeSlot makes the slot anew, and returns when every transaction that it does not stream whole is visible. Both wait
// for transactions of others, however long they are.
func (r *Relay) makeSlot(ctx context.Context, db *server, conn *wal.Conn) (wal.LSN, error) {
	if err := r.dropSlot(ctx, db); err != nil {
		return 0, err
	}
	from, err := conn.CreateSlot(ctx, r.cfg.Slot, r.cfg.Failover)
	if err != nil {
		return 0, err
	}
	// A transaction leaves the list of running ones a moment after it wrote its commit: one that the slot does not stream
	// may still be invisible. It is not once all that began before now have ended.
	var own uint64
	if err := db.QueryRow(ctx, "SELECT pg_current_xact_id()::text::bigint").Scan(&own); err != nil {
		return 0, fmt.Errorf("take a transaction id: %w", err)
	}
	for {
		s, err := r.visible(ctx, db)
		if err != nil {
			return 0, err
		}
		if s.min >= own {
			return from, nil
		}
		if pause(ctx, 20*time.Millisecond, nil); ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
}

// visible is what a statement now sees.
func (r *Relay) visible(ctx context.Context, db *server) (snapshot, error) {
	var text string
	if err := db.QueryRow(ctx, "SELECT pg_current_snapshot()::text").Scan(&text); err != nil {
		return snapshot{}, fmt.Errorf("take a snapshot: %w", err)
	}
	return parseSnapshot(text)
}
