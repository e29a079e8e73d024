package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-go/troupe/internal/mapping"
	"github.com/troupe-go/troupe/internal/wal"
)

// errStream means that the stream has ended, or that its rows may be incomplete.
var errStream = errors.New("the stream ended")

const (
	maxSilence   = 3 * wal.Timeout      // silence after which the relay checks over another connection whether the server still streams
	maxAnswer    = reportEvery / 2      // time limit of that check, so that reports continue
	reportEvery  = wal.Timeout * 6 / 10 // time between two reports; the server ends the stream after wal.Timeout without one
	sampleEvery  = time.Second          // time between two samples while rows are published
	beatEvery    = 15 * time.Second     // time between two samples while no rows are published; each advances the slot of an idle outbox
	storeBehind  = 16 << 20             // bytes of log without rows of the outbox after which the checkpoint is stored
	failureEvery = time.Second          // time between two claims of failed rows that are due
	reloadEvery  = 10 * time.Second     // least time between two loads of the ledger
)

// breath is the shortest time between two windows with rows, unless a window is full. A window that ends within a transaction also waits
// for the rest of the transaction, for at most breath from the window's first row.
//
// Without these waits each row is a send of its own when rows arrive one by one and fast. On a machine that also runs the broker and the
// consumers, so many sends slow the server down, and it sends the log late. At 2,000 rows/s on two cores the 99th percentile of the latency
// was 33 ms without the waits (bench/relay --only latency).
const breath = time.Millisecond

// A stream is the source that reads the log. It has three goroutines: read reads rows into windows, storeCheckpoints stores checkpoints,
// and report confirms them to the server. The publisher claims the rows of one window at a time.
type stream struct {
	relay       *Relay
	lease       *lease
	db          *server // server process that conn streams from
	conn        *wal.Conn
	ledger      ledger
	mapped      *mappedReader // nil: the table is troupe.outbox
	converter   *converter    // nil: the server converts text
	skip        snapshot      // rows that it sees were published before this stream
	tx          *transactor   // nil: at-least-once delivery
	publication string        // publication that the stored checkpoint belongs to
	from        wal.LSN       // first LSN of the stream
	repeatsUpTo wal.LSN       // LSN up to which an earlier stream may have delivered rows
	anyDiscards bool          // whether rows were discarded that the log may repeat

	commit   wal.LSN   // commit LSN of the transaction that is being read
	number   int64     // number of rows of the mapped table that were read from this transaction
	commitAt time.Time // time of this transaction's commit

	mu      sync.Mutex
	filling *window       // window into which read reads
	spare   *window       // empty window; nil: the publisher has it
	err     error         // error with which the stream has ended
	over    chan struct{} // closed when the stream has ended
	ready   chan struct{} // signalled when more of the log is in filling, or the stream has ended
	room    chan struct{} // signalled when filling has room, or the stream has ended

	now      *window       // window whose rows are published; nil: none
	taken    time.Time     // when the last window with rows was taken
	torn     bool          // the last window that is settled ended within a transaction
	ending   bool          // the relay stops: only transactions of which some rows are published are continued
	tried    time.Time     // when a claim of failed rows last found none
	retried  bool          // the last claim returned failed rows
	reloaded time.Time     // when the ledger was last loaded
	reload   time.Duration // least time between two loads

	published      atomic.Uint64 // LSN before which all rows of the log are published or recorded
	publishedMoved chan struct{} // signalled when published advances
	rows           atomic.Int64  // settled rows
	storedLSN      atomic.Uint64 // LSN that is stored
	confirmedLSN   atomic.Uint64 // LSN that report confirms to the server; not after storedLSN
	copied         bool          // standbys copy the slot
	held           heldConfirm   // LSN that is to be confirmed next
	hurry          chan struct{} // signals that the LSN must be confirmed at once
	received       atomic.Int64  // when the server last sent something, Unix nanoseconds
	watched        time.Time     // when the relay last checked whether the server holds the log back
	sent           atomic.Uint64 // LSN up to which the server has sent the log
	sentAt         atomic.Int64  // when the server last sent a part of the log, Unix nanoseconds
}

