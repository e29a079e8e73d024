package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/wal"
)

// errStream says that the stream has ended, or cannot be trusted any more.
var errStream = errors.New("the stream ended")

const (
	reportEvery  = wal.Timeout * 6 / 10
	sampleEvery  = time.Second      // while rows are published
	beatEvery    = 15 * time.Second // while none are
	storeBehind  = 16 << 20         // bytes of others' WAL that are worth a statement
	troubleEvery = time.Second
	reloadEvery  = 10 * time.Second
)

// stream is the source that reads the log. One goroutine reads into windows, the publisher takes them one at a time, and
// what is confirmed to the server follows what is stored.
type stream struct {
	relay  *Relay
	lease  *lease
	conn   *wal.Conn
	ledger ledger
	skip   snapshot // what it sees was published before
	tx     *transactor
	again  wal.LSN // what is told up to here may have been told before

	mu      sync.Mutex
	filling *window
	spare   *window
	err     error // why reading ended
	ready   chan struct{}
	room    chan struct{}

	now      *window // the publisher's
	torn     bool    // the window before it ended within a transaction
	ending   bool    // asked to stop
	tried    time.Time
	reloaded time.Time

	published atomic.Uint64 // the log holds nothing before it that is not published
	passed    chan struct{} // told when that moved
	rows      atomic.Int64  // settled
	reported  atomic.Uint64 // stored, and so acknowledged to the server
	hurry     chan struct{} // report now
	heard     atomic.Int64  // when the server last said something, Unix nanoseconds
}

