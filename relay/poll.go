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

	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/wal"
)

// An item is a row that a source has read, from its claim until it is settled.
type item struct {
	row          outboxrow.Row
	commit       wal.LSN       // from a stream: commit LSN of the row's transaction
	commitRow    int64         // from a stream of a mapped table: number of the row in its transaction
	mapped       *mappedRow    // of a table other than troupe.outbox
	failedBefore bool          // it was recorded as failed before this claim
	settled      bool          // published, recorded as failed, or passed over
	key          []byte        // rows of one key keep their order; nil: no key
	attempts     int           // failed tries so far
	failingFor   time.Duration // time since the first failed try
	maxAttempts  int           // limit of the policy that counted the last failed try; 0: limited by time
	record       *kgo.Record
	size         int   // upper bound of the record's size in a batch, in bytes
	err          error // result of the last send
	unreadable   error // why the row's text is not UTF-8
}

// fullLookEvery is the time between two claims of a shard that begin at the first row of the table, whatever the mark is. Such claims find
// rows whose positions were set by hand. They may take long, so they are never part of a statement that locks a lease.
const fullLookEvery = time.Minute

// A poll is the source of one shard that is polled. It claims rows from the lowest one that is left, and deletes them when they are
// published.
type poll struct {
	session
	lease  *lease
	batch  int
	warn   func(error)
	wake   <-chan struct{} // notifications of new rows
	looker *looker         // looks for rows in all shards of the process; nil: the outbox has one shard
	// published and sweep are snapshots that limit the claims, see scope. They are valid only on the server process serverID.
	published, sweep *string
	serverID         string

	mark mark

	lookedFull time.Time // when a claim last began at the first row of the table
	texts      words
	now, spare *window       // window of the last claim, and window for the next one
	passLimit  time.Duration // longest time that a pass lasts
	pass       pass
	ahead      *ahead // next claim of the pass, if it is being read
	turn       bool   // with a batch of one row: the last claim could be a failed row
}

// claim reads the rows that may be published now, lowest first. waited is the idle wait before it. After such a wait claim renews the lease
// with a statement that also looks for rows, and reads rows only if there are some. So an idle relay runs one statement per look. Rows
// whose text cannot be converted to UTF-8 are parked.
func (p *poll) claim(ctx context.Context, waited time.Duration) ([]*item, error) {
	items, err := p.claimRows(ctx, waited)
	if unconvertible(err) {
		return nil, p.setAside(ctx, err)
	}
	return items, err
}

// claimRows does the same as claim, but returns an error for rows whose text cannot be converted to UTF-8.
func (p *poll) claimRows(ctx context.Context, waited time.Duration) ([]*item, error) {
	if items, err := p.readOn(ctx); err != nil || len(items) > 0 {
		return items, err
	}
	if err := p.connect(ctx); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if (p.published != nil || p.sweep != nil) && p.server != p.serverID {
		return nil, p.check(fmt.Errorf("claim rows: %w", errServer))
	}
	full := p.beginsFull()
	if waited > 0 && !full && p.lease.age() > p.lease.length/6 {
		found, err := p.lease.renew(ctx, p.conn, p.scope())
		if err != nil || !found {
			return nil, p.check(err)
		}
	}
	switch err := p.mark.advance(ctx, p.conn); {
	case denied(err): // without a mark claims are slower, but correct
		p.mark = mark{published: p.published, lease: p.lease}
		p.warn(fmt.Errorf("advance the low mark: %w", err))
	case err != nil:
		return nil, p.check(fmt.Errorf("advance the low mark: %w", err))
	}
	from := p.scope()
	if full {
		from = from.withoutMarks()
	}
	if err := p.read(ctx, from); err != nil {
		return nil, p.check(fmt.Errorf("claim rows: %w", err))
	}
	items := p.take()
	if full && len(items) > 0 {
		p.compare(items[0])
	}
	return items, nil
}

// beginsFull reports whether the next claim begins at the first row of the table, as the first claim of a shard does. After that the shards
// begin such claims at different times within fullLookEvery, by their numbers, so that not all of them read the whole table at once.
func (p *poll) beginsFull() bool {
	if time.Since(p.lookedFull) < fullLookEvery {
		return false
	}
	first := p.lookedFull.IsZero()
	p.lookedFull = time.Now()
	if first {
		turn := fullLookEvery * time.Duration(p.lease.ordinal()) / time.Duration(p.lease.shardCount())
		p.lookedFull = p.lookedFull.Add(-turn)
	}
	return true
}

