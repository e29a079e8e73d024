package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/troupe-go/troupe/internal/pg"
)

// oldTransactions is the age, in transactions, from which on a poll removes a row that a stream has published. A poll recognises a
// published row by the low 32 bits of the id of the transaction that inserted it. These bits repeat after 2^32 transactions, which is twice
// this age.
const oldTransactions = 1 << 31

// oldRowsEvery is the time between two reads of the whole table for old rows. At 50,000 transactions per second, a row becomes old 12 hours
// before its bits repeat.
const oldRowsEvery = time.Hour

// removeOldRows removes, every oldRowsEvery until ctx ends, the rows that a stream published at least oldTransactions transactions ago. The
// drop of their partition may come too late: a partition is dropped only when all of its positions were given out.
func (r *Relay) removeOldRows(ctx context.Context, l *lease, published streamedRows) {
	for {
		every := oldRowsEvery
		err := r.removeOldOnce(ctx, l, published)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			every = houseEvery
			r.quiet.failed("old rows", err)
		default:
			r.quiet.recovered("old rows")
		}
		if sleep(ctx, every, nil); ctx.Err() != nil {
			return
		}
	}
}

// removeOldOnce removes old rows once. It reads the whole table, since a restored row may be younger than rows with higher positions.
func (r *Relay) removeOldOnce(ctx context.Context, l *lease, published streamedRows) error {
	db, err := bind(r.pool, published.server)
	if err != nil {
		return err
	}
	defer db.Close()
	args := l.args(pg.Args{"published": *published.published, "after": int64(0), "rows": 1000, "age": r.oldTransactions})
	removed := 0
	for more := true; more; {
		var held, deleted int
		var last int64
		statement, cancel := context.WithTimeout(ctx, r.reading)
		err := db.QueryRow(statement, removePublished, args).Scan(&held, &last, &more, &deleted)
		if cancel(); err != nil {
			return fmt.Errorf("remove published rows: %w", err)
		}
		if held == 0 {
			return fmt.Errorf("remove published rows: %w", errLost)
		}
		args["after"] = last
		removed += deleted
	}
	if removed > 0 {
		r.cfg.Log.Info().Int("rows", removed).Msg("old rows removed: a stream had published them before the source was changed to poll")
	}
	return nil
}
