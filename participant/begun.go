package participant

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/pg"
)

// A run of a handler that works outside the database (Ask, Alone) may take effect although its transaction does not commit: the
// response came too late, the run was cancelled, or another member took the partition. The forward call of a saga's step then
// has no answer, and a compensation in doubt must run nevertheless.
//
//	forward call      commit the mark ──► lock it ──► read the answers ──► call ──► delete the mark, answer ──► commit
//	compensation                          lock it ──► read the answers ──► a mark: undo ──► commit
//	 in doubt                                                              no mark: nothing, bar the key of the mark ──► commit
//
// The mark is a row in troupe.answers under the operation begun. Only an answer of the handler deletes it; a transaction that
// ends otherwise, with its session or not, leaves it. A compensation in doubt waits for the lock. If it finds no mark, it
// inserts a row with the key of the mark: if a call marks the same key at that time, the second of the two waits for the
// first, runs again if necessary, and reads the rows of the first.

var (
	//go:embed sql/mark_begun.sql
	markBegun string
	//go:embed sql/lock_begun.sql
	lockBegun string
)

const (
	begun  = "begun"                    // the operation, and the outcome of its row
	barred = envelope.Outcome("barred") // the outcome of the row if a compensation has found no mark
)

// outside reports whether a run of h may take effect outside the database.
func (h *handler) outside() bool { return h.ask != nil || h.alone }

// callsOutside reports whether m is a forward call of a saga's step whose effects may be outside the database.
func (p *Participant) callsOutside(m *message) bool {
	return m.unreadable == nil && m.handler != nil && m.handler.outside() && m.calls(p.cfg.Hop, forward)
}

// markBegun queues the marks of the calls among ms, except those whose answer is repeated.
func (p *Participant) markBegun(b *pgx.Batch, ms ...*message) {
	var operations, forwards, sagas, keys []string
	for _, m := range ms {
		if p.callsOutside(m) {
			k, f := m.stepKey(begun), m.stepKey(forward)
			operations, forwards, sagas, keys = append(operations, k.typ), append(forwards, f.typ), append(sagas, k.key), append(keys, indexable(m.IdempotencyKey))
		}
	}
	if len(keys) > 0 {
		b.Queue(markBegun, pg.Args{"group": p.cfg.Group, "operations": operations, "forwards": forwards, "sagas": sagas, "command_keys": keys})
	}
}

// announce commits the marks of the calls that a run of ms may make.
func (w *runner) announce(ms []*message) error {
	if !slices.ContainsFunc(ms, w.p.callsOutside) {
		return nil
	}
	var b pgx.Batch
	b.Queue(beginCommitted)
	w.p.markBegun(&b, ms...)
	b.Queue("commit")
	ctx, cancel := context.WithTimeout(w.ctx, w.p.limit)
	defer cancel()
	return w.p.ours(w.p.cfg.Pool.SendBatch(ctx, &b).Close())
}

// needsMark reports whether the mark of m's step matters to a run of m: m is the call, or a compensation in doubt.
func (p *Participant) needsMark(m *message) bool {
	return p.callsOutside(m) || m.answered() && m.ofSaga() && m.SagaOperation == compensate && m.inDoubt()
}

// lockBegun queues the locks on the marks that a run of ms needs, if there are any.
func (p *Participant) lockBegun(b *pgx.Batch, ms []*message) (queued bool) {
	var keys []answerKey
	for _, m := range ms {
		if p.needsMark(m) {
			keys = append(keys, m.stepKey(begun))
		}
	}
	if len(keys) == 0 {
		return false
	}
	slices.SortFunc(keys, func(a, b answerKey) int { return cmp.Or(cmp.Compare(a.typ, b.typ), cmp.Compare(a.key, b.key)) })
	operations, sagas := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		operations[i], sagas[i] = k.typ, k.key
	}
	b.Queue(lockBegun, pg.Args{"group": p.cfg.Group, "operations": operations, "sagas": sagas})
	return true
}

// errMarkGone makes a run begin again: another call of the same step was answered between the mark and the transaction.
var errMarkGone = conflict{error: errors.New("another call of the saga's step was answered at the same time"), ours: true}

// unmarked reports whether m is a call that must not be made, since its mark is gone.
func (u *unit) unmarked(m *message) bool {
	_, marked := u.answers[m.stepKey(begun)]
	return u.w.p.callsOutside(m) && !marked
}

// endCall deletes the mark of m's call, which its handler has answered.
func (u *unit) endCall(m *message) {
	if !u.w.p.callsOutside(m) {
		return
	}
	k := m.stepKey(begun)
	delete(u.answers, k)
	u.tx.stored.Queue(deleteAnswer, u.w.p.cfg.Group, k.typ, k.key, nil)
}

// bar stores that m, a compensation in doubt, has found no mark.
func (u *unit) bar(m *message) { u.store(m, m.stepKey(begun), storedAnswer{outcome: barred}) }
