package participant

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/troupe-go/troupe/topics"
)

// worker waits for a hint, and then claims entries and runs them as long as there are some. It ends when Run must stop.
func (l *local) worker() {
	returned := false
	defer func() {
		if !returned {
			l.died.Store(true)
			l.p.cfg.Log.Error().Msg("a handler ended its goroutine: local work has one worker less")
		}
	}()
	from := make([]byte, 4) // each worker begins at another key, so that workers seldom meet among many entries
	for i := range from {
		from[i] = byte(rand.Uint32())
	}
	dueFirst := false // alternates, so that neither due entries nor the others starve
	for {
		select {
		case <-l.stop:
			returned = true
			return
		case <-l.wake:
		}
		for more := true; more && !l.stopped() && l.member.Load() != 0 && l.may(); {
			hints := l.hints.Load()
			n, all, err := l.claimAndRun(&from, dueFirst)
			dueFirst = !dueFirst
			switch {
			case err != nil && l.ctx.Err() == nil:
				l.shut(unavailable{theDatabase, err})
			case n == 0:
				l.open() // there was no entry for a try
			}
			more = n > 0 && err == nil && (!all || l.hints.Load() != hints)
		}
	}
}

// may reports whether entries may be claimed now. They always may while the gate is open; while it is shut, one claim is allowed for each try.
func (l *local) may() bool { return l.gate.waits.Load() == nil || l.try.CompareAndSwap(true, false) }

// claimAndRun claims entries once, and runs them. all is true if no other entry could be claimed: the worker then waits for a hint, since another
// claim would most likely find nothing.
func (l *local) claimAndRun(from *[]byte, dueFirst bool) (n int, all bool, err error) {
	quarantine := l.p.quarantineLock.TryLock()
	defer func() {
		if quarantine {
			l.p.quarantineLock.Unlock()
		}
	}()
	if err := l.giveBackKept(); err != nil {
		return 0, true, err
	}
	ms, large, err := l.claim(*from, dueFirst, quarantine)
	if err == nil && len(ms) == 0 && len(*from) > 0 {
		*from = []byte{}
		ms, large, err = l.claim(*from, dueFirst, quarantine)
	}
	if err != nil || len(ms) == 0 {
		return 0, true, err
	}
	select {
	case l.soon <- struct{}{}:
	default:
	}
	whole := len(*from) == 0 // the claim began at the first key
	all = whole && !large && quarantine && len(ms) < l.p.cfg.Batch
	walked := len(ms) < l.p.cfg.Batch && !large // the claim reached the last key
	for _, m := range ms {
		switch {
		case m.held != nil: // it was due, so its key does not show how far the claim went
			walked = walked || !dueFirst && !large
		case string(m.entry.key[:]) > string(*from):
			*from = m.entry.key[:]
		}
		if m.held != nil || m.suspect() { // the later entries of its key were not claimed with it
			all = false
		}
	}
	if walked {
		*from = []byte{}
	}
	if !all {
		l.another()
	}
	if quarantine && !slices.ContainsFunc(ms, (*message).suspect) {
		quarantine = false
		l.p.quarantineLock.Unlock()
	}
	l.run(ms)
	return len(ms), all, nil
}

// suspect reports whether m was in progress when its participant died.
func (m *message) suspect() bool { return m.entry.crashes > 0 }

// run handles entries that were claimed together. At its end it gives back the ones that have not ended.
func (l *local) run(ms []*message) {
	ended := make(map[*message]bool, len(ms))
	defer func() {
		l.giveBack(ms, ended)
		l.tellPassed(ended)
	}()

	var nobodys, ours []*message
	for _, m := range ms {
		if m.passed = l.p.passReason(m, isCommand(m)); m.passed != "" {
			nobodys = append(nobodys, m)
		} else {
			ours = append(ours, m)
		}
	}
	if len(nobodys) > 0 {
		if l.stopped() || !l.runStep(func() error { return l.endWithoutEffect(nobodys) }) {
			return
		}
		for _, m := range nobodys {
			ended[m] = true
		}
	}

	// Messages without failures or crashes run together, unless another message of their key may not. A message of a rebuild runs alone, since its
	// transaction may discard all that is written to the outbox.
	apart := make(map[holdKey]bool)
	for _, m := range ours {
		if m.held != nil || m.suspect() || !m.plain() || m.generation() > 0 {
			apart[m.entry.key] = true
		}
	}
	var together, alone []*message
	for _, m := range ours {
		if apart[m.entry.key] {
			alone = append(alone, m)
		} else {
			together = append(together, m)
		}
	}
	if len(together) > 1 {
		failed, ok := l.optimistic(l.attempt, together)
		if !ok {
			return
		}
		if failed == nil {
			for _, m := range together {
				ended[m] = !m.entry.lost
			}
			together = nil
		}
	}
	for _, m := range slices.Concat(together, alone) {
		if ended[m] || m.entry.lost {
			continue
		}
		if l.stopped() || !l.runStep(func() error { return l.deliver(m) }) {
			return
		}
		ended[m] = true
		if m.entry.waits { // record has released the entries behind it
			for _, b := range m.entry.behind {
				ended[b] = true
			}
		}
	}
}

// isCommand reports whether m comes from a topic of commands: the hop's own, or one that it had under a former name. A command without a handler does
// not end without effect, since its sender waits for an answer.
func isCommand(m *message) bool {
	t, err := topics.Parse(m.Topic)
	return err == nil && t.Kind == topics.Commands
}

// deliver handles m until m has ended or waits for its next try. If it returns an error, that error is not about m, and m must be tried again.
func (l *local) deliver(m *message) error {
	if m.entry.crashes >= maxStarts {
		m.began = time.Now()
		return l.bury(m, failure{class: Poison, err: fmt.Errorf("the process ended %d times while this message ran", m.entry.crashes)})
	}
	err := l.runAlone(m)
	if isUnstorable(err) && m.markUnreadable(err) {
		err = l.runAlone(m)
	}
	if !l.counts(err) {
		return err
	}
	return l.settle(m, failureOf(err))
}

// endWithoutEffect ends entries that need no run of a handler.
func (l *local) endWithoutEffect(ms []*message) error {
	ctx, cancel := context.WithTimeout(l.ctx, statementLimit)
	defer cancel()
	if err := l.exec(ctx, endLocal, l.endArgs(ms, nil)); err != nil {
		return database(err)
	}
	return nil
}

// tellPassed reports entries that ended without effect to the hook.
func (l *local) tellPassed(ended map[*message]bool) {
	for m, has := range ended {
		if has && m.passed != "" {
			tell(l.p.cfg.Hooks.Passed, Passed{m.Topic, m.partition, m.offset, m.passed, m.held != nil})
		}
	}
}