// compare drops the mark, or its part past, if lowest shows that it is wrong. claimRows calls it after a claim that began at the first row
// of the table; lowest is the first row of that claim.
func (p *poll) compare(lowest *item) {
	switch {
	case lowest.row.Position <= p.mark.low:
		p.mark = p.unmarked()
	case lowest.row.Position <= p.mark.past && !lowest.failedBefore:
		p.mark.past = 0
	}
}

// scope returns the limits of a claim above the mark.
func (p *poll) scope() scope {
	return scope{p.mark.low, p.mark.past, p.mark.blocking, p.published, p.sweep}
}

// unmarked returns the mark of a new connection, with which claims skip no rows. After a stream there may be many published rows in the
// table, so then another mark is begun at once.
func (p *poll) unmarked() mark {
	m := mark{published: p.published, lease: p.lease}
	if p.published != nil {
		m.removed = markAfter
	}
	return m
}

// awaitRows waits for d, or until a notification arrives, and reports whether a notification ended the wait. With several shards it ignores
// d and returns false: it waits until the looker finds rows in this shard, or until a claim that begins at the first row is due.
func (p *poll) awaitRows(ctx context.Context, d time.Duration) bool {
	if p.looker == nil {
		return sleep(ctx, d, p.wake)
	}
	ctx, cancel := context.WithDeadline(ctx, p.lookedFull.Add(fullLookEvery)) // then a claim begins at the first row
	defer cancel()
	if p.looker.rest(ctx, p.lease, p.scope()) == restSlow { // the look passed over many rows of other shards
		p.mark.beginNext()
	}
	return false
}

// inBinary requests values in binary format, as in a stream.
var inBinary = pgx.QueryResultFormats{pgx.BinaryFormatCode}

// read reads the first claim of a pass into a window, within the limits from.
func (p *poll) read(ctx context.Context, from scope) error {
	began := time.Now()
	args := from.args(p.lease.args(pg.Args{"rows": p.batch, "retried": p.retried(), "bytes": claimBytes}))
	rows, err := p.conn.Query(ctx, claimRows, inBinary, args)
	if err != nil {
		return err
	}
	defer rows.Close()
	w := p.window()
	var first pass
	for rows.Next() {
		values := rows.RawValues()
		if err := w.scan(values, p.texts); err != nil {
			return err
		}
		if len(w.items) == 1 {
			first.snapshot, first.blocking = string(values[len(claimed)+4]), string(values[len(claimed)+5])
		}
	}
	if p.far(w, time.Since(began)) {
		p.mark.beginNext()
	}
	first.began, first.more = time.Now(), p.hitLimit(w)
	p.pass = first
	return rows.Err()
}

// retried returns how many rows of the next claim may be failed rows that are due. It is half of the batch, so that new rows are published
// even while more failed rows are due than a claim holds. If the batch is one row, only every other claim may be a failed row.
func (p *poll) retried() int {
	if p.batch == 1 {
		p.turn = !p.turn
		return map[bool]int{true: 1}[p.turn]
	}
	return p.batch / 2
}

// far reports whether a claim, which took the time took, passed over so many rows before its first one that a new mark is worth its cost.
func (p *poll) far(w *window, took time.Duration) bool {
	if len(w.items) == 0 {
		return took > slowLook
	}
	return w.items[0].row.Position-max(p.mark.low, p.mark.past) > markAfter
}

// hitLimit reports whether a claim ended at one of its limits, so that there may be more rows.
func (p *poll) hitLimit(w *window) bool { return len(w.items) == p.batch || w.size() > claimBytes/2 }

// window returns the window for the next claim. All rows that were in it before are settled.
func (p *poll) window() *window {
	if p.texts == nil {
		p.texts, p.now, p.spare = make(words), &window{}, &window{}
	}
	p.now, p.spare = p.spare, p.now
	p.now.clear()
	return p.now
}

// claimed lists the columns of a row of troupe.outbox in the order of claim_rows.sql. In a claim, columns about the row's failure follow.
var claimed = layout{position, id, topic, key, keyBytes, messageType, headers, rawHeaders, payload, createdAt}

