package relay

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

const (
	markAfter = 10_000                 // removed rows that make a new mark worth its statements
	markEvery = 500 * time.Millisecond // between two looks at who still writes
)

// mark is a position below which no row is left and none can appear, so that claims need not walk over dead rows,
// which costs much as soon as any old snapshot holds them (pg_dump, a forgotten transaction).
//
// An id that was handed out says nothing of the ids below it: their transactions may commit later. What does: read the
// newest position, then list those who hold the lock of writers, then wait until none of them is left. Whoever came
// later took a later position. The list is of one server's life, so a mark is forgotten with its connection.
//
// A second position, past, spares claims the rows that wait behind a parked one. It is used while the rows that others wait
// behind are the same and none of them is due, which each statement compares for itself.
type mark struct {
	low      int64  // nothing at or below it
	past     int64  // what is at or below it is in trouble, or waits behind what is, while blocking holds
	blocking string // a digest of which rows others wait behind
	removed  int    // rows since the last mark was begun

	lease     *lease  // of the shard
	published *string // a snapshot: what it sees is not left, but for rows in trouble

	newest  int64               // candidate; 0: none
	writers map[string]struct{} // that were there and are still to be waited for
	looked  time.Time
}

// due makes a new mark worth its statements.
func (m *mark) due() { m.removed = max(m.removed, markAfter) }

// advance takes one step, where one is due.
func (m *mark) advance(ctx context.Context, conn *pgx.Conn) error {
	switch {
	case m.newest == 0 && m.removed >= markAfter:
		return m.begin(ctx, conn)
	case m.newest > 0 && time.Since(m.looked) >= markEvery:
		return m.end(ctx, conn)
	}
	return nil
}

func (m *mark) begin(ctx context.Context, conn *pgx.Conn) (err error) {
	m.removed = 0
	if err := conn.QueryRow(ctx, newestPosition).Scan(&m.newest); err != nil {
		return err
	}
	m.writers, err = writersNow(ctx, conn)
	m.looked = time.Now()
	return err
}

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
	// A statement of its own, and so a snapshot that sees what the last of the writers committed.
	args := m.lease.args(pg.Args{"low": m.low, "past": m.past, "blocking": m.blocking, "newest": m.newest, "published": m.published})
	if err := conn.QueryRow(ctx, lowestRow, args).Scan(&m.low, &m.past, &m.blocking); err != nil {
		return err
	}
	m.newest = 0
	return nil
}

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