// stream publishes from the log until idle ends. Where there is no slot that goes on from what was published, the table
// is polled until there is one.
func (r *Relay) stream(idle, term context.Context, p *publisher, st standing) error {
	conn, err := wal.Connect(idle, r.cfg.Pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() { conn.Close() }()
	system, err := conn.Identify(idle)
	if err != nil {
		return err
	}
	slot, err := r.readSlot(idle)
	if err != nil {
		return err
	}
	if err := r.foreign(slot); err != nil {
		return err
	}
	// A relay that was frozen finds its stream ended before it knows that its term is over: it must not end that of the next.
	if _, err := p.lease.renew(idle, r.cfg.Pool, nothing); err != nil {
		return err
	}
	if err := r.free(idle, slot); err != nil {
		return err
	}
	why := unusable(st, slot, system)
	healed := why != "" || st.sweep != nil
	if why != "" {
		st, conn, err = r.pollUntilSlot(idle, term, p, slotPlan{conn, system, st, why})
		if err != nil || idle.Err() != nil {
			return err
		}
	}
	if st.sweep != nil {
		r.repeats("rows that the log does not tell are published from the table")
		if st, err = r.sweep(idle, term, p, st); err != nil || idle.Err() != nil {
			return err
		}
	}
	// From the stored place: the last report before a crash may not have come to the server.
	from := st.lsn
	if p.tx != nil {
		if from, err = p.tx.resume(idle, system, st.lsn, healed); err != nil {
			return err
		}
	}
	if err := conn.Start(idle, r.cfg.Slot, publication, from); err != nil {
		return err
	}
	// Now that the slot is held nobody can replace it: somebody may have done so since it was looked at.
	if slot, err = r.readSlot(idle); err != nil {
		return err
	}
	if why := unusable(st, slot, system); why != "" {
		return fmt.Errorf("slot %s: %s", r.cfg.Slot, why)
	}
	defer p.lease.rests()
	if err := p.lease.streams(idle, r.cfg.Pool, &r.cfg.Slot); err != nil {
		return err
	}
	st.timeline, st.system = system.Timeline, system.ID
	return r.follow(idle, term, p, streaming{conn, st, system.LSN})
}

// slotPlan is what making a slot begins with.
type slotPlan struct {
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
	r.cfg.Log.Warn().Str("slot", r.cfg.Slot).Str("why", plan.why).Msg("slot made anew; the table is polled meanwhile")
	r.repeats("the slot is made anew, and the table is polled meanwhile: " + plan.why)
	// Until there is a slot, this is a relay that polls; it stays one if the slot can't be had.
	st.there, st.source, st.sweep, st.lsn = true, Poll, nil, 0
	st.system, st.timeline = plan.system.ID, plan.system.Timeline
	if err := r.store(idle, p.lease, st); err != nil {
		return st, plan.conn, err
	}
	polling, stop := context.WithCancel(idle)
	defer stop()
	making, cancel := context.WithCancel(idle)
	defer cancel()
	var from wal.LSN
	var conn *wal.Conn
	var maker sync.WaitGroup
	maker.Go(func() {
		defer stop()
		conn, from = r.insistOnSlot(making, plan.conn)
	})
	err := r.poll(polling, term, p, st.published, nil)
	if err != nil {
		cancel()
	}
	maker.Wait()
	if err != nil || idle.Err() != nil {
		return st, conn, err
	}
	if r.givenUp.Load() {
		return st, conn, errGivenUp
	}
	now, err := r.visible(idle)
	if err != nil {
		return st, conn, err
	}
	st.source, st.sweep, st.lsn = WAL, &now.text, from
	return st, conn, r.store(idle, p.lease, st)
}

// insistOnSlot makes a slot, again and again: the server may have none to spare. It returns the connection that made it,
// the last one in any case.
func (r *Relay) insistOnSlot(ctx context.Context, conn *wal.Conn) (*wal.Conn, wal.LSN) {
	for {
		done := context.AfterFunc(ctx, conn.Close)
		from, err := r.makeSlot(ctx, conn)
		if err == nil && done() {
			r.quiet.recovered("slot")
			return conn, from
		}
		conn.Close()
		for {
			if ctx.Err() != nil || r.givenUp.Load() {
				return conn, 0
			}
			r.quiet.failed("slot", err)
			pause(ctx, slotEvery, nil)
			again, failed := wal.Connect(ctx, r.cfg.Pool.Config().ConnConfig)
			if failed == nil {
				conn = again
				break
			}
			err = failed
		}
	}
}

// slotEvery is how often a slot is tried to be made; the table is polled meanwhile.
const slotEvery = 10 * time.Second

// sweep publishes what the stream will not tell. What is left behind rows in trouble is noted, as a stream does.
func (r *Relay) sweep(idle, term context.Context, p *publisher, st standing) (standing, error) {
	source := r.newPoll(p.lease)
	source.published, source.sweep = st.published, st.sweep
	defer source.close()
	p.source = &ending{poll: source}
	if err := r.publish(idle, term, p); err != nil && !errors.Is(err, errSwept) || idle.Err() != nil {
		return st, err
	}
	_, err := r.cfg.Pool.Exec(idle, noteWaiting, p.lease.args(pgx.NamedArgs{"published": st.published, "sweep": st.sweep}))
	if err != nil {
		return st, fmt.Errorf("note rows that wait: %w", err)
	}
	st.published, st.sweep = st.sweep, nil
	return st, r.store(idle, p.lease, st)
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

// streaming is what following a slot begins with.
type streaming struct {
	conn *wal.Conn
	st   standing
	told wal.LSN // nothing behind it was told before
}

// follow streams.
func (r *Relay) follow(idle, term context.Context, p *publisher, from streaming) error {
	conn, st := from.conn, from.st
	s := &stream{
		relay: r, lease: p.lease, conn: conn,
		ledger:  ledger{pool: r.cfg.Pool, lease: p.lease},
		filling: &window{}, spare: &window{},
		ready: make(chan struct{}, 1), room: make(chan struct{}, 1), passed: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
	}
	if st.published != nil {
		var err error
		if s.skip, err = parseSnapshot(*st.published); err != nil {
			return err
		}
	}
	if s.tx = p.tx; s.tx != nil {
		s.again = from.told
		s.published.Store(uint64(s.tx.at.lsn))
		if s.tx.at.lsn > st.lsn {
			s.rows.Add(1) // settled before, and not stored yet
		}
	}
	s.reported.Store(uint64(st.lsn))
	s.heard.Store(time.Now().UnixNano())
	if err := s.ledger.load(idle); err != nil {
		return err
	}
	s.reloaded = time.Now()
	r.cfg.Log.Info().Str("slot", r.cfg.Slot).Stringer("lsn", st.lsn).Msg("streaming")
	tell(r.slotMoved)

	// Each outlives what it serves: rows are settled, then their place is stored, then it is reported.
	placing, endPlace := context.WithCancel(term)
	reporting, endReports := context.WithCancel(term)
	var read, place, reports sync.WaitGroup
	read.Go(s.read)
	place.Go(func() { s.keepPlace(placing, st) })
	reports.Go(func() { s.report(reporting) })
	p.source = s
	err := r.publish(idle, term, p)
	if err == nil {
		err = s.finish(term, p)
	}
	endPlace()
	place.Wait()
	endReports()
	reports.Wait()
	conn.Close()
	s.ended(errStream) // wakes the reader if it waits for room
	read.Wait()
	return err
}

// read fills windows until the connection ends.
func (s *stream) read() {
	layouts := make(map[*wal.Relation]layout)
	known := make(words)
	open, rows := false, false // a transaction is; it has rows of ours
	var asked requests
	read := 0
	for {
		e, err := s.conn.Next()
		if err != nil {
			s.ended(err)
			return
		}
		switch e.Kind {
		case wal.Begin:
			open = true
		case wal.Insert:
			l, seen := layouts[e.Relation]
			if !seen && e.Relation.Namespace == "troupe" && e.Relation.Name == "outbox" {
				if l, err = layoutOf(e.Relation); err != nil {
					s.ended(err)
					return
				}
			}
			if !seen {
				layouts[e.Relation] = l
			}
			if l == nil {
				continue
			}
			w := s.roomy()
			if w == nil {
				return
			}
			if err = w.add(l, e.Tuple, &s.skip, known); err != nil {
				err = fmt.Errorf("row of %s: %w", e.Relation.Name, err)
			}
			rows = true
			s.mu.Unlock()
			if err != nil {
				s.ended(err)
				return
			}
		case wal.Commit:
			open = false
			s.mark(e.LSN, rows)
			rows = false
		case wal.Keepalive:
			if !open {
				s.mark(e.LSN, false)
			}
			if e.ReplyNow {
				if asked.urgent(time.Now()) {
					s.ended(errStopping)
					return
				}
				tell(s.hurry)
			}
		}
		read++
		switch {
		case !s.conn.Buffered():
			s.heard.Store(time.Now().UnixNano())
			tell(s.ready)
		case read%1000 == 0: // a server that is ahead of us may fill the buffer for minutes
			s.heard.Store(time.Now().UnixNano())
		}
	}
}

// errStopping says that the server wants to stop. It waits until everything is confirmed, asks again upon each report, and
// takes no statement any more by which a place could be stored: it would wait for ever.
var errStopping = errors.New("the server is stopping")

// requests are the server's for a report: one in some seconds while it goes on.
type requests struct {
	first time.Time
	n     int
}

func (r *requests) urgent(now time.Time) bool {
	if r.n++; now.Sub(r.first) > time.Second {
		r.first, r.n = now, 1
	}
	return r.n > 10
}

// roomy locks and returns the window to fill when it has room; nil when the stream has ended.
func (s *stream) roomy() *window {
	for {
		s.mu.Lock()
		if s.err != nil {
			s.mu.Unlock()
			return nil
		}
		if !s.filling.full() {
			return s.filling
		}
		s.mu.Unlock()
		tell(s.ready)
		<-s.room
		s.heard.Store(time.Now().UnixNano()) // it was not asked meanwhile
	}
}

func (s *stream) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.filling.full()
}

func (s *stream) mark(upTo wal.LSN, rows bool) {
	s.mu.Lock()
	if rows {
		s.filling.end = upTo
	}
	s.filling.upTo = max(s.filling.upTo, upTo)
	s.filling.whole = len(s.filling.items)
	s.mu.Unlock()
}

func (s *stream) ended(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.mu.Unlock()
	tell(s.ready)
	tell(s.room)
}

func tell(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// claim gives what is left of a window, then rows in trouble that are due, then the next window.
func (s *stream) claim(ctx context.Context, _ time.Duration) ([]*item, error) {
	if s.ending {
		return s.begun(ctx)
	}
	if s.now != nil {
		items, err := s.part()
		if err != nil || len(items) > 0 {
			return items, err
		}
		if err := s.settled(); err != nil {
			return nil, err
		}
	}
	if s.tx != nil {
		if err := s.tx.due(s); err != nil {
			return nil, err
		}
		if s.tx.busy() || s.published.Load() < uint64(s.again) {
			return s.next(ctx)
		}
	}
	if s.ledger.rows > 0 && time.Since(s.tried) >= troubleEvery {
		if time.Since(s.reloaded) >= reloadEvery { // somebody may have discarded some
			if err := s.ledger.load(ctx); err != nil {
				return nil, err
			}
			s.reloaded = time.Now()
		}
		items, err := s.ledger.due(ctx)
		if err != nil || len(items) > 0 {
			return items, err
		}
		s.tried = time.Now()
	}
	return s.next(ctx)
}

// next waits for a window, for as long as rest would.
func (s *stream) next(ctx context.Context) ([]*item, error) {
	most := troubleEvery
	if s.tx != nil {
		most = s.tx.wait(most)
	}
	wait := time.NewTimer(most)
	defer wait.Stop()
	for {
		s.mu.Lock()
		w, err := s.filling, s.err
		if len(w.items) > 0 || w.upTo > 0 {
			s.filling, s.spare = s.spare, nil
			s.now = w
			s.mu.Unlock()
			tell(s.room)
			items, err := s.part()
			if err == nil && len(items) == 0 {
				err = s.settled()
			}
			return items, err
		}
		s.mu.Unlock()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errStream, err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-wait.C:
			return nil, nil
		case <-s.ready:
		}
	}
}

// part is what may go out now of what is left of the window. Under exactly-once those of whole transactions go first: only
// behind them may a Kafka transaction end.
func (s *stream) part() ([]*item, error) {
	w := s.now
	if s.tx != nil && w.upTo > 0 {
		if items := w.left(w.whole); len(items) > 0 {
			s.tx.takes(items)
			return items, nil
		}
		if err := s.reach(); err != nil {
			return nil, err
		}
	}
	items := w.left(len(w.items))
	if s.tx != nil && len(items) > 0 {
		s.tx.takes(items)
	}
	return items, nil
}

// reach is when all of a window's whole transactions are settled.
func (s *stream) reach() error {
	upTo, end := s.now.upTo, s.now.end
	s.now.upTo, s.now.end = 0, 0
	if s.tx != nil {
		return s.tx.reached(s, upTo, end)
	}
	s.passes(upTo)
	return nil
}

// passes says that all before upTo is published.
func (s *stream) passes(upTo wal.LSN) {
	s.published.Store(max(s.published.Load(), uint64(upTo)))
	tell(s.passed)
}

// finish settles what can be when the publisher has ended. Transactions of which something is published are brought to
// an end, since they would be repeated from their first row; under exactly-once nothing of them is visible.
func (s *stream) finish(term context.Context, p *publisher) error {
	if s.tx != nil {
		return s.finishTransaction()
	}
	s.ending = true
	for found := true; found; {
		var err error
		if found, err = p.round(term, term, 0); err != nil {
			break // what is not settled is repeated
		}
	}
	if s.now != nil && len(s.now.left(s.now.whole)) == 0 {
		return s.settled()
	}
	return nil
}

func (s *stream) finishTransaction() error {
	if s.now != nil {
		items, err := s.part()
		if err == nil && len(items) == 0 {
			err = s.settled()
		}
		if err != nil {
			return err
		}
	}
	return s.tx.commit(s)
}

// settled is when all of a window is.
func (s *stream) settled() error {
	w := s.now
	if len(w.items) > 0 || w.upTo > 0 {
		s.torn = len(w.items) > w.whole
	}
	if w.upTo > 0 {
		if err := s.reach(); err != nil {
			return err
		}
	}
	s.rows.Add(int64(len(w.items)))
	w.clear()
	s.now = nil
	s.mu.Lock()
	s.spare = w
	s.mu.Unlock()
	return nil
}

// begun are rows of transactions of which something is published.
func (s *stream) begun(ctx context.Context) ([]*item, error) {
	for {
		if s.now == nil && s.torn {
			if _, err := s.next(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if s.now == nil || !s.torn && !s.now.touched(0) {
			return nil, nil
		}
		w, end := s.now, s.now.whole
		if w.upTo == 0 || w.touched(w.whole) {
			end = len(w.items)
		}
		if items := w.left(end); len(items) > 0 || end < len(w.items) {
			return items, nil
		}
		if err := s.settled(); err != nil {
			return nil, err
		}
	}
}

// touched says whether something from the item on is settled.
func (w *window) touched(from int) bool {
	for n := range w.items[from:] {
		if w.items[from+n].settled {
			return true
		}
	}
	return false
}

// left are those of the first most rows that are not settled.
func (w *window) left(most int) []*item {
	items := make([]*item, 0, most)
	for n := range w.items[:most] {
		if !w.items[n].settled {
			items = append(items, &w.items[n])
		}
	}
	return items
}

func (s *stream) remove(ctx context.Context, acked []*item) error {
	if err := s.ledger.cure(ctx, acked); err != nil {
		return err
	}
	cured := 0
	for _, i := range acked {
		i.settled = true
		if i.troubled {
			cured++
		}
	}
	s.rows.Add(int64(cured))
	return nil
}

func (s *stream) record(ctx context.Context, troubled []trouble) error {
	if err := record(ctx, s.relay.cfg.Pool, s.lease, troubled); err != nil {
		return err
	}
	for _, t := range troubled {
		if !t.item.troubled {
			s.ledger.note(t.item)
			if s.tx != nil {
				s.tx.noted = true
			}
		}
		t.item.settled = true
	}
	return nil
}

// behind is asked of rows of a window; those that are in trouble already are due, and wait for nothing.
func (s *stream) behind(i *item) bool { return !i.troubled && s.ledger.behind(i) }

// rest returns at once: a claim waits by itself.
func (s *stream) rest(context.Context, time.Duration) bool { return false }

// report tells the server what is stored, in time, until ctx ends, and then once more.
func (s *stream) report(ctx context.Context) {
	for more := true; more; {
		pause(ctx, reportEvery, s.hurry)
		more = ctx.Err() == nil
		if quiet := time.Since(time.Unix(0, s.heard.Load())); quiet > 3*wal.Timeout && !s.isFull() {
			s.ended(fmt.Errorf("the server was silent for %s", quiet))
			return
		}
		if err := s.conn.Report(wal.LSN(s.reported.Load())); err != nil {
			s.ended(err)
			return
		}
	}
}

// keepPlace stores how far the log is published, and what is visible as soon as all of that is; only then the server
// hears of it. It ends with ctx, and stores what is published by then.
func (s *stream) keepPlace(ctx context.Context, st standing) {
	var pending *sample // which the stream has not passed yet
	var proven, kept int64
	for stored := time.Now(); s.awaitPlace(ctx, pending, proven); {
		if pending == nil {
			got, err := s.sample(ctx)
			if err != nil {
				s.failed(ctx, "sample", err)
				continue
			}
			s.relay.quiet.recovered("sample")
			pending = &got
		}
		published := s.published.Load()
		fresh := false // a snapshot of rows that the stored one does not see
		if published >= uint64(pending.lsn) {
			fresh = pending.rows != proven
			proven, st.published, pending = pending.rows, &pending.snapshot, nil
		}
		rows := s.rows.Load()
		moved := rows != kept && time.Since(stored) >= sampleEvery
		if !fresh && !moved && published < s.reported.Load()+storeBehind && time.Since(stored) < time.Minute {
			continue
		}
		if err := s.keep(ctx, st, published); err != nil {
			s.failed(ctx, "store", err)
			continue
		}
		s.relay.quiet.recovered("store")
		stored, kept = time.Now(), rows
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	if err := s.keep(last, st, s.published.Load()); err != nil && !errors.Is(err, errLost) {
		s.relay.cfg.Log.Warn().Err(err).Msg("what was published last will be published again")
	}
}

func (s *stream) failed(ctx context.Context, what string, err error) {
	if errors.Is(err, errLost) {
		s.ended(err)
	}
	if ctx.Err() == nil {
		s.relay.quiet.failed(what, err)
	}
}

// awaitPlace waits until another look is due; false when ctx has ended. It is long where nothing is published.
func (s *stream) awaitPlace(ctx context.Context, pending *sample, proven int64) bool {
	if pending != nil {
		pause(ctx, sampleEvery, s.passed)
		return ctx.Err() == nil
	}
	pause(ctx, sampleEvery, nil)
	s.idle(ctx, proven)
	return ctx.Err() == nil
}

// idle waits while nothing is published, for the time between two heartbeats.
func (s *stream) idle(ctx context.Context, rows int64) {
	for end := time.Now().Add(beatEvery); ctx.Err() == nil && time.Now().Before(end) && s.rows.Load() == rows; {
		pause(ctx, time.Until(end), s.passed)
	}
}

// A sample is what was visible, and a place in the log behind it.
type sample struct {
	snapshot string
	lsn      wal.LSN
	rows     int64 // settled before
}

func (s *stream) sample(ctx context.Context) (sample, error) {
	got := sample{rows: s.rows.Load()}
	var lsn string
	var beat bool
	if err := s.relay.cfg.Pool.QueryRow(ctx, takeSample).Scan(&got.snapshot, &lsn, &beat); err != nil {
		return got, fmt.Errorf("take a sample: %w", err)
	}
	var err error
	got.lsn, err = wal.ParseLSN(lsn)
	return got, err
}

// keep stores a place and then reports it.
func (s *stream) keep(ctx context.Context, st standing, published uint64) error {
	published = max(published, s.reported.Load())
	st.lsn = wal.LSN(published)
	if err := s.relay.store(ctx, s.lease, st); err != nil {
		return err
	}
	s.reported.Store(published)
	tell(s.hurry)
	return nil
}
