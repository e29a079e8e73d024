package participant

import (
	"errors"
	"slices"
)

// together handles the first messages of batch in one transaction: the ones that need only a run of their handlers, or no run at all (see inspect). n
// is the number of messages handled; it is 0 without failed if single must handle the first message. ok is false if the partition must wait or was
// given up. failed reports that the transaction failed.
//
// If a message fails, the transaction is rolled back. The messages before it run together again, and then it runs alone; the messages after it are
// left for the next call. If it is not known which message failed, each runs alone. Only runs alone count as attempts, so a failure counts for its
// own message only. If the messages write too much for one transaction, all are left for the next call.
func (w *worker) together(batch []*message) (n int, failed, ok bool) {
	var ms []*message
	for _, m := range batch {
		if m.due {
			break
		}
		passes, plain := w.inspect(m)
		if !passes && (!plain || w.suspected(m) || len(ms) > 0 && m.generation() != ms[0].generation()) {
			break
		}
		if plain {
			ms = append(ms, m)
		}
		n++
	}
	if len(ms) > 1 {
		var err error
		switch err, ok = w.optimistic(w.inGroup, ms); {
		case !ok:
			return 0, false, false
		case err == nil:
			return n, false, true
		}
		failed = true
		var in failedIn
		if errors.As(err, &in) {
			at := slices.Index(ms, in.m)
			n, ms = slices.Index(batch, in.m)+1, ms[:at+1]
			if at > 1 {
				if err, ok = w.optimistic(w.inGroup, ms[:at]); !ok {
					return 0, failed, false
				} else if err == nil {
					ms = ms[at:]
				}
			}
		}
		if errors.Is(err, errLargeBatch) {
			return 0, failed, true // the next call gets half as many messages
		}
	}
	for i, m := range ms {
		if w.stopped() && i > 0 || !w.runStep(func() error { return w.deliver(m) }) {
			return slices.Index(batch, m), failed, false
		}
	}
	return n, failed, true
}

// optimistic runs messages in one transaction, with attempt. failed is the error if it is about one of the messages. ok is false after any other
// error.
func (w *runner) optimistic(attempt func(...*message) error, ms []*message) (failed error, ok bool) {
	ok = w.runStep(func() error {
		err := w.runSerially(attempt, ms)
		if failed = nil; w.counts(err) {
			failed, err = err, nil
		}
		return err
	})
	return failed, ok
}

// runSerially runs messages in one transaction, with attempt. After a deadlock (serial.go) it first waits until no other batch of this process runs.
func (w *runner) runSerially(attempt func(...*message) error, ms []*message) error {
	end := w.p.serial.wait(w.ctx)
	defer end()
	err := attempt(ms...)
	if isUnstorable(err) { // it is not known of which message
		err = conflict{error: errors.Unwrap(err)}
	}
	if w.p.serial.deadlocked(err) {
		w.p.cfg.Log.Info().Err(err).Stringer("for", serialFor).Msg("batches lock the same rows in different orders: they take turns")
	}
	return err
}
