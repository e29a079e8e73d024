package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/wal"
	"github.com/troupe-go/troupe/outbox"
)

// An item is a row on its way through one round.
type item struct {
	row         outbox.Row
	xid         uint64        // of a stream: that wrote it
	commit      wal.LSN       // of a stream: the commit of that transaction
	mapped      *mappedRow    // of a table that is not troupe.outbox
	troubled    bool          // it stands in troupe.outbox_trouble
	settled     bool          // of a window: it is published, or recorded
	key         []byte        // what order is kept by; nil: nothing
	attempts    int           // failed tries so far
	troubledFor time.Duration // since the first of them
	maxAttempts int           // of the policy that the last one counted for; 0: time decides
	record      *kgo.Record
	size        int   // of the record in a batch, at most
	err         error // of the last send
}

// fullLookEvery is how often a claim begins at the very first row, for a position that was set by hand.
const fullLookEvery = time.Minute

// poll is the polling source of one shard: rows from the lowest one still there, and their removal.
type poll struct {
	session
	lease  *lease
	batch  int
	warn   func(error)
	wake   <-chan struct{} // notifications
	looker *looker         // that looks for all shards of the process; nil: there is one
	// published and sweep are snapshots that limit what is claimed, see scope. They are of the server that of names.
	published, sweep *string
	of               string

	mark mark

	lookedFull time.Time // when a claim last began at the very first row
	known      words
	now, spare *window       // what was claimed last; what may be read into
	passes     time.Duration // how long a pass may last
	pass       pass
	ahead      *ahead // the claim after it, when it is under way
}

// claim reads the rows that may go out now, lowest first. After an idle wait it rather renews the lease with the same
// statement that looks, so that an idle relay costs one statement per look.
func (p *poll) claim(ctx context.Context, waited time.Duration) ([]*item, error) {
	if items, err := p.readOn(ctx); err != nil || len(items) > 0 {
		return items, err
	}
	if err := p.connect(ctx); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if (p.published != nil || p.sweep != nil) && p.server != p.of {
		return nil, p.check(fmt.Errorf("claim rows: %w", errServer))
	}
	full := time.Since(p.lookedFull) > fullLookEvery
	if full {
		p.lookedFull = time.Now()
	}
	if waited > 0 && p.lease.age() > p.lease.length/6 {
		found, err := p.lease.renew(ctx, p.conn, p.from(full))
		if err != nil || !found {
			return nil, p.check(err)
		}
	}
	switch err := p.mark.advance(ctx, p.conn); {
	case denied(err): // claims get slower without, not wrong
		p.mark = mark{published: p.published, lease: p.lease}
		p.warn(fmt.Errorf("advance the low mark: %w", err))
	case err != nil:
		return nil, p.check(fmt.Errorf("advance the low mark: %w", err))
	}
	if err := p.read(ctx, p.from(full)); err != nil {
		return nil, p.check(fmt.Errorf("claim rows: %w", err))
	}
	items := p.take()
	if full && len(items) > 0 {
		p.compare(items[0])
	}
	return items, nil
}

// from is the scope of a claim. A full one begins at the very first row, and leaves the marks to the claims after it.
func (p *poll) from(full bool) scope {
	s := p.scope()
	if full {
		s.low, s.past = 0, 0
	}
	return s
}

// compare forgets a mark that the lowest row of a full claim disproves.
func (p *poll) compare(lowest *item) {
	switch {
	case lowest.row.Position <= p.mark.low:
		p.mark = p.unmarked()
	case lowest.row.Position <= p.mark.past && !lowest.troubled:
		p.mark.past = 0
	}
}

func (p *poll) scope() scope {
	return scope{p.mark.low, p.mark.past, p.mark.blocking, p.published, p.sweep}
}

// unmarked is what is known of a connection at first: nothing. Behind a stream there may be many rows that are
// published, so the first mark is made at once.
func (p *poll) unmarked() mark {
	m := mark{published: p.published, lease: p.lease}
	if p.published != nil {
		m.removed = markAfter
	}
	return m
}

// rest waits for the next look, and says whether a notification ended the wait.
func (p *poll) rest(ctx context.Context, wait time.Duration) bool {
	if p.looker == nil {
		return pause(ctx, wait, p.wake)
	}
	if p.looker.rest(ctx, p.lease, p.scope()) == slow { // others' rows are in the way
		p.mark.due()
	}
	return false
}

// inBinary has values come as they come in a stream.
var inBinary = pgx.QueryResultFormats{pgx.BinaryFormatCode}

