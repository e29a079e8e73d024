package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/wal"
)

// slotPlan is what making a slot begins with.
type slotPlan struct {
	db     *server
	conn   *wal.Conn
	system wal.System
	st     standing
	why    string
}

// pollUntilSlot makes a slot while the table is polled, and stores what the stream will not tell.
func (r *Relay) pollUntilSlot(idle, term context.Context, p *publisher, plan slotPlan) (standing, *wal.Conn, error) {
	st := plan.st
	if st.there && st.system != plan.system.ID {
		st.published = nil // it speaks of another cluster's transactions: whatever is in the table goes out again
	}
	meanwhile := "the table is polled meanwhile"
	if r.mapped != nil {
		meanwhile = "what the table then holds is read from it"
	}
	said, what := r.cfg.Log.Warn(), "slot made anew; "
	if !plan.st.there { // the first relay that this outbox has: nothing has happened
		said, what = r.cfg.Log.Info(), "slot made; "
	}
	said.Str("slot", r.cfg.Slot).Str("why", plan.why).Msg(what + meanwhile)
	r.repeats("the slot is made anew, and " + meanwhile + ": " + plan.why)
	// Until there is a slot, this is a relay that polls; it stays one if the slot can't be had.
	st.there, st.source, st.sweep, st.lsn = true, Poll, nil, 0
	st.system, st.timeline = plan.system.ID, plan.system.Timeline
	if err := r.store(idle, plan.db, p.lease, st); err != nil {
		return st, plan.conn, err
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
		conn, from, failed = r.insistOnSlot(making, plan.db, plan.conn)
	})
	var err error
	if r.mapped == nil {
		err = r.poll(polling, term, p, scanned{plan.db.id, st.published})
	} else { // it is not ours to delete from
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
	if r.givenUp.Load() {
		return st, conn, errGivenUp
	}
	now, err := r.visible(idle, plan.db)
	if err != nil {
		return st, conn, err
	}
	st.source, st.sweep, st.lsn = WAL, &now.text, from
	return st, conn, r.store(idle, plan.db, p.lease, st)
}

// insistOnSlot makes a slot, again and again: the server may have none to spare. It returns the connection that made it,
// the last one in any case. The error is errServer.
func (r *Relay) insistOnSlot(ctx context.Context, db *server, conn *wal.Conn) (*wal.Conn, wal.LSN, error) {
	for {
		done := context.AfterFunc(ctx, conn.Close)
		from, err := r.makeSlot(ctx, db, conn)
		if err == nil && done() {
			r.quiet.recovered("slot")
			return conn, from, nil
		}
		conn.Close()
		for {
			switch {
			case ctx.Err() != nil || r.givenUp.Load():
				return conn, 0, nil
			case errors.Is(err, errServer):
				return conn, 0, err
			}
			r.quiet.failed("slot", err)
			pause(ctx, slotEvery, nil)
			again, failed := r.connectTo(ctx, db)
			if failed == nil {
				conn = again
				break
			}
			err = failed
		}
	}
}

// connectTo opens a replication connection to a server.
func (r *Relay) connectTo(ctx context.Context, db *server) (*wal.Conn, error) {
	conn, err := wal.Connect(ctx, r.cfg.Pool.Config().ConnConfig)
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

// slotEvery is how often a slot is tried to be made; the table is polled meanwhile.
const slotEvery = 10 * time.Second

// sweep publishes what the stream will not tell. What is left behind rows in trouble is noted, as a stream does.
func (r *Relay) sweep(idle, term context.Context, db *server, p *publisher, st standing) (standing, error) {
	if r.mapped != nil {
		return r.sweepMapped(idle, term, db, p, st)
	}
	source := r.newPoll(p.lease)
	source.of, source.published, source.sweep = db.id, st.published, st.sweep
	defer source.close()
	p.source = &ending{poll: source}
	if err := r.publish(idle, term, p); err != nil && !errors.Is(err, errSwept) || idle.Err() != nil {
		return st, err
	}
	_, err := db.Exec(idle, noteWaiting, p.lease.args(pg.Args{"published": st.published, "sweep": st.sweep}))
	if err != nil {
		return st, fmt.Errorf("note rows that wait: %w", err)
	}
	st.published, st.sweep = st.sweep, nil
	return st, r.store(idle, db, p.lease, st)
}

// errSwept says that a sweep found nothing more.
var errSwept = errors.New("swept")

// ending is a poll that ends with the first claim that finds nothing.
type ending struct{ *poll }

func (e *ending) claim(ctx context.Context, _ time.Duration) ([]*item, error) {
	items, err := e.poll.claim(ctx, 0)
	if err == nil && len(items) == 0 {
		return nil, errSwept
	}
	return items, err
}
