package repair

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
)

// heldChannel is the channel on which participants are notified of changes. The payload is the consumer group.
const heldChannel = "troupe_held"

// retryBatch limits how many rows one transaction changes.
const retryBatch = 500

// Retry makes the next attempt of the selected keys due now, and returns for how many. A key that is being tried at this moment
// is skipped, and so is one that comes next anyway, since it waits for no time.
func (d *Desk) Retry(ctx context.Context, f HeldFilter, by admin.Actor) (n int, err error) {
	if err := by.Check(); err != nil {
		return 0, fmt.Errorf("retry: %w", err)
	}
	for _, from := range [...]source{heldMessages, localWork} {
		for last := (*HeldKey)(nil); ; {
			some, err := d.retrySome(ctx, f, by, from, last)
			if n += len(some); err != nil {
				return n, fmt.Errorf("retry: %w", err)
			}
			if len(some) == 0 {
				break
			}
			last = &some[len(some)-1]
		}
	}
	return n, nil
}

// retrySome handles the first keys of a source after last.
func (d *Desk) retrySome(ctx context.Context, f HeldFilter, by admin.Actor, from source, last *HeldKey) (keys []HeldKey, err error) {
	where, err := f.conditions()
	if err != nil {
		return nil, err
	}
	if last != nil {
		where.add(from.after, "after", last.row.position)
		where.args["after_group"] = last.Group
	}
	where.all = append(where.all, from.due)
	where.args["limit"] = retryBatch
	err = d.act(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, from.page(where.String(), "\nFOR UPDATE OF h SKIP LOCKED"), where.args)
		if err != nil {
			return err
		}
		keys, _, err = admin.Collect(rows, retryBatch, from.scan) // fewer of large messages
		if err != nil || len(keys) == 0 {
			return err
		}
		b := &pgx.Batch{}
		notified := make(map[string]bool)
		for _, k := range keys {
			b.Queue(from.makeDue, k.identity())
			b.Queue(recordHeld, k.recordArgs(actionRetry, by, nil))
			if channel, payload := k.channel(); !notified[payload] {
				b.Queue("SELECT pg_notify($1, $2)", channel, payload)
				notified[payload] = true
			}
		}
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return nil, err
	}
	return keys, nil
}
