package repair

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
)

// heldChannel is the channel on which participants are notified of changes. The payload is the consumer group.
const heldChannel = "troupe_held"

// retryBatch limits how many rows one transaction locks.
const retryBatch = 500

// Retry makes the next attempt of the selected keys due now, and returns for how many. A key that is being tried at this moment
// is skipped, and so is one that comes next anyway, since it waits for no time.
func (d *Desk) Retry(ctx context.Context, f HeldFilter, by admin.Actor) (n int, err error) {
	if err := by.Check(); err != nil {
		return 0, fmt.Errorf("retry: %w", err)
	}
	for last := int64(0); ; {
		done, behind, err := d.retrySome(ctx, f, by, last)
		if n += done; err != nil {
			return n, fmt.Errorf("retry: %w", err)
		}
		if behind == 0 {
			return n, nil
		}
		last = behind
	}
}

// retrySome handles the first keys after position last. It returns position 0 if there are no more.
func (d *Desk) retrySome(ctx context.Context, f HeldFilter, by admin.Actor, last int64) (n int, position int64, err error) {
	where, err := f.conditions()
	if err != nil {
		return 0, 0, err
	}
	where.add("h.position > @last", "last", last)
	where.all = append(where.all, "h.next_try IS NOT NULL")
	where.args["limit"] = retryBatch
	err = d.act(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, heldHeads+where.String()+`
			ORDER BY h.position
			LIMIT @limit
			FOR UPDATE OF h SKIP LOCKED`, where.args)
		if err != nil {
			return err
		}
		keys, err := pgx.CollectRows(rows, scanHeld)
		if err != nil || len(keys) == 0 {
			return err
		}
		b := &pgx.Batch{}
		groups := make(map[string]bool)
		for _, k := range keys {
			b.Queue("UPDATE troupe.held SET next_try = clock_timestamp() WHERE "+thisHeld, k.identity())
			b.Queue(recordHeld, k.recordArgs(actionRetry, by, nil))
			if !groups[k.Group] {
				b.Queue("SELECT pg_notify('"+heldChannel+"', $1)", k.Group)
				groups[k.Group] = true
			}
		}
		n, position = len(keys), keys[len(keys)-1].row.position
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return 0, 0, err
	}
	return n, position, nil
}