// stream publishes from the log until idle ends. If no slot continues at the stored checkpoint, stream first creates a slot, and publishes
// the rows that this slot does not deliver.
func (r *Relay) stream(idle, term context.Context, p *publisher) error {
	conn, err := wal.Connect(idle, r.cfg.Pool.Config())
	if err != nil {
		return err
	}
	defer func() { conn.Close() }()
	system, err := conn.Identify(idle)
	if err != nil {
		return err
	}
	db, err := bind(r.pool, system.Server)
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
	if err := r.unfit(slot); err != nil {
		return err
	}
	// A relay that was frozen notices the end of its stream before it knows that its term is over. Without this renewal it would end the
	// stream of the next relay, by freeSlot.
	if _, err := p.lease.renew(idle, r.pool, nothing); err != nil {
		return err
	}
	if r.mapped != nil {
		if err := r.mapped.checkLeftSlots(idle, r, db, st); err != nil {
			return err
		}
		if err := r.mapped.checkSlotOrigin(st, slot, system); err != nil {
			return fmt.Errorf("slot %s: %w", r.cfg.Slot, err)
		}
	}
	if r.mapped != nil && !st.there {
		if st, err = r.takeOver(idle, db, p.lease, slot, system); err != nil {
			return err
		}
	}
	if err := r.freeSlot(idle, db, slot); err != nil {
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
			return fmt.Errorf("%w; rows that are no longer in table %s are in slot %s alone: if you can lose them, drop the slot, "+
				"and the relay publishes the rows that the table holds", err, r.mapped, r.cfg.Slot)
		}
		why = err.Error()
	}
	healed := why != "" || st.sweep != nil
	if why == "" {
		if err := r.setSlotFailover(idle, db, conn, slot); err != nil {
			return err
		}
	} else {
		st, conn, err = r.pollUntilSlot(idle, term, p, slotPlan{db, conn, system, st, why})
		if err != nil || idle.Err() != nil {
			return err
		}
	}
	if st.sweep != nil {
		r.repeats("rows that the log does not have are published from the table")
		if st, err = r.sweep(idle, term, db, p, st); err != nil || idle.Err() != nil {
			return err
		}
	}
	// The stream begins at the stored checkpoint: the last report before a crash may not have reached the server.
	from := st.lsn
	if p.tx != nil {
		p.tx.db = db
		if from, err = p.tx.resume(idle, conn, system, st.lsn, healed); err != nil {
			r.stuck.countEnd(st.lsn, err)
			return err
		}
	}
	var text *converter
	if r.asStored {
		if text, err = r.newConverter(idle, db); err != nil {
			return err
		}
		if err := conn.KeepEncoding(idle); err != nil {
			return err
		}
	}
	if r.mapped != nil && r.mapped.asText {
		if err := conn.SendText(idle, mapping.TextSettings); err != nil {
			return err
		}
	}
	if err := conn.Start(idle, r.cfg.Slot, r.cfg.Publication, from); err != nil {
		return err
	}
	// The slot may have been replaced between readSlot and Start. It cannot be replaced while it is in use, so it is read again now.
	if slot, err = r.readSlot(idle, db); err != nil {
		return err
	}
	if why := unusable(st, slot, system); why != "" {
		return fmt.Errorf("slot %s: %s", r.cfg.Slot, why)
	}
	defer p.lease.clearSlot()
	if err := p.lease.storeSlot(idle, r.pool, &r.cfg.Slot); err != nil {
		return err
	}
	if err := r.warnOfStandby(idle, db); err != nil {
		return err
	}
	st.timeline, st.system = system.Timeline, system.ID
	end, err := flushed(idle, db)
	if err != nil {
		return err
	}
	began := st.lsn
	err = r.follow(idle, term, p, streaming{db, conn, slot, st, from, end, text})
	if !r.asStored && unconvertible(err) {
		r.readInDatabaseEncoding(err)
		return errAgain
	}
	if errors.Is(err, errNeedsText) {
		r.mapped.asText = true
		r.cfg.Log.Info().Stringer("table", r.mapped).Msg("a column has another type: the server sends the rows as text from here on")
		return errAgain
	}
	r.stuck.countEnd(began, err)
	return err
}

// flushed returns the end of the log on the server's disk. No stream has read beyond it.
func flushed(ctx context.Context, db querier) (wal.LSN, error) {
	var text string
	if err := db.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&text); err != nil {
		return 0, fmt.Errorf("read the end of the log: %w", err)
	}
	return wal.ParseLSN(text)
}

// A streaming holds the arguments of follow: a stream that was just started.
type streaming struct {
	db      *server
	conn    *wal.Conn
	slot    slotState // as it was when the stream had begun
	st      storedState
	from    wal.LSN
	flushed wal.LSN    // end of the log when the stream began: no earlier stream has delivered a row after it
	text    *converter // nil: the server converts text
}

// follow publishes the rows of a stream until idle or the stream ends.
func (r *Relay) follow(idle, term context.Context, p *publisher, from streaming) error {
	conn, st := from.conn, from.st
	s := &stream{
		relay: r, lease: p.lease, db: from.db, conn: conn, publication: *st.publication,
		from: from.from, repeatsUpTo: from.flushed, converter: from.text,
		ledger:  r.newLedger(from.db, p.lease),
		filling: &window{}, spare: &window{},
		over: make(chan struct{}), ready: make(chan struct{}, 1), room: make(chan struct{}, 1), publishedMoved: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
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
			s.rows.Add(1) // rows were published up to this checkpoint, which is not stored in Postgres yet
		}
	}
	s.storedLSN.Store(uint64(st.lsn))
	s.confirmedLSN.Store(uint64(from.slot.confirmed))
	s.copied = from.slot.failover != nil && *from.slot.failover
	s.received.Store(time.Now().UnixNano())
	s.sent.Store(uint64(st.lsn))
	s.sentAt.Store(time.Now().UnixNano())
	if err := s.load(idle); err != nil {
		return err
	}
	s.reloaded, s.reload = time.Now(), reloadEvery
	r.cfg.Log.Info().Str("slot", r.cfg.Slot).Stringer("lsn", st.lsn).Msg("streaming")
	tell(r.slotMoved)

	// The goroutines end in this order: the publisher settles its last rows, then their checkpoint is stored, then it is confirmed.
	storing, endStoring := context.WithCancel(term)
	reporting, endReports := context.WithCancel(term)
	var read, checkpoints, reports sync.WaitGroup
	read.Go(s.read)
	checkpoints.Go(func() { s.storeCheckpoints(storing, st) })
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
	s.endWith(errStream) // wakes the reader if it waits for room
	read.Wait()
	return err
}
