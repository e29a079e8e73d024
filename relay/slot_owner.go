package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

// A slotUser is an outbox whose state was stored with the configured slot.
type slotUser struct {
	Table string
	At    time.Time // when the state was last stored
}

// errOwned means that the slot is the slot of another outbox.
var errOwned = errors.New("the slot of another outbox")

// checkSlotOwner returns an error that wraps errOwned if the slot is the slot of another outbox of this database. A slot belongs to the outbox whose relay was the
// last one to store its state with it. Two outboxes cannot share a slot: their relays would end each other's streams, and would confirm or
// drop rows of the other outbox that only the log has.
//
// A table that no longer exists owns no slot, since it may be this table under its former name.
func (r *Relay) checkSlotOwner(ctx context.Context, db querier) error {
	users, err := r.slotUsers(ctx, db)
	if err != nil {
		return fmt.Errorf("look for the owner of slot %s: %w", r.cfg.Slot, err)
	}
	var own, last slotUser
	for _, u := range users {
		if u.Table == r.cfg.Table {
			own = u
		}
		if u.At.After(last.At) {
			last = u
		}
	}
	if !last.At.After(own.At) {
		return nil
	}
	return fmt.Errorf("slot %s is %w, %s, whose relay stored its state with it at %s: give this relay, of outbox %s, another slot. %s",
		r.cfg.Slot, errOwned, last.Table, last.At.UTC().Format(time.RFC3339), r.cfg.Table, r.releaseAdvice(own, last))
}

// releaseAdvice returns the statements that make the slot this relay's. If the relay reads a mapped table without a state of that slot, the slot is
// dropped: takeOver would continue at its position, and rows that were written before that, or before the table's publication was created, would
// not be published. But if the table was renamed, and its former name is another table's now, its rows may be in the slot alone.
func (r *Relay) releaseAdvice(own, last slotUser) string {
	release := fmt.Sprintf("UPDATE troupe.mapped_tables SET slot = NULL WHERE name = %s", literal(last.Table))
	if last.Table == ownTable {
		// The time makes the name unique: the slot may have been released before.
		release = fmt.Sprintf("UPDATE troupe.relay_state SET slot = %s || clock_timestamp() WHERE slot = %s",
			literal("former "+r.cfg.Slot+" "), literal(r.cfg.Slot))
	}
	unread := fmt.Sprintf("If no relay reads %s from the slot any more: ", last.Table)
	if r.mapped == nil || !own.At.IsZero() {
		return unread + release
	}
	renamed := ""
	if last.Table != ownTable {
		unread = fmt.Sprintf("If no relay reads %s from the slot any more (its rows that are in the slot alone are lost then): ", last.Table)
		renamed = fmt.Sprintf("If %s had the name %s before, and a new table has that name now: %s. ", r.cfg.Table, last.Table, release)
	}
	// The slot is dropped first, since the relay would take over a slot that no outbox uses. psql sends the second statement also if the first failed.
	slots := fmt.Sprintf("FROM pg_replication_slots WHERE slot_name = %s", literal(r.cfg.Slot))
	return fmt.Sprintf("%s%sSELECT pg_drop_replication_slot(slot_name) %s; %s AND NOT EXISTS (SELECT %s)", renamed, unread, slots, release, slots)
}

// slotUsers lists the outboxes of this database whose state was stored with the slot. troupe.outbox is one of them while it is streamed, and
// while its relay creates the slot.
func (r *Relay) slotUsers(ctx context.Context, db querier) (users []slotUser, err error) {
	rows, err := db.Query(ctx, listSlotUsers, pg.Args{"slot": r.cfg.Slot, "table": r.cfg.Table})
	if err == nil {
		users, err = pgx.CollectRows(rows, pgx.RowToStructByPos[slotUser])
	}
	if err != nil {
		return nil, r.lacksRight(err)
	}
	at, err := r.outboxUsed(ctx, db, r.cfg.Slot)
	if err != nil {
		return users, r.lacksRight(err)
	}
	if !at.IsZero() {
		users = append(users, slotUser{Table: ownTable, At: at})
	}
	r.quiet.recovered("slot owner")
	return users, nil
}

// outboxUsed returns when the state of troupe.outbox was last stored with the slot; zero: the slot is not the slot of troupe.outbox.
func (r *Relay) outboxUsed(ctx context.Context, db querier, slot string) (at time.Time, err error) {
	err = db.QueryRow(ctx, readSlotOfOutbox, pg.Args{"slot": slot}).Scan(&at)
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, nil
	}
	return at, err
}

// lacksRight logs an error of a role with the rights of an older version, which may not read the states of other outboxes, and returns any
// other error.
func (r *Relay) lacksRight(err error) error {
	if denied(err) {
		r.quiet.failed("slot owner", fmt.Errorf("if another outbox of this database has slot %s, this relay does not notice it, and may drop the slot "+
			"with rows that only its log has: grant what outbox-relay grants prints: %w", r.cfg.Slot, err))
		return nil
	}
	return err
}