// read begins a pass at the lowest row.
func (p *poll) read(ctx context.Context, from scope) error {
	began := time.Now()
	args := from.args(p.lease.args(pg.Args{"rows": p.batch, "bytes": claimBytes}))
	rows, err := p.conn.Query(ctx, claimRows, inBinary, args)
	if err != nil {
		return err
	}
	defer rows.Close()
	w := p.window()
	var first pass
	for rows.Next() {
		values := rows.RawValues()
		if err := w.scan(values, p.known); err != nil {
			return err
		}
		if len(w.items) == 1 {
			first.snapshot, first.blocking = string(values[len(claimed)+4]), string(values[len(claimed)+5])
		}
	}
	if p.far(w, time.Since(began)) {
		p.mark.due()
	}
	first.began, first.more = time.Now(), p.ended(w)
	p.pass = first
	return rows.Err()
}

// far says whether rows were in the way of a claim that a mark would spare the next.
func (p *poll) far(w *window, took time.Duration) bool {
	if len(w.items) == 0 {
		return took > slowLook
	}
	return w.items[0].row.Position-max(p.mark.low, p.mark.past) > markAfter
}

// ended says whether a claim ended for its limits, and there may be more.
func (p *poll) ended(w *window) bool { return len(w.items) == p.batch || len(w.bytes) > claimBytes/2 }

// window is the one to read into, now that the publisher has settled what it had.
func (p *poll) window() *window {
	if p.known == nil {
		p.known, p.now, p.spare = make(words), &window{}, &window{}
	}
	p.now, p.spare = p.spare, p.now
	p.now.clear()
	return p.now
}

// claimed are the first columns of a claim, those of a row.
var claimed = layout{position, id, topic, key, keyBytes, messageType, headers, rawHeaders, payload, createdAt}

// scan reads a row of a claim in binary form.
func (w *window) scan(values [][]byte, known words) error {
	w.items = append(w.items, item{})
	i := &w.items[len(w.items)-1]
	for n, f := range claimed {
		if values[n] == nil {
			continue
		}
		if err := w.set(i, f, values[n], nil, known); err != nil {
			return fmt.Errorf("row %d: %w", i.row.Position, err)
		}
	}
	i.key = i.row.KeyBytes
	return i.trouble(values[len(claimed):])
}

// trouble reads the columns behind the row's: troubled, attempts, troubled_for, max_attempts.
func (i *item) trouble(values [][]byte) error {
	if len(values[0]) != 1 || len(values[1]) != 4 || len(values[2]) != 8 || len(values[3]) != 4 {
		return errors.New("a claim in a form that is not known")
	}
	i.troubled = values[0][0] == 1
	i.attempts = int(binary.BigEndian.Uint32(values[1]))
	seconds := math.Float64frombits(binary.BigEndian.Uint64(values[2]))
	i.troubledFor = time.Duration(seconds * float64(time.Second))
	i.maxAttempts = int(binary.BigEndian.Uint32(values[3]))
	return nil
}

// remove deletes rows that the broker has acknowledged. The error is errLost, and nothing is deleted, when the term
// is over. Rows that are gone already are no error: an earlier try may have succeeded and its answer been lost.
func (p *poll) remove(ctx context.Context, items []*item) error {
	p.join(ctx)
	if err := p.connect(ctx); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	positions, ids := make([]int64, len(items)), make([][16]byte, len(items)) // as a uuid.UUID each would go through text
	lowest, highest := items[0].row.Position, items[0].row.Position
	troubled := false
	for n, i := range items {
		positions[n], ids[n] = i.row.Position, i.row.ID
		lowest, highest = min(lowest, i.row.Position), max(highest, i.row.Position)
		troubled = troubled || i.troubled
	}
	args := p.lease.args(pg.Args{"positions": positions, "ids": ids, "lowest": lowest, "highest": highest})
	if !troubled && together(len(items), highest-lowest, p.lease.of()) {
		tag, err := p.conn.Exec(ctx, deleteRange, pgx.QueryExecModeCacheDescribe, args)
		if err != nil {
			return p.check(fmt.Errorf("delete rows: %w", err))
		}
		p.mark.removed += int(tag.RowsAffected())
		if tag.RowsAffected() == int64(len(items)) {
			settleAll(items)
			return nil
		}
	}
	var held, deleted int
	err := p.conn.QueryRow(ctx, deleteRows, args).Scan(&held, &deleted)
	switch {
	case err != nil:
		return p.check(fmt.Errorf("delete rows: %w", err))
	case held == 0:
		return fmt.Errorf("delete rows: %w", errLost)
	}
	p.mark.removed += deleted
	settleAll(items)
	return nil
}

// together says whether rows stand so near to each other that a walk over what is between costs less than a search for each.
func together(rows int, span int64, shards int) bool {
	return rows >= 100 && span < int64(rows)*4*int64(shards)
}

func settleAll(items []*item) {
	for _, i := range items {
		i.settled = true
	}
}

// denied says whether a privilege is missing.
func denied(err error) bool {
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && refusal.Code == "42501"
}

func (p *poll) connect(ctx context.Context) error {
	fresh, err := p.session.connect(ctx)
	if fresh { // a mark is true only for one connection: a restart of the server cannot go unseen
		p.mark = p.unmarked()
	}
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
	p.forget()
	p.session.close()
}
