package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-go/troupe/internal/wal"
)

// errStream says that the stream has ended, or cannot be trusted any more.
var errStream = errors.New("the stream ended")

const (
	maxSilence   = 3 * wal.Timeout // after which the server is asked, over another connection, whether it still streams
	maxAnswer    = reportEvery / 2 // for which that takes: reports go on
	reportEvery  = wal.Timeout * 6 / 10
	sampleEvery  = time.Second      // while rows are published
	beatEvery    = 15 * time.Second // while none are
	storeBehind  = 16 << 20         // bytes of others' WAL that are worth a statement
	troubleEvery = time.Second
	reloadEvery  = 10 * time.Second
)

// breath is from one window with rows to the next, unless that is full, and how long from its first row one waits that ends
// within a transaction. Where rows come one by one and fast, a send of its own
// for each takes so much of the machine, the broker's work and its consumers' included, that the server falls behind with the
// log: at 2,000 rows/s on two cores the 99th percentile was 33 ms (bench/relay --only latency).
const breath = time.Millisecond

// stream is the source that reads the log. One goroutine reads into windows, the publisher takes them one at a time, and
// what is confirmed to the server follows what is stored.
type stream struct {
	relay       *Relay
	lease       *lease
	db          *server // that conn streams from
	conn        *wal.Conn
	ledger      ledger
	mapped      *mappedReader // nil: the table is troupe.outbox
	skip        snapshot      // what it sees was published before
	tx          *transactor
	publication string   // that the stored checkpoint belongs to
	from        wal.LSN  // where it began
	again       wal.LSN  // what is told up to here may have been told before
	discards    discards // of rows up to there

	commit wal.LSN // of the transaction that is read

	mu      sync.Mutex
	filling *window
	spare   *window
	err     error // why reading ended
	ready   chan struct{}
	room    chan struct{}

	now      *window   // the publisher's
	taken    time.Time // the last with rows
	torn     bool      // the window before it ended within a transaction
	ending   bool      // asked to stop
	tried    time.Time
	reloaded time.Time
	reload   time.Duration // how long after

	published atomic.Uint64 // the log holds nothing before it that is not published
	passed    chan struct{} // told when that moved
	rows      atomic.Int64  // settled
	reported  atomic.Uint64 // stored, and so acknowledged to the server
	hurry     chan struct{} // report now
	heard     atomic.Int64  // when the server last said something, Unix nanoseconds
}

