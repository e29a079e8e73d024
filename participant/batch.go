package participant

import (
	"errors"
	"slices"
)

// together handles the first messages of a batch in one transaction, if it can: messages that have a handler and are not blocked
// by a failure. It returns their number; zero means that the first one must run individually.
//
// If one of them fails, all are rolled back. It runs alone, since only such runs count as attempts, and the messages before it
// run together again; the messages after it are left for the next call. If it is not known which one failed, each runs alone.
// So a failure counts as an attempt of its own message only.
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
	}
	for i, m := range ms {
		if w.stopped() && i > 0 || !w.goes(func() error { return w.deliver(m) }) {
			return slices.Index(batch, m), failed, false
		}
	}
	return n, failed, true
}

// optimistic runs messages in one transaction, with attempt. It returns an error only if it is about one of the messages.
func (w *runner) optimistic(attempt func(...*message) error, ms []*message) (failed error, ok bool) {
	ok = w.goes(func() error {
		err := w.inTurn(attempt, ms)
		if failed = nil; w.counts(err) {
			failed, err = err, nil
		}
		return err
	})
	return failed, ok
}

// inTurn runs messages in one transaction, with attempt; while turns are on it waits for other batches.
func (w *runner) inTurn(attempt func(...*message) error, ms []*message) error {
	end := w.p.turns.wait(w.ctx)
	defer end()
	err := attempt(ms...)
	if isUnstorable(err) { // of one of them, which is not known
		err = conflict{error: errors.Unwrap(err)}
	}
	if w.p.turns.deadlocked(err) {
		w.p.cfg.Log.Info().Err(err).Stringer("for", turnsFor).Msg("batches lock the same rows in different orders: they take turns")
	}
	return err
}
