package relay

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

// warnOfLeftSlots logs, once each, the slots from which troupe.outbox was streamed before another slot was configured. The
// server keeps its log for them until they are dropped. The relay does not drop them: a standby may be configured with the
// old name.
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
