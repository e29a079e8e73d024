package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-go/troupe/internal/wal"
)

// claim returns the unsettled rows of the window, or failed rows that are due, or the rows of the next window, in this order.
func (s *stream) claim(ctx context.Context, _ time.Duration) ([]*item, error) {
	items, err := s.claimRows(ctx)
	if errors.Is(err, errPaused) {
		return nil, nil
	}
	return items, err
}

// errPaused means that the relay is paused, and that no Kafka transaction is open. It is used under exactly-once only.
var errPaused = errors.New("paused")

// checkPause returns errPaused if the relay is paused and no Kafka transaction is open, since the next row would begin one.
func (s *stream) checkPause() error {
	if s.tx != nil && !s.tx.busy() && s.relay.gate.closed() {
		return errPaused
	}
	return nil
}

// claimRows does the same as claim, but returns errPaused if the relay is paused.
func (s *stream) claimRows(ctx context.Context) ([]*item, error) {
	if s.ending {
		return s.begun(ctx)
	}
	if s.now != nil {
		items, err := s.part(ctx)
		if err != nil || len(items) > 0 {
			return items, err
		}
		if err := s.releaseWindow(); err != nil {
			return nil, err
		}
	}
	if s.tx != nil {
		if err := s.tx.commitIfDue(s); err != nil {
			return nil, err
		}
		if err := s.checkPause(); err != nil {
			return nil, err
		}
		if s.tx.busy() || s.published.Load() < uint64(s.repeatsUpTo) {
			return s.next(ctx)
		}
	}
	// After a claim of failed rows, new rows are claimed, since more failed rows may be due than one claim holds.
	if s.retried && s.holdsRows() {
		s.retried = false
		return s.next(ctx)
	}
	if items, err := s.due(ctx); err != nil || len(items) > 0 {
		return items, err
	}
	return s.next(ctx)
}

// due returns failed rows that are due. If it finds none, it looks again after failureEvery.
func (s *stream) due(ctx context.Context) ([]*item, error) {
	if s.ledger.rows == 0 || time.Since(s.tried) < failureEvery {
		return nil, nil
	}
	if time.Since(s.reloaded) >= s.reload { // an operator may have discarded failed rows
		began := time.Now()
		if err := s.load(ctx); err != nil {
			return nil, err
		}
		s.reloaded = time.Now()
		s.reload = max(reloadEvery, 100*s.reloaded.Sub(began)) // so that loads take at most a hundredth of the time
	}
	items, err := s.ledger.due(ctx)
	if err != nil || len(items) > 0 {
		s.retried = true
		return items, err
	}
	s.tried = time.Now()
	return nil, nil
}

// holdsRows reports whether rows were read that the publisher has not taken yet.
func (s *stream) holdsRows() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.filling.items) > 0
}

