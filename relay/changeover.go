package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/wal"
)

// A slotPlan holds the arguments of pollUntilSlot: connections to one server process, its system, the stored state, and the reason why a
// slot is created.
type slotPlan struct {
	db     *server
	conn   *wal.Conn
	system wal.System
	st     storedState
	why    string
}

// pollUntilSlot creates a slot. Meanwhile the relay polls the table, unless it is a mapped table. Then pollUntilSlot stores the LSN of the
// slot, and a snapshot of the rows that the slot does not deliver. sweep publishes the rows of that snapshot which are not published yet.
func (r *Relay) pollUntilSlot(idle, term context.Context, p *publisher, plan slotPlan) (storedState, *wal.Conn, error) {
	st := plan.st
	if st.there && st.system != plan.system.ID {
		st.published = nil // its transaction ids are another cluster's: all rows of the table are published, perhaps again
	}
	meanwhile := "the table is polled meanwhile"
	if r.mapped != nil {
		meanwhile = "the rows of the table are read from it"
	}
	entry, creating := r.cfg.Log.Warn(), "creating the slot again; "
	if !plan.st.there { // the first relay of this outbox: no slot was lost
		entry, creating = r.cfg.Log.Info(), "creating the slot; "
	}
	entry.Str("slot", r.cfg.Slot).Str("why", plan.why).Msg(creating + meanwhile)
	r.repeats("the slot is created again, and " + meanwhile + ": " + plan.why)
	// Until the slot exists, the stored source is poll. If this relay dies meanwhile, the next one creates the slot again.
	st.there, st.source, st.sweep, st.lsn = true, Poll, nil, 0
	st.system, st.timeline = plan.system.ID, plan.system.Timeline
	if err := r.store(idle, plan.db, p.lease, st); err != nil {
		return st, plan.conn, err
	}
	var before snapshot
	var err error
	if r.mapped != nil {
		if before, err = visible(idle, plan.db); err != nil {
			return st, plan.conn, err
		}
	}
	polling, stop := context.WithCancel(idle)
	defer stop()
	making, cancel := context.WithCancel(idle)
	defer cancel()
	var from wal.LSN
	var conn *wal.Conn
	var maker sync.WaitGroup
	var failed error
	maker.Go(func() {
		defer stop()
		conn, from, failed = r.insistOnSlot(making, plan.db, p.lease, plan.conn)
	})
	if r.mapped == nil {
		err = r.poll(polling, term, p, streamedRows{plan.db.id, st.published})
	} else { // the relay may not delete rows of that table, so it cannot poll it
		<-polling.Done()
	}
	if err != nil {
		cancel()
	}
	maker.Wait()
	if err == nil {
		err = failed
	}
	if err != nil || idle.Err() != nil {
		return st, conn, err
	}
	if r.slotGivenUp.Load() {
		return st, conn, errGivenUp
	}
	now, err := visible(idle, plan.db)
	if err != nil {
		return st, conn, err
	}
	if r.mapped != nil {
		if err := r.mapped.clearCommits(idle, plan.db, p.lease); err != nil {
			return st, conn, err
		}
	}
	st.source, st.sweep, st.lsn = WAL, &now.text, from
	if err := r.store(idle, plan.db, p.lease, st); err != nil {
		return st, conn, err
	}
	if r.mapped != nil {
		// before belongs to this slot only. It is nil if another relay created the slot that is swept.
		r.mapped.swept = sweepProgress{server: plan.db.id, sweep: now.text, before: &before}
	}
	r.cfg.Log.Info().Str("slot", r.cfg.Slot).Stringer("lsn", from).Msg("slot created")
	return st, conn, nil
}

