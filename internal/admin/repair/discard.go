package repair

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
)

// discardBatch limits how many rows one transaction locks.
const discardBatch = 500

// Discard marks the chosen dead letters as discarded: nothing more is done about them. They stay in the table, with their payload
// and with the name of the operator; by needs a Reason. It returns how many it discarded, also together with an error; the same
// call then continues with the rest. Without ids it takes only dead letters from before the call.
//
// A single id that does not exist or is not open is an error. Of several ids, such ids are skipped.
func (d *Desk) Discard(ctx context.Context, f Filter, by admin.Actor) (n int, err error) {
	if n, err = d.discard(ctx, f, by); err != nil {
		return n, fmt.Errorf("discard: %w", err)
	}
	return n, nil
}

func (d *Desk) discard(ctx context.Context, f Filter, by admin.Actor) (n int, err error) {
	if err := by.CheckReasoned(); err != nil {
		return 0, err
	}
	if err := f.checkForAction(); err != nil {
		return 0, err
	}
	if f.Before.IsZero() && f.IDs == nil { // a dead letter that is named by its id may have a created_at in the future
		if f.Before, err = d.now(ctx); err != nil {
			return 0, err
		}
	}
	for {
		done, err := d.discardSome(ctx, f, by)
		if n += done; err != nil || done < discardBatch {
			if err == nil && n == 0 && len(f.IDs) == 1 {
				return 0, d.whyNot(ctx, f.IDs[0])
			}
			return n, err
		}
	}
}

func (d *Desk) discardSome(ctx context.Context, f Filter, by admin.Actor) (n int, err error) {
	where := f.conditions()
	where.args["limit"] = discardBatch
	err = d.act(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			WITH chosen AS (
			  SELECT id
			  FROM troupe.dead_letters
			  WHERE `+where.String()+`
			  ORDER BY last_failed_at, id
			  LIMIT @limit
			  FOR UPDATE)
			UPDATE troupe.dead_letters d
			SET status = 'discarded'
			FROM chosen
			WHERE d.id = chosen.id
			RETURNING d.id`, where.args)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil || len(ids) == 0 {
			return err
		}
		args := recordArgs(actionDiscard, by)
		args["ids"], n = ids, len(ids)
		_, err = tx.Exec(ctx, recordLetters, args)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// whyNot explains why a filter with one id chose nothing. It returns nil if another field of the filter excluded it.
func (d *Desk) whyNot(ctx context.Context, id uuid.UUID) error {
	why, err := d.closed(ctx, id)
	if err == nil && why != nil {
		err = fmt.Errorf("dead letter %s: %w", id, why)
	}
	return err
}
