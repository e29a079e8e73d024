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
// has no answer, and a compensation in doubt must run all the same.
//
//	forward call      commit the mark ──► lock it ──► read the answers ──► call ──► delete the mark, answer ──► commit
//	compensation                          lock it ──► read the answers ──► a mark: undo ──► commit
//	 in doubt                                                              no mark: nothing, bar the key of the mark ──► commit
//
// The mark is a row in troupe.answers under the operation begun. Only an answer of the handler deletes it; a transaction that
// ends otherwise, with its session or not, leaves it. A compensation in doubt waits for the lock. Where it finds no mark, it
// inserts a row with the key of the mark: where a call marks the same key at that time, the second of the two waits for the
// first, runs again if need be, and reads what the first has written.

var (
	//go:embed sql/mark_begun.sql
	markBegun string
	//go:embed sql/lock_begun.sql
	lockBegun string
)

const (
	begun  = "begun"                    // the operation, and the outcome of its row
	barred = envelope.Outcome("barred") // the outcome of the row where a compensation has found no mark
)

// outside reports whether a run of h may take effect outside the database.
func (h *handler) outside() bool { return h.ask != nil || h.alone }

// callsOutside reports whether m is a forward call of a saga's step whose effects may be outside the database.
func (p *Participant) callsOutside(m *message) bool {
	return m.unreadable == nil && m.handler != nil && m.handler.outside() && m.calls(p.cfg.Hop, forward)
}

// begunArgs returns the keys of the marks of the messages that meant selects, sorted and without duplicates, and their number.
func (p *Participant) begunArgs(ms []*message, meant func(*message) bool) (args pg.Args, n int) {
	var keys []answerKey
	for _, m := range ms {
		if meant(m) {
			keys = append(keys, m.stepKey(begun))
		}
	}
	slices.SortFunc(keys, func(a, b answerKey) int { return cmp.Or(cmp.Compare(a.typ, b.typ), cmp.Compare(a.key, b.key)) })
	keys = slices.Compact(keys)
	if len(keys) == 0 {
		return nil, 0
	}
	operations, sagas := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		operations[i], sagas[i] = k.typ, k.key
	}
	return pg.Args{"group": p.cfg.Group, "operations": operations, "sagas": sagas}, len(keys)
}

// markBegun queues the marks of the calls among ms, and returns their number.
func (p *Participant) markBegun(b *pgx.Batch, ms ...*message) (n int) {
	args, n := p.begunArgs(ms, p.callsOutside)
	if n > 0 {
		b.Queue(markBegun, args)
	}
	return n
}

// announce commits the marks of the calls that a run of ms may make.
func (w *runner) announce(ms []*message) error {
	var b pgx.Batch
	b.Queue(beginCommitted)
	if w.p.markBegun(&b, ms...) == 0 {
		return nil
	}
	b.Queue("commit")
	ctx, cancel := context.WithTimeout(w.ctx, w.p.limit)
	defer cancel()
	return w.p.ours(w.p.cfg.Pool.SendBatch(ctx, &b).Close())
}

// looksForCall reports whether m is a compensation in doubt: it runs where the forward call of its step has begun.
func (m *message) looksForCall() bool {
	return m.answered() && m.ofSaga() && m.SagaOperation == compensate && m.inDoubt()
}

// errMarkGone makes a run begin again: another call of the same step was answered between the mark and the transaction.
var errMarkGone = conflict{error: errors.New("another call of the saga's step was answered at the same time"), ours: true}

// lockBegun queues the locks of a run of ms: on the marks of its calls, and on the marks that its compensations in doubt look
// for.
func (p *Participant) lockBegun(b *pgx.Batch, ms []*message) (read func(pgx.BatchResults) error) {
	calls, marks := p.begunArgs(ms, p.callsOutside)
	if marks > 0 {
		b.Queue(lockBegun, calls)
	}
	looks, sought := p.begunArgs(ms, (*message).looksForCall)
	if sought > 0 {
		b.Queue(lockBegun, looks)
	}
	return func(results pgx.BatchResults) error {
		if marks > 0 {
			if tag, err := results.Exec(); err != nil {
				return err
			} else if tag.RowsAffected() < int64(marks) {
				return errMarkGone
			}
		}
		if sought > 0 {
			_, err := results.Exec()
			return err
		}
		return nil
	}
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