// insistOnSlot creates a slot. The server may have no free slot now, so insistOnSlot tries again every slotEvery, until it succeeds, ctx
// ends or giveUpSlot was called. It returns the connection that created the slot. If no slot was created, it returns the last connection
// and the LSN 0. Its only errors are errServer, errLost and errOwned.
func (r *Relay) insistOnSlot(ctx context.Context, db *server, l *lease, conn *wal.Conn) (*wal.Conn, wal.LSN, error) {
	for {
		done := context.AfterFunc(ctx, conn.Close)
		slow := time.AfterFunc(heldAfter, func() { r.reportNoSlot(errOpenTransactions) })
		from, err := r.makeSlot(ctx, db, l, conn)
		slow.Stop()
		if err == nil && done() {
			r.quiet.recovered("slot")
			return conn, from, nil
		}
		conn.Close()
		for {
			switch {
			case ctx.Err() != nil || r.slotGivenUp.Load():
				return conn, 0, nil
			case errors.Is(err, errServer), errors.Is(err, errLost), errors.Is(err, errOwned):
				return conn, 0, err
			}
			r.quiet.failed("slot", err)
			r.reportNoSlot(err)
			sleep(ctx, slotEvery, nil)
			again, failed := r.connectTo(ctx, db)
			if failed == nil {
				conn = again
				break
			}
			err = failed
		}
	}
}

// errOpenTransactions is the probable reason why a slot is not there yet, if its creation takes longer than heldAfter. The server may also be
// slow to answer.
var errOpenTransactions = errors.New("the slot is being created. Probably the server waits for the end of each transaction that is open: " +
	"see xact_start in pg_stat_activity, and pg_prepared_xacts")

// reportNoSlot reports in Status and in Ready why there is no slot yet. It does so for a mapped table only: troupe.outbox is polled
// meanwhile.
func (r *Relay) reportNoSlot(why error) {
	if r.mapped != nil {
		r.state.failed(why)
	}
}

// connectTo opens a replication connection to the server process db. It returns errServer if the address leads to another process.
func (r *Relay) connectTo(ctx context.Context, db *server) (*wal.Conn, error) {
	conn, err := wal.Connect(ctx, r.cfg.Pool.Config())
	if err != nil {
		return nil, err
	}
	system, err := conn.Identify(ctx)
	if err == nil && system.Server != db.id {
		err = errServer
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// slotEvery is the time between two attempts to create a slot.
const slotEvery = 10 * time.Second

// sweep publishes the rows of the table that a new slot will not deliver. Then it records as waiting the rows of the table that wait behind
// failed rows. A stream would record a waiting row when it delivers the row, but the slot does not deliver these rows. If the relay dies before the
// end of the sweep is stored, the next relay sweeps again: it finds the rows that failed or wait, and recording them again changes nothing.
func (r *Relay) sweep(idle, term context.Context, db *server, p *publisher, st storedState) (storedState, error) {
	if r.mapped != nil {
		return r.sweepMapped(idle, term, db, p, st)
	}
	source := r.newPoll(p.lease)
	source.serverID, source.published, source.sweep = db.id, st.published, st.sweep
	defer source.close()
	p.source = &ending{poll: source}
	if err := r.publish(idle, term, p); err != nil && !errors.Is(err, errSwept) || idle.Err() != nil {
		return st, err
	}
	_, err := db.Exec(idle, recordWaiting, p.lease.args(pg.Args{"published": st.published, "sweep": st.sweep}))
	if err != nil {
		return st, fmt.Errorf("record rows that wait: %w", err)
	}
	st.published, st.sweep = st.sweep, nil
	return st, r.store(idle, db, p.lease, st)
}

// errSwept ends a sweep that found no more rows.
var errSwept = errors.New("swept")

// An ending is the source of a sweep of troupe.outbox: a poll that ends. Its claim returns errSwept when it finds no row, or only rows that
// failed before. Such rows are left to the stream. If the sweep tried them again, it might never end, since at any time a failed row may be
// due.
type ending struct{ *poll }

func (e *ending) claim(ctx context.Context, _ time.Duration) ([]*item, error) {
	items, err := e.poll.claim(ctx, 0)
	if err != nil {
		return nil, err
	}
	unfailed := slices.ContainsFunc(items, func(i *item) bool { return !i.failedBefore })
	if !unfailed && !e.pass.more {
		return nil, errSwept
	}
	return items, nil
}