// scan appends a row of a claim, which is in binary format, to the window.
func (w *window) scan(values [][]byte, texts words) error {
	w.items = append(w.items, item{})
	i := &w.items[len(w.items)-1]
	for n, f := range claimed {
		if values[n] == nil {
			continue
		}
		if err := w.set(i, f, values[n], texts); err != nil {
			return fmt.Errorf("row %d: %w", i.row.Position, err)
		}
	}
	i.key = i.row.KeyBytes
	return i.failure(values[len(claimed):])
}

// failure reads the columns of a claim that follow the row's columns: failed_before, attempts, failing_for, max_attempts.
func (i *item) failure(values [][]byte) error {
	if len(values[0]) != 1 || len(values[1]) != 4 || len(values[2]) != 8 || len(values[3]) != 4 {
		return errors.New("a claim in a form that is not known")
	}
	i.failedBefore = values[0][0] == 1
	i.attempts = int(binary.BigEndian.Uint32(values[1]))
	seconds := math.Float64frombits(binary.BigEndian.Uint64(values[2]))
	i.failingFor = time.Duration(seconds * float64(time.Second))
	i.maxAttempts = int(binary.BigEndian.Uint32(values[3]))
	return nil
}

// remove deletes rows that the broker has acknowledged. If the term is over, it deletes nothing, and the error wraps errLost. A row that is
// already gone is no error, since an earlier attempt may have deleted it before its connection was lost.
func (p *poll) remove(ctx context.Context, items []*item) error {
	p.join(ctx)
	if err := p.connect(ctx); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	positions, ids := make([]int64, len(items)), make([][16]byte, len(items)) // not uuid.UUID, which pgx would send as text
	lowest, highest := items[0].row.Position, items[0].row.Position
	failedBefore := false
	for n, i := range items {
		positions[n], ids[n] = i.row.Position, i.row.ID
		lowest, highest = min(lowest, i.row.Position), max(highest, i.row.Position)
		failedBefore = failedBefore || i.failedBefore
	}
	args := p.lease.args(pg.Args{"positions": positions, "ids": ids, "lowest": lowest, "highest": highest})
	if !failedBefore && together(len(items), highest-lowest, p.lease.shardCount()) {
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
	if deleted < len(items) {
		if err := p.gone(ctx, args); err != nil {
			return p.check(fmt.Errorf("delete rows: %w", err))
		}
	}
	p.mark.removed += deleted
	settleAll(items)
	return nil
}

// errKept means that the database keeps published rows, although it has executed their delete. Without an error the relay would publish
// these rows again with each claim.
var errKept = errors.New("published rows are still in troupe.outbox: remove the trigger or rule that keeps them from being deleted")

// gone returns errKept if one of the rows that remove has deleted is still in the table.
func (p *poll) gone(ctx context.Context, args pg.Args) error {
	var kept bool
	err := p.conn.QueryRow(ctx, `SELECT EXISTS (
		SELECT FROM troupe.outbox o JOIN unnest(@positions::bigint[], @ids::uuid[]) AS acked (position, id) USING (position, id)
		WHERE o.position BETWEEN @lowest AND @highest)`, args).Scan(&kept)
	if err == nil && kept {
		err = errKept
	}
	return err
}

// together reports whether one scan from the lowest to the highest position is likely to cost less than a search for each row. span is the
// distance between the two positions. With n shards about one in n of these positions belongs to the shard, so the limit is n times as
// wide.
func together(rows int, span int64, shards int) bool {
	return rows >= 100 && span < int64(rows)*4*int64(shards)
}

func settleAll(items []*item) {
	for _, i := range items {
		i.settled = true
	}
}

// denied reports whether err is the server's error for a missing privilege.
func denied(err error) bool {
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && refusal.Code == "42501"
}

// connect opens the connection if there is none. A new connection begins without a mark, see mark.
func (p *poll) connect(ctx context.Context) error {
	fresh, err := p.session.connect(ctx)
	if fresh { // a mark is not valid after a restart of the server, which ends the connection
		p.mark = p.unmarked()
	}
	return p.check(err)
}

// check returns err. If err is not nil, check closes the connection, and the next use opens a new one.
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
