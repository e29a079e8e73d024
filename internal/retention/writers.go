package retention

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

// writers finds the highest position below which no row can appear any more. A position that was given out does not show that
// for the lower ones: their transactions may commit later, or have no transaction id yet. The procedure is: read the newest
// position, then list the transactions that hold the writers' lock, then wait until all of these have ended. An insert takes
// that lock before its position and holds it until the end of its transaction, prepared or not, so transactions that take it
// later get later positions.
//
// The listed names are valid until the server restarts, and so for one connection.
type writers struct {
	passed int64 // no new row can appear at or below it

	newest int64               // value of passed when all of open have ended
	open   map[string]struct{} // transactions still to be waited for; nil: the next look begins a new list
}

// look does one step. passed advances when the last transaction of the list has ended.
func (w *writers) look(ctx context.Context, conn *pgx.Conn) error {
	if w.open == nil {
		err := conn.QueryRow(ctx, `
			SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END
			FROM troupe.outbox_position_seq`).Scan(&w.newest)
		if err != nil {
			return err
		}
		w.open, err = whoWrites(ctx, conn) // must be a statement of its own, after the first
		if err != nil {
			w.open = nil
			return err
		}
	} else {
		now, err := whoWrites(ctx, conn)
		if err != nil {
			return err
		}
		maps.DeleteFunc(w.open, func(name string, _ struct{}) bool {
			_, still := now[name]
			return !still
		})
	}
	if len(w.open) == 0 {
		w.passed, w.open = w.newest, nil
	}
	return nil
}

// describe names one of the transactions waited for, by its pg_locks.virtualtransaction.
func (w *writers) describe() string {
	if len(w.open) == 0 {
		return "the sequence has only now passed it"
	}
	return fmt.Sprintf("%d transactions that inserted into the outbox are open, virtual transaction %s among them",
		len(w.open), slices.Min(slices.Collect(maps.Keys(w.open))))
}

func whoWrites(ctx context.Context, conn *pgx.Conn) (map[string]struct{}, error) {
	rows, err := conn.Query(ctx, `
		SELECT DISTINCT virtualtransaction
		FROM pg_locks
		WHERE locktype = 'relation'
		  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		  AND relation = 'troupe.outbox'::regclass
		  AND mode = 'RowExclusiveLock'`)
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	open := make(map[string]struct{}, len(names))
	for _, name := range names {
		open[name] = struct{}{}
	}
	return open, err
}
