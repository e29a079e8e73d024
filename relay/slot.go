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

// A slotState is a slot's row of pg_replication_slots.
type slotState struct {
	there            bool
	plugin, database string
	ofOurDatabase    bool // it is of the database to which the relay is connected
	activePID        int32
	confirmed        wal.LSN
	walStatus        string
	invalidation     string // the server's reason, see pg.Invalidation
	failover         *bool  // standbys copy the slot; nil: the server is older than Postgres 17
	twoPhase         bool   // the server sends the rows of a transaction when it is prepared
}

func (r *Relay) readSlot(ctx context.Context, db querier) (s slotState, err error) {
	var confirmed *string
	err = db.QueryRow(ctx, readSlot, pg.Args{"slot": r.cfg.Slot}).
		Scan(&s.plugin, &s.database, &s.ofOurDatabase, &s.activePID, &confirmed, &s.walStatus, &s.invalidation, &s.failover, &s.twoPhase)
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

// foreign returns an error if the slot belongs to another database or program. The relay neither drops nor alters such a slot. The server
// knows the name of the database: the address may name none, or a pooler's name of it.
func (r *Relay) foreign(s slotState) error {
	if s.there && (s.plugin != "pgoutput" || !s.ofOurDatabase) {
		if s.plugin == "" {
			return fmt.Errorf("slot %s is a physical one: give this relay a slot of another name", r.cfg.Slot)
		}
		return fmt.Errorf("slot %s belongs to plugin %q and database %q: give this relay a slot of another name",
			r.cfg.Slot, s.plugin, s.database)
	}
	return nil
}

// unfit returns an error if the slot cannot be streamed: it is foreign, or has the property two_phase. With two_phase the server sends the
// rows of a transaction when it is prepared, even if it is rolled back later.
func (r *Relay) unfit(s slotState) error {
	if err := r.foreign(s); err != nil {
		return err
	}
	if s.twoPhase {
		return fmt.Errorf("slot %s was created with two_phase: the server would send the rows of a prepared transaction before it is committed, "+
			"also if it is rolled back: pause the writers until the program that used the slot has published all rows, then drop the slot; "+
			"this relay makes another one", r.cfg.Slot)
	}
	return nil
}

// unusable returns the reason why the slot does not continue at the stored checkpoint, or "". No LSN after the stored checkpoint was ever
// confirmed by a relay, so a slot that is ahead of the checkpoint was created by another program.
func unusable(st storedState, slot slotState, system wal.System) string {
	switch {
	case !st.there:
		return "the outbox was not streamed so far"
	case st.source != WAL:
		return "the last relay polled the table, or ended before the slot was created"
	case st.system != system.ID:
		return "the stored state is of another cluster: a copy or a restored dump"
	case !slot.there:
		return "the slot is gone"
	case slot.walStatus == "lost":
		cause, remedy := pg.Invalidation(slot.invalidation)
		return "the slot was invalidated: " + cause + "; to prevent that, " + remedy
	case slot.confirmed > st.lsn:
		return fmt.Sprintf("the slot was created again: it is at %s; %s was the last LSN acknowledged", slot.confirmed, st.lsn)
	}
	return ""
}

// checkSlotOrigin returns an error if the slot of a mapped table does not continue the stored state. Then rows may be in the slot's log
// alone. The relay cannot find out, so an operator must decide: the error has the statement for each case.
//
// The slot may be ahead of the stored checkpoint for two reasons. After a failover, the slot was copied to the standby later than the row
// with the checkpoint. Then all rows before the slot's LSN are published or were recorded as failed, and rows after it may be in the log
// alone. The failover may have lost the newest of these records: they are later in the log than their rows. stream.confirm prevents this for a
// standby that is connected and less than holdLimit behind. Or another program created the
// slot. Then rows before its LSN may be unpublished, and in the table alone.
//
// The stored state may be of another cluster. From Postgres 17 on pg_upgrade copies slots, and the new cluster has another identifier.
func (t *mappedTable) checkSlotOrigin(st storedState, slot slotState, system wal.System) error {
	confirmed := st
	confirmed.lsn, confirmed.system = slot.confirmed, system.ID
	if unusable(confirmed, slot, system) != "" {
		return nil
	}
	const otherwise = "drop it, and the relay publishes the rows that table %[4]s holds; rows that are in the slot alone are lost then"
	switch {
	case st.system != system.ID:
		return fmt.Errorf("the slot is at %[1]s, and the stored state is of another cluster. After pg_upgrade, which copied the slot: "+
			"UPDATE troupe.mapped_tables SET system_id = %[2]s, lsn = '%[1]s' WHERE name = %[3]s. If another program made the slot: "+otherwise,
			slot.confirmed, literal(system.ID), literal(t.String()), t)
	case slot.confirmed > st.lsn:
		return fmt.Errorf("the slot is at %[1]s, and the stored checkpoint is %[2]s. After a failover to a server to which the slot was synchronised: "+
			"UPDATE troupe.mapped_tables SET lsn = '%[1]s' WHERE name = %[3]s. Rows between these two positions that were recorded as failed, or that waited behind "+
			"a failed row, may have lost their record, which had their key: compare with the topics all rows that were written since the checkpoint was stored (updated_at of "+
			"troupe.mapped_tables before the relay goes on; earlier by the lag that the relay had then), and insert missing ones again. If another program made the slot: "+otherwise,
			slot.confirmed, st.lsn, literal(t.String()), t)
	}
	return nil
}

// freeSlot terminates the server's session that still streams the slot, and waits until the slot is free. It is the session of the relay
// that held the lease before. If that relay is frozen, its session would keep the slot until the server's time-out.
func (r *Relay) freeSlot(ctx context.Context, db querier, s slotState) error {
	if s.activePID == 0 {
		return nil
	}
	if _, err := db.Exec(ctx, "SELECT pg_terminate_backend($1)", s.activePID); err != nil {
		r.quiet.failed("free the slot", err) // the slot becomes free when the server notices that its client is gone
	}
	for range 20 {
		if sleep(ctx, 50*time.Millisecond, nil); ctx.Err() != nil {
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

// dropSlot drops the slot, if there is one. The error wraps errLost when the term is over.
func (r *Relay) dropSlot(ctx context.Context, db querier, l *lease) error {
	var ours bool
	var dropped int
	err := db.QueryRow(ctx, dropSlot, l.args(pg.Args{"slot": r.cfg.Slot})).Scan(&ours, &dropped)
	switch {
	case err != nil:
		return fmt.Errorf("drop slot %s: %w", r.cfg.Slot, err)
	case !ours:
		return fmt.Errorf("drop slot %s: %w", r.cfg.Slot, errLost)
	}
	return nil
}

// leaveSlot changes from streaming to polling. It first stores that the source is poll. The poll leaves out the rows that the stored
// snapshot sees, since they are published. Then leaveSlot drops the slot. Otherwise the server would keep its log for a slot that no client
// streams, and fill its disk. If the relay dies between the two steps, the next relay finds source poll and drops the slot.
func (r *Relay) leaveSlot(ctx context.Context, db *server, l *lease, st storedState) error {
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
	if err = r.checkSlotOwner(ctx, db); errors.Is(err, errOwned) {
		r.cfg.Log.Warn().Err(err).Msg("slot not dropped: another outbox uses it")
		return nil
	}
	if err != nil {
		return err
	}
	if err = r.freeSlot(ctx, db, slot); err == nil {
		err = r.dropSlot(ctx, db, l)
	}
	if errors.Is(err, errLost) {
		return err
	}
	if err != nil { // the relay tries again when it next begins to poll; under Config.Source Poll neither Status nor Ready shows this slot
		r.cfg.Log.Error().Err(err).Msg("an unused slot is left, and the server keeps its log for it: drop it by hand")
	}
	return nil
}

// makeSlot drops the slot, if there is one, and creates it again. Some transactions are in progress meanwhile, and the slot does not stream
// all of their rows. makeSlot returns when all of these have ended and are visible. It waits for every transaction that was open when it
// began. The server may have had no free slot for long, so makeSlot looks again whether the slot is another outbox's by now.
func (r *Relay) makeSlot(ctx context.Context, db *server, l *lease, conn *wal.Conn) (wal.LSN, error) {
	if err := r.checkSlotOwner(ctx, db); err != nil {
		return 0, err
	}
	if err := r.dropSlot(ctx, db, l); err != nil {
		return 0, err
	}
	from, err := r.createSlot(ctx, db, conn)
	if err != nil {
		return 0, err
	}
	// A transaction leaves the list of running ones a moment after it wrote its commit record. So a transaction that the slot does not
	// stream may still be invisible. All such transactions are visible once every transaction with a lower id than own has ended.
	var own uint64
	if err := db.QueryRow(ctx, "SELECT pg_current_xact_id()::text::bigint").Scan(&own); err != nil {
		return 0, fmt.Errorf("take a transaction id: %w", err)
	}
	for {
		s, err := visible(ctx, db)
		if err != nil {
			return 0, err
		}
		if s.min >= own {
			return from, nil
		}
		if sleep(ctx, 20*time.Millisecond, nil); ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
}

// visible returns a snapshot of the present moment.
func visible(ctx context.Context, db *server) (snapshot, error) {
	var text string
	if err := db.QueryRow(ctx, "SELECT pg_current_snapshot()::text").Scan(&text); err != nil {
		return snapshot{}, fmt.Errorf("take a snapshot: %w", err)
	}
	return parseSnapshot(text)
}
