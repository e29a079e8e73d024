package relay

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

const (
	markAfter = 10_000                 // number of removed rows after which a new mark is worth the cost of its statements
	markEvery = 500 * time.Millisecond // time between two checks whether the writers have ended
)

// A mark is a position, low: no row is left at or below it, and none can appear there. Claims begin above low, so that they need not read
// the dead versions of deleted rows. To read these is expensive while an old snapshot (pg_dump, a forgotten transaction) keeps VACUUM from
// removing them.
//
// After the sequence has given out a position, a row with a lower position may still appear, since its transaction may be open. So a mark
// is made in three steps. First, read the newest position. Second, list the transactions that hold the writers' lock. Third, wait until all
// of these have ended. Transactions that take the lock later get higher positions. The list is valid until the server restarts, so a mark
// is discarded with its connection.
//
// A second position, past, lets claims skip failed rows and the rows that wait behind them. The failed rows that others wait behind are the
// blocking rows. past applies while the blocking rows are unchanged and none of them is due. Each claim checks that in its statement.
type mark struct {
	low      int64  // no row is at or below it
	past     int64  // each row above low, up to past, has failed or waits behind a failed row, while blocking is unchanged
	blocking string // digest of the blocking rows
	removed  int    // rows removed since the last mark was begun

	lease     *lease  // lease of the shard
	published *string // snapshot of published rows: a row that it sees counts only if it has failed

	newest  int64               // position of the next mark, which is being made; 0: none is
	writers map[string]struct{} // transactions that must end before the next mark is valid
	looked  time.Time           // when writers was last compared with the open transactions
}

// beginNext makes the next call of advance begin a new mark, unless one is being made.
func (m *mark) beginNext() { m.removed = max(m.removed, markAfter) }

// advance takes the next step towards a new mark if it is due: it begins a mark, or checks whether the writers have ended. claimRows calls
// it before the first claim of a pass.
func (m *mark) advance(ctx context.Context, conn *pgx.Conn) error {
	switch {
	case m.newest == 0 && m.removed >= markAfter:
		return m.begin(ctx, conn)
	case m.newest > 0 && time.Since(m.looked) >= markEvery:
		return m.end(ctx, conn)
	}
	return nil
}

// begin takes the first two steps of a new mark.
func (m *mark) begin(ctx context.Context, conn *pgx.Conn) (err error) {
	m.removed = 0
	if err := conn.QueryRow(ctx, newestPosition).Scan(&m.newest); err != nil {
		return err
	}
	m.writers, err = writersNow(ctx, conn)
	m.looked = time.Now()
	return err
}

// end completes the new mark if all transactions of its list have ended.
func (m *mark) end(ctx context.Context, conn *pgx.Conn) error {
	m.looked = time.Now()
	now, err := writersNow(ctx, conn)
	if err != nil {
		return err
	}
	for w := range m.writers {
		if _, still := now[w]; !still {
			delete(m.writers, w)
		}
	}
	if len(m.writers) > 0 {
		return nil
	}
	// A statement of its own, since its snapshot must see the rows that the last of these writers committed.
	args := m.lease.args(pg.Args{"low": m.low, "past": m.past, "blocking": m.blocking, "newest": m.newest, "published": m.published})
	if err := conn.QueryRow(ctx, lowestRow, args).Scan(&m.low, &m.past, &m.blocking); err != nil {
		return err
	}
	m.newest = 0
	return nil
}

// writersNow lists the transactions that hold the writers' lock, which each insert into troupe.outbox takes.
func writersNow(ctx context.Context, conn *pgx.Conn) (map[string]struct{}, error) {
	rows, err := conn.Query(ctx, listWriters)
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	writers := make(map[string]struct{}, len(names))
	for _, name := range names {
		writers[name] = struct{}{}
	}
	return writers, err
}
