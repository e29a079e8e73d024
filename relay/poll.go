package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/outbox"
)

// An item is a row on its way through one round.
type item struct {
	row         outbox.Row
	mapped      *mappedRow    // of a table that is not troupe.outbox
	troubled    bool          // it stands in troupe.outbox_trouble
	settled     bool          // of a window: it is published, or recorded
	key         []byte        // what order is kept by; nil: nothing
	attempts    int           // failed tries so far
	troubledFor time.Duration // since the first of them
	record      *kgo.Record
	size        int   // of the record in a batch, at most
	err         error // of the last send
}

// fullLookEvery is how often a claim begins at the very first row, for a position that was set by hand.
const fullLookEvery = time.Minute

// poll is the polling source: rows from the lowest one still there, and their removal.
type poll struct {
	pool  *pgxpool.Pool
	lease *lease
	batch int
	warn  func(error)
	wake  <-chan struct{} // notifications
	// published and sweep are snapshots that limit what is claimed, see scope.
	published, sweep *string

	// conn is out of the pool, since its planner settings are its own, and since what mark knows is true only for
	// one connection: a restart of the server cannot go unseen.
	conn *pgx.Conn
	mark mark

	lookedFull time.Time // when a claim last began at the very first row
	items      []item
}

// claim reads the rows that may go out now, lowest first. After an idle wait it rather renews the lease with the same
// statement that looks, so that an idle relay costs one statement per look.
func (p *poll) claim(ctx context.Context, waited time.Duration) ([]*item, error) {
	if err := p.connect(ctx); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if time.Since(p.lookedFull) > fullLookEvery {
		p.lookedFull = time.Now()
		p.mark = p.unmarked()
	}
	if waited > 0 && p.lease.age() > p.lease.length/6 {
		found, err := p.lease.renew(ctx, p.conn, p.scope())
		if err != nil || !found {
			return nil, p.check(err)
		}
	}
	switch err := p.mark.advance(ctx, p.conn); {
	case denied(err): // claims get slower without, not wrong
		p.mark = mark{published: p.published}
		p.warn(fmt.Errorf("advance the low mark: %w", err))
	case err != nil:
		return nil, p.check(fmt.Errorf("advance the low mark: %w", err))
	}
	items, err := p.read(ctx)
	if err != nil {
		return nil, p.check(fmt.Errorf("claim rows: %w", err))
	}
	return items, nil
}

func (p *poll) scope() scope { return scope{p.mark.low, p.published, p.sweep} }

// unmarked is what is known of a connection at first: nothing. Behind a stream there may be many rows that are
// published, so the first mark is made at once.
func (p *poll) unmarked() mark {
	m := mark{published: p.published}
	if p.published != nil {
		m.removed = markAfter
	}
	return m
}

// rest waits for the next look, and says whether a notification ended the wait.
func (p *poll) rest(ctx context.Context, wait time.Duration) bool { return pause(ctx, wait, p.wake) }

func (p *poll) read(ctx context.Context) ([]*item, error) {
	rows, err := p.conn.Query(ctx, claimRows, p.scope().args(pgx.NamedArgs{"rows": p.batch, "bytes": claimBytes}))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	if p.items == nil {
		p.items = make([]item, p.batch)
	}
	clear(p.items) // nothing of the last round is in use
	items := make([]*item, 0, 64)
	for rows.Next() {
		i := &p.items[len(items)]
		if err := rows.Scan(append(i.row.Fields(), &i.troubled, &i.attempts, &i.troubledFor)...); err != nil {
			return nil, err
		}
		i.key = i.row.OrderKey()
		items = append(items, i)
	}
	return items, rows.Err()
}

// remove deletes rows that the broker has acknowledged. The error is errLost, and nothing is deleted, when the term
// is over. Rows that are gone already are no error: an earlier try may have succeeded and its answer been lost.
func (p *poll) remove(ctx context.Context, items []*item) error {
	if err := p.connect(ctx); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	positions, ids := make([]int64, len(items)), make([][16]byte, len(items)) // as a uuid.UUID each would go through text
	lowest, highest := items[0].row.Position, items[0].row.Position
	for n, i := range items {
		positions[n], ids[n] = i.row.Position, i.row.ID
		lowest, highest = min(lowest, i.row.Position), max(highest, i.row.Position)
	}
	var held, deleted int
	err := p.conn.QueryRow(ctx, deleteRows, p.lease.args(pgx.NamedArgs{
		"positions": positions, "ids": ids, "lowest": lowest, "highest": highest,
	})).Scan(&held, &deleted)
	switch {
	case err != nil:
		return p.check(fmt.Errorf("delete rows: %w", err))
	case held == 0:
		return fmt.Errorf("delete rows: %w", errLost)
	}
	p.mark.removed += deleted
	return nil
}

// denied says whether a privilege is missing.
func denied(err error) bool {
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && refusal.Code == "42501"
}

// planner leaves one plan: walk the partitions' keys upwards and stop at the limit. By its own estimates the planner
// rather reads the whole backlog and sorts it for each claim: young partitions have no statistics, and a table of
// trouble that is empty is taken to hold hundreds of rows. A delete by its estimates keeps a range of a small table in
// memory and reads it once for every row that goes. What has no other plan costs so much then that it would be compiled.
const planner = `
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_sort = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SET jit = off`

func (p *poll) connect(ctx context.Context) error {
	if p.conn != nil {
		return nil
	}
	pooled, err := p.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	p.conn, p.mark = pooled.Hijack(), p.unmarked()
	_, err = p.conn.Exec(ctx, planner)
	return p.check(err)
}

// check closes a connection that an error came over; the next use makes a new one.
func (p *poll) check(err error) error {
	if err != nil {
		p.close()
	}
	return err
}

func (p *poll) close() {
	if p.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = p.conn.Close(ctx) // it is given up in any case
	p.conn = nil
}