// next waits for the next window, and returns its rows. It returns no rows after failureEvery, or earlier if a Kafka transaction must be
// committed.
func (s *stream) next(ctx context.Context) ([]*item, error) {
	most := failureEvery
	if s.tx != nil {
		most = s.tx.wait(most)
	}
	wait := time.NewTimer(most)
	defer wait.Stop()
	for {
		s.mu.Lock()
		w, err := s.filling, s.err
		if len(w.items) > 0 || w.upTo > 0 {
			if delay, until := s.waits(w); delay > 0 {
				s.mu.Unlock()
				sleep(ctx, delay, until)
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				continue
			}
			s.filling, s.spare = s.spare, nil
			s.now = w
			if len(w.items) > 0 { // not a keepalive, after which a row may come at once
				s.taken = time.Now()
			}
			s.mu.Unlock()
			tell(s.room)
			items, err := s.part(ctx)
			if err == nil && len(items) == 0 {
				err = s.releaseWindow()
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

// waits returns how long the publisher must still wait before it takes w, see breath. If until is not nil, a signal on until ends the wait:
// more rows were read. A window that ends within a transaction waits for the rest of the transaction, which arrives row by row. Otherwise
// the first rows of each transaction would be a send of their own.
func (s *stream) waits(w *window) (delay time.Duration, until chan struct{}) {
	if w.full() {
		return 0, nil
	}
	if delay = breath - time.Since(s.taken); delay <= 0 && len(w.items) > w.whole {
		delay, until = breath-time.Since(w.begun), s.ready
	}
	return delay, until
}

// part returns the unsettled rows of the current window. Under exactly-once it first returns the rows of complete Postgres transactions.
// When these are settled, it calls reach, which may commit the Kafka transaction. After that it returns the rows of the incomplete Postgres
// transaction. If the Kafka transaction was committed, failed rows that are due come before these rows: under load every window may end within
// a transaction.
func (s *stream) part(ctx context.Context) ([]*item, error) {
	w := s.now
	if err := s.skipDiscarded(ctx, w); err != nil {
		return nil, err
	}
	if s.tx != nil && w.upTo > 0 {
		if items := w.left(w.whole); len(items) > 0 {
			s.tx.takes()
			return items, nil
		}
		if err := s.reach(); err != nil {
			return nil, err
		}
	}
	items := w.left(len(w.items))
	if s.tx != nil && len(items) > 0 {
		if err := s.checkPause(); err != nil {
			s.rows.Add(1) // count a row, so that storeCheckpoints stores the checkpoint soon
			return nil, err
		}
		if !s.tx.busy() && !s.retried && !s.ending && s.published.Load() >= uint64(s.repeatsUpTo) {
			if failed, err := s.due(ctx); err != nil || len(failed) > 0 {
				return failed, err
			}
		}
		s.retried = false
		s.tx.takes()
	}
	return items, nil
}

// reach records that all complete transactions of the window are settled: it advances s.published, or passes their LSN to the transactor.
// part and releaseWindow call it.
func (s *stream) reach() error {
	upTo, end := s.now.upTo, s.now.end
	s.now.upTo, s.now.end = 0, commitEnd{}
	if s.tx != nil {
		if s.now.whole > 0 {
			s.tx.rememberLast(&s.now.items[s.now.whole-1])
		}
		return s.tx.reached(s, upTo, end)
	}
	s.advancePublished(upTo)
	return nil
}

// advancePublished advances s.published to upTo, and wakes storeCheckpoints. All rows before upTo are published, or recorded as failed.
func (s *stream) advancePublished(upTo wal.LSN) {
	s.published.Store(max(s.published.Load(), uint64(upTo)))
	s.relay.stuck.resetAfter(upTo)
	tell(s.publishedMoved)
}

// finish publishes the remaining rows of transactions of which some rows are published. follow calls it when the relay stops, after the
// last round. Otherwise the next relay would repeat such transactions from their first row. During a pause finish publishes nothing. Under
// exactly-once it need not, since consumers of committed messages see no row of these transactions yet.
func (s *stream) finish(term context.Context, p *publisher) error {
	s.ending = true
	if s.tx != nil {
		return s.finishTransaction(term)
	}
	// The loop also ends with the term. The client may then still hold records of the last send, and another round would overwrite their memory.
	for found := true; found && term.Err() == nil && !s.relay.gate.closed(); {
		var err error
		if found, err = p.round(term, term, 0); err != nil { // rows that are not settled are published again by the next relay
			s.relay.state.failed(err)
			s.relay.cfg.Log.Warn().Err(err).Msg("stopped within a transaction: rows of it that were published will be published again")
			break
		}
	}
	if s.now != nil && len(s.now.left(s.now.whole)) == 0 {
		return s.releaseWindow()
	}
	return nil
}

// finishTransaction commits the Kafka transaction if it contains only complete Postgres transactions.
func (s *stream) finishTransaction(term context.Context) error {
	if s.now != nil {
		items, err := s.part(term)
		if err == nil && len(items) == 0 {
			err = s.releaseWindow()
		}
		if err != nil && !errors.Is(err, errPaused) {
			return err
		}
	}
	return s.tx.commit(s)
}

// releaseWindow gives the window back to the goroutine of read. It is called when all rows of the window are settled.
func (s *stream) releaseWindow() error {
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
	if s.tx != nil && len(w.items) > 0 {
		s.tx.rememberLast(&w.items[len(w.items)-1])
	}
	w.clear()
	s.now = nil
	s.mu.Lock()
	s.spare = w
	s.mu.Unlock()
	return nil
}

// begun returns unsettled rows of transactions of which some rows are published, for finish. It returns none if there is no such
// transaction.
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
		if err := s.skipDiscarded(ctx, w); err != nil {
			return nil, err
		}
		if w.upTo == 0 || w.touched(w.whole) {
			end = len(w.items)
		}
		if items := w.left(end); len(items) > 0 || end < len(w.items) {
			return items, nil
		}
		if err := s.releaseWindow(); err != nil {
			return nil, err
		}
	}
}

// remove deletes the failure records of acknowledged rows, and settles the rows. The rows themselves stay in the table.
func (s *stream) remove(ctx context.Context, acked []*item) error {
	if err := s.ledger.cure(ctx, acked); err != nil {
		return err
	}
	cured := 0
	for _, i := range acked {
		i.settled = true
		if i.failedBefore {
			cured++
		}
	}
	s.rows.Add(int64(cured))
	return nil
}

// recordFailures records failures, and settles the rows. It leaves out rows that unrecorded leaves out.
func (s *stream) recordFailures(ctx context.Context, failures []failure) error {
	failures, err := s.unrecorded(ctx, failures)
	if err != nil || len(failures) == 0 {
		return err
	}
	if err := s.deleteLaterRecords(ctx, failures); err != nil {
		return err
	}
	if err := s.relay.recordFailures(ctx, s.db, s.lease, failures); err != nil {
		return err
	}
	for _, t := range failures {
		if !t.item.failedBefore {
			s.ledger.addFailure(t.item)
			if s.tx != nil {
				s.tx.newFailures = true
			}
		}
		t.item.settled = true
	}
	return nil
}

// behind reports whether a row of a window waits behind a failed row of its key. A failed row that was claimed is due, and waits for no
// other row.
func (s *stream) behind(i *item) bool { return !i.failedBefore && s.ledger.behind(i) }

// awaitRows returns at once, since claim itself waits for rows.
func (s *stream) awaitRows(context.Context, time.Duration) bool { return false }
