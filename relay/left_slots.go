package relay

import (
	"context"
	"fmt"

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

// checkLeftSlots returns an error if another slot may hold rows that the table no longer has. A service may delete a row right after its
// insert, and then only the log has that row. There are two cases:
//
//   - The table was streamed from another slot, and that slot still exists.
//   - This table was never streamed, but a table that no longer exists was, from another slot. This table may be that one, renamed.
func (t *mappedTable) checkLeftSlots(ctx context.Context, r *Relay, db *server, st storedState) error {
	rows, err := db.Query(ctx, listLeftMappedSlots, t.args(pg.Args{"slot": r.cfg.Slot}))
	if err != nil {
		return fmt.Errorf("list the slots from which table %s was streamed: %w", t, err)
	}
	type leftSlot struct{ Table, Slot string }
	left, err := pgx.CollectRows(rows, pgx.RowToStructByPos[leftSlot])
	if err != nil {
		return fmt.Errorf("list the slots from which table %s was streamed: %w", t, err)
	}
	for _, l := range left {
		advice := fmt.Sprintf("rows that are no longer in the table may be in slot %[1]s alone: configure slot %[1]s and its publication, "+
			"or, if you can lose these rows, drop it: SELECT pg_drop_replication_slot(%[2]s)", l.Slot, literal(l.Slot))
		switch {
		case l.Table == t.String():
			return fmt.Errorf("table %s was streamed from slot %s, and slot %s is configured: %s", t, l.Slot, r.cfg.Slot, advice)
		case !st.there:
			return fmt.Errorf("table %s no longer exists, and may be %s under its former name: %s", l.Table, t, advice)
		}
	}
	return nil
}
