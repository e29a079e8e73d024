package relay

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

// A pass reads a backlog in several claims. Each claim continues after the last row of the claim before it. While the rows of one claim are
// sent, the next claim is read.
//
// All claims of a pass read only rows that are visible in the snapshot of its first claim. No transaction is open for that: the id of the
// transaction that wrote a row shows whether the snapshot sees the row. So if a row commits late, below the position that the pass has
// reached, no row that was written after it overtakes it. The next pass finds both, lowest first.
//
// A pass leaves out the rows that waited behind failed rows at its first claim. So it ends when one of these failed rows is published or
// removed. It also ends at the first row that is not published.
type pass struct {
	began    time.Time // when its first claim was read
	snapshot string    // snapshot of its first claim
	blocking string    // digest of the blocking rows at its first claim, see mark
	more     bool      // its last claim ended at a limit
	after    int64     // position of the last row of that claim
}

// args returns the named arguments of the next claim of the pass, and adds others.
func (s pass) args(others pg.Args) pg.Args {
	others["after"], others["snapshot"], others["blocking"] = s.after, s.snapshot, s.blocking
	return others
}

// passLength is the longest time that a pass lasts, since a row that commits late waits until the pass ends.
const passLength = time.Second

// An ahead is the next claim of a pass, which is read while the rows of the claim before it are sent.
type ahead struct {
	window *window
	err    error
	done   chan struct{}
	cancel context.CancelFunc
}

// readOn returns the rows of the claim that begin has started to read. It returns none if there is no such claim, or if the pass has ended.
func (p *poll) readOn(ctx context.Context) ([]*item, error) {
	a := p.ahead
	if a == nil {
		return nil, nil
	}
	p.join(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	p.ahead = nil
	switch {
	case a.err != nil:
		return nil, p.check(a.err)
	case time.Since(p.pass.began) > p.passLimit || !p.now.done():
		return nil, nil
	}
	p.now, p.spare = a.window, p.now
	p.pass.more = p.hitLimit(p.now)
	return p.take(), nil
}

// done reports whether all rows of a window are settled.
func (w *window) done() bool {
	for n := range w.items {
		if !w.items[n].settled {
			return false
		}
	}
	return true
}

// take returns the rows of the claim that was read, and starts to read the next claim of the pass.
func (p *poll) take() []*item {
	items := p.now.left(len(p.now.items))
	if p.pass.more && time.Since(p.pass.began) < p.passLimit {
		p.pass.after = items[len(items)-1].row.Position
		p.begin()
	}
	return items
}

// begin starts to read the next claim of the pass, in a goroutine.
func (p *poll) begin() {
	ctx, cancel := context.WithCancel(context.Background()) // ended by join or forget
	a := &ahead{window: p.spare, done: make(chan struct{}), cancel: cancel}
	args := p.pass.args(p.scope().args(p.lease.args(pg.Args{"rows": p.batch, "bytes": claimBytes})))
	p.ahead = a
	go func() {
		defer close(a.done)
		a.err = p.fetch(ctx, a.window, args)
	}()
}

// fetch reads the rows of the pass's next claim into w. It runs in the goroutine that begin has started.
func (p *poll) fetch(ctx context.Context, w *window, args pg.Args) error {
	w.clear()
	rows, err := p.conn.Query(ctx, readOn, pgx.QueryExecModeCacheDescribe, inBinary, args)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := w.scan(rows.RawValues(), p.texts); err != nil {
			return err
		}
	}
	return rows.Err()
}

// join waits until the claim that begin has started is read, so that the connection is free for another statement. If ctx ends first, join
// cancels the claim, which closes the connection.
func (p *poll) join(ctx context.Context) {
	a := p.ahead
	if a == nil {
		return
	}
	select {
	case <-a.done:
	case <-ctx.Done():
		a.cancel()
		<-a.done
	}
	a.cancel()
	if a.err != nil {
		p.ahead = nil
		_ = p.check(a.err) // the next claim begins a new pass
	}
}

// forget cancels the claim that begin has started, and discards its rows. The next claim begins another pass.
func (p *poll) forget() {
	a := p.ahead
	if a == nil {
		return
	}
	p.ahead = nil
	a.cancel()
	<-a.done
}
