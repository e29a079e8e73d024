package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

// warnOfLeftSlots logs, once each, the slots from which troupe.outbox was streamed before another slot was configured. The server keeps its
// log for such a slot until it is dropped. The relay does not drop it, since a standby may still be configured with its name.
func (r *Relay) warnOfLeftSlots(ctx context.Context, warned map[string]bool) error {
	if r.mapped != nil {
		return nil
	}
	rows, err := r.pool.Query(ctx, listLeftSlots, pg.Args{"slot": r.cfg.Slot})
	if err != nil {
		return err
	}
	var name string
	var retained int64
	_, err = pgx.ForEachRow(rows, []any{&name, &retained}, func() error {
		if warned[name] {
			return nil
		}
		warned[name] = true
		r.cfg.Log.Warn().Str("slot", name).Int64("retained_bytes", retained).
			Msg("no relay reads this slot: it was used before another one was configured. The server keeps its log for it until it is dropped")
		return nil
	})
	return err
}

// checkLeftSlots returns an error if another slot holds, or held, rows that the table no longer has. A service may delete a row right after
// its insert, and then only the log has that row. There are two cases:
//
//   - The table was streamed from another slot, and that slot still exists.
//   - This table was never streamed, but a table that no longer exists was, from another slot. This table may be that one, renamed.
//
// Until an operator has decided, checkLeftSlots keeps each such slot in use. If the server has invalidated the slot all the same, its rows are
// lost, and the error says which ones they are.
func (t *mappedTable) checkLeftSlots(ctx context.Context, r *Relay, db *server, st storedState) error {
	rows, err := db.Query(ctx, listLeftMappedSlots, t.args(pg.Args{"slot": r.cfg.Slot}))
	if err != nil {
		return fmt.Errorf("list the slots from which table %s was streamed: %w", t, err)
	}
	left, err := pgx.CollectRows(rows, pgx.RowToStructByPos[leftSlot])
	if err != nil {
		return fmt.Errorf("list the slots from which table %s was streamed: %w", t, err)
	}
	var first error
	for _, l := range left {
		if l.Table != t.String() && st.there {
			continue
		}
		used, err := r.outboxUsed(ctx, db, l.Slot)
		if err = r.lacksRight(err); err != nil {
			return fmt.Errorf("look for the owner of slot %s: %w", l.Slot, err)
		}
		if used.After(l.At) {
			continue // troupe.outbox has the slot by now
		}
		problem := l.errInvalidated
		if !l.Invalidated {
			problem = l.errExists
			if err := r.keepInUse(ctx, l.Slot); err != nil {
				r.quiet.failed("slot "+l.Slot, err)
			} else {
				r.quiet.recovered("slot " + l.Slot)
			}
		}
		if first == nil {
			first = problem(t, r.cfg.Slot)
		}
	}
	return first
}

// A leftSlot is a slot other than the configured one, from which a mapped table was streamed.
type leftSlot struct {
	Table, Slot  string
	Invalidated  bool
	Invalidation string // the server's reason, see pg.Invalidation
	LSN          string // the checkpoint that was stored last
	At           time.Time
}

// describe returns the relation of the slot to table t, whose relay is configured with another slot.
func (l leftSlot) describe(t *mappedTable, configured string) string {
	if l.Table == t.String() {
		return fmt.Sprintf("table %s was streamed from slot %s, and slot %s is configured", t, l.Slot, configured)
	}
	return fmt.Sprintf("table %s no longer exists, and may be %s under its former name", l.Table, t)
}

// errExists returns the error for a slot that may hold rows of table t.
func (l leftSlot) errExists(t *mappedTable, configured string) error {
	return fmt.Errorf("%s: rows that are no longer in the table may be in slot %[2]s alone: configure slot %[2]s and its publication, "+
		"or, if you can lose these rows, drop it: SELECT pg_drop_replication_slot(%[3]s)", l.describe(t, configured), l.Slot, literal(l.Slot))
}

// errInvalidated returns the error for an invalidated slot, in which rows of table t may have been.
func (l leftSlot) errInvalidated(t *mappedTable, configured string) error {
	cause, remedy := pg.Invalidation(l.Invalidation)
	return fmt.Errorf("%s: slot %s is lost: %s. Rows that were committed after LSN %s, which was stored at %s, and that are no longer in the table "+
		"are lost if they were not published: compare the topics with the records of the service. Then drop the slot, and the relay publishes "+
		"the rows that the table holds: SELECT pg_drop_replication_slot(%s). To prevent that, %s",
		l.describe(t, configured), l.Slot, cause, l.LSN, l.At.UTC().Format(time.RFC3339), literal(l.Slot), remedy)
}
