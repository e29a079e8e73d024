package outbox

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

// writers finds positions that every possible writer has passed. That a position was given out says nothing of the ones
// below it: their transactions may commit later, or have no transaction id yet. What does: read the newest position,
// then list who holds the lock of writers, then wait until none of them is left. An insert takes that lock before its
// position and holds it to its transaction's end, prepared or not; whoever came later took a later position.
//
// The names in the list are good for one life of the server, and so for one connection.
type writers struct {
	passed int64 // no row can appear at or below it

	newest int64               // what is to be passed next
	open   map[string]struct{} // that were there then and are still to be waited for; nil: no look is under way
}

// look takes one step; passed moves when the last of those waited for is gone.
func (w *writers) look(ctx context.Context, conn *pgx.Conn) error {
	if w.open == nil {
		err := conn.QueryRow(ctx, `
			SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END
			FROM troupe.outbox_position_seq`).Scan(&w.newest)
		if err != nil {
			return err
		}
		w.open, err = whoWrites(ctx, conn) // a statement of its own, after the first
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

// describe names one of those waited for, as pg_locks.virtualtransaction does.
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