// stream publishes from the log until idle ends. Where there is no slot that goes on from what was published, the table
// is polled until there is one.
func (r *Relay) stream(idle, term context.Context, p *publisher) error {
	conn, err := wal.Connect(idle, r.cfg.Pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() { conn.Close() }()
	system, err := conn.Identify(idle)
	if err != nil {
		return err
	}
	db, err := r.bind(system.Server)
	if err != nil {
		return err
	}
	defer db.Close()
	st, err := r.readState(idle, db)
	if err != nil {
		return err
	}
	slot, err := r.readSlot(idle, db)
	if err != nil {
		return err
	}
	if err := r.foreign(slot); err != nil {
		return err
	}
	// A relay that was frozen finds its stream ended before it knows that its term is over: it must not end that of the next.
	if _, err := p.lease.renew(idle, r.pool, nothing); err != nil {
		return err
	}
	if r.mapped != nil && !st.there {
		if st, err = r.takeOver(idle, db, p.lease, slot, system); err != nil {
			return err
		}
	}
	if err := r.free(idle, db, slot); err != nil {
		return err
	}
	now, err := r.sample(idle, db)
	if err != nil {
		return err
	}
	why := unusable(st, slot, system)
	if why == "" {
		if why, err = r.altered(st, now.publication); err != nil {
			return err
		}
	}
	st.publication = &now.publication
	if err := r.stuck.why(st.lsn); err != nil && why == "" {
		if r.mapped != nil { // its rows may be in the log alone
			return fmt.Errorf("%w; rows that are no longer in table %s are in slot %s alone: drop it when they may be lost, "+
				"and what the table holds is published", err, r.mapped, r.cfg.Slot)
		}
		why = err.Error()
	}
	healed := why != "" || st.sweep != nil
	if why != "" {
		st, conn, err = r.pollUntilSlot(idle, term, p, slotPlan{db, conn, system, st, why})
		if err != nil || idle.Err() != nil {
			return err
		}
	}
	if st.sweep != nil {
		r.repeats("rows that the log does not tell are published from the table")
		if st, err = r.sweep(idle, term, db, p, st); err != nil || idle.Err() != nil {
			return err
		}
	}
	// From the stored checkpoint: the last report before a crash may not have come to the server.
	from := st.lsn
	if p.tx != nil {
		p.tx.db = db
		if from, err = p.tx.resume(idle, system, st.lsn, healed); err != nil {
			return err
		}
	}
	if err := conn.Start(idle, r.cfg.Slot, r.cfg.Publication, from); err != nil {
		return err
	}
	// Now that the slot is held nobody can replace it: somebody may have done so since it was looked at.
	if slot, err = r.readSlot(idle, db); err != nil {
		return err
	}
	if why := unusable(st, slot, system); why != "" {
		return fmt.Errorf("slot %s: %s", r.cfg.Slot, why)
	}
	defer p.lease.rests()
	if err := p.lease.streams(idle, r.pool, &r.cfg.Slot); err != nil {
		return err
	}
	if err := r.warnOfStandby(idle, db); err != nil {
		return err
	}
	st.timeline, st.system = system.Timeline, system.ID
	told, err := r.flushed(idle, db)
	if err != nil {
		return err
	}
	began := st.lsn
	err = r.follow(idle, term, p, streaming{db, conn, st, from, told})
	r.stuck.ended(began, err)
	return err
}

// flushed returns the end of the log on the server's disk: no stream has read more of it.
func (r *Relay) flushed(ctx context.Context, db querier) (wal.LSN, error) {
	var text string
	if err := db.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&text); err != nil {
		return 0, fmt.Errorf("read the end of the log: %w", err)
	}
	return wal.ParseLSN(text)
}

// streaming is what following a slot begins with.
type streaming struct {
	db   *server
	conn *wal.Conn
	st   standing
	from wal.LSN
	told wal.LSN // nothing behind it was told before
}

// follow streams.
func (r *Relay) follow(idle, term context.Context, p *publisher, from streaming) error {
	conn, st := from.conn, from.st
	s := &stream{
		relay: r, lease: p.lease, db: from.db, conn: conn, publication: *st.publication,
		from: from.from, again: from.told,
		ledger:  r.newLedger(from.db, p.lease),
		filling: &window{}, spare: &window{},
		ready: make(chan struct{}, 1), room: make(chan struct{}, 1), passed: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
	}
	if r.mapped != nil {
		s.mapped = &mappedReader{mappedTable: r.mapped, bound: make(map[uint32]boundRelation)}
	}
	if st.published != nil {
		var err error
		if s.skip, err = parseSnapshot(*st.published); err != nil {
			return err
		}
	}
	if s.tx = p.tx; s.tx != nil {
		s.published.Store(uint64(s.tx.at.lsn))
		if s.tx.at.lsn > st.lsn {
			s.rows.Add(1) // settled before, and not stored yet
		}
	}
	s.reported.Store(uint64(st.lsn))
	s.heard.Store(time.Now().UnixNano())
	if err := s.load(idle); err != nil {
		return err
	}
	s.reloaded, s.reload = time.Now(), reloadEvery
	r.cfg.Log.Info().Str("slot", r.cfg.Slot).Stringer("lsn", st.lsn).Msg("streaming")
	tell(r.slotMoved)

	// Each outlives what it serves: rows are settled, then their checkpoint is stored, then it is reported.
	storing, endStoring := context.WithCancel(term)
	reporting, endReports := context.WithCancel(term)
	var read, checkpoints, reports sync.WaitGroup
	read.Go(s.read)
	checkpoints.Go(func() { s.keepCheckpoint(storing, st) })
	reports.Go(func() { s.report(reporting) })
	p.source = s
	err := r.publish(idle, term, p)
	if err == nil {
		err = s.finish(term, p)
	}
	endStoring()
	checkpoints.Wait()
	endReports()
	reports.Wait()
	conn.Close()
	s.ended(errStream) // wakes the reader if it waits for room
	read.Wait()
	return err
}
