package participant

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/pg"
)

// A run of a handler that works outside the database (Call, Alone) may take effect although its transaction does not commit: the response came too
// late, the run was cancelled, or another member took the partition. The forward call of a saga's step then has no answer, and a compensation in
// doubt must run nevertheless. So each such call commits a mark before it begins.
//
//	forward call      commit the mark ──► lock it ──► read the answers ──► call ──► delete the mark, answer ──► commit
//	compensation                          lock it ──► read the answers ──► a mark: undo ──► commit
//	 in doubt                                                              no mark: nothing; insert a row with its key ──► commit
//
// The mark is a row in troupe.answers under the operation begun. The transaction with the handler's answer deletes it. If the run that inserted it
// ends without the call, that run deletes it. If a run ends in another way, or its process does, the mark stays.
//
// A forward call or a compensation that finds the mark locked ends without effect and waits for underWayWait; no attempt is counted.
//
// A compensation that finds neither a mark nor a success of the call inserts a row with the key of the mark. If a call inserts its mark at that time,
// the second of the two waits for the first, runs again if necessary, and reads the rows of the first.

var (
	//go:embed sql/mark_begun.sql
	markBegun string
	//go:embed sql/lock_begun.sql
	lockBegun string
)

const (
	begun  = "begun"                    // the operation of a mark, and the outcome in its row
	barred = envelope.Outcome("barred") // the outcome in the row of a compensation that found no mark
)

// underWayWait is the time between two tries of a message that waits for a call that is under way.
const underWayWait = time.Second

// errUnderWay makes a message wait for underWayWait. It counts no attempt.
var errUnderWay = errors.New("a call of the saga's step is under way in another transaction: the message waits for its end")

// underWay returns errUnderWay if err is lock_not_available, the error of a statement that finds a mark locked. It returns any other err unchanged.
func underWay(err error) error {
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "55P03" { // lock_not_available
		return errUnderWay
	}
	return err
}

// outside reports whether a run of h may take effect outside the database.
func (h *handler) outside() bool { return h.ask != nil || h.alone }

// callsOutside reports whether m is the forward call of a saga's step whose effects may be outside the database, so that it needs a mark.
func (p *Participant) callsOutside(m *message) bool {
	return m.unreadable == nil && m.handler != nil && m.handler.outside() && m.isCallTo(p.cfg.Hop, forward)
}

// markBegun queues the statement that inserts, or renews, the marks of the calls among ms. It leaves out a call whose stored answer will be repeated.
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

// durably is a statement of the transaction that commits marks. A mark must be on disk before its call begins, whatever the role's synchronous_commit
// is. lock_timeout limits the wait for a compensation that has locked the row.
const durably = `
SELECT set_config('lock_timeout', $1, true),
       set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'local'
                                        ELSE current_setting('synchronous_commit') END, true)`

// announce commits the marks of the calls that a run of ms may make. attempt calls it before the transaction of the run.
func (w *runner) announce(ms []*message) error {
	if !slices.ContainsFunc(ms, w.p.callsOutside) {
		return nil
	}
	var b pgx.Batch
	b.Queue(beginCommitted)
	b.Queue(durably, fmt.Sprint(underWayWait.Milliseconds()))
	w.p.markBegun(&b, ms...)
	b.Queue("commit")
	ctx, cancel := context.WithTimeout(w.ctx, w.p.statementTimeout)
	defer cancel()
	results := w.p.cfg.Pool.SendBatch(ctx, &b)
	err := readCallMarks(results, ms)
	if err = errors.Join(err, ignore(results.Close(), err)); errors.Is(underWay(err), errUnderWay) {
		return errUnderWay
	}
	return w.p.ownError(err)
}

// readCallMarks sets m.announced for each message m whose mark was inserted. announced is the version of the mark's row.
func readCallMarks(results pgx.BatchResults, ms []*message) error {
	for range 2 {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	rows, _ := results.Query()
	var k answerKey
	var version uint32
	var inserted bool
	_, err := pgx.ForEachRow(rows, []any{&k.typ, &k.key, &version, &inserted}, func() error {
		for _, m := range ms {
			if inserted && m.SagaStep != "" && m.stepKey(begun) == k {
				of := version
				m.announced = &of
			}
		}
		return nil
	})
	return err
}

// withdraw deletes the marks that the run of ms inserted and whose calls were not made. A mark that another run has renewed has another version, and
// stays. If the deletion fails, the mark stays although no call was made: a compensation in doubt then runs, and has nothing to undo.
func (w *runner) withdraw(ms []*message) {
	var b pgx.Batch
	for _, m := range ms {
		if m.announced == nil {
			continue
		}
		k := m.stepKey(begun)
		if !slices.ContainsFunc(ms, func(of *message) bool { return of.called && of.announced != nil && of.stepKey(begun) == k }) {
			b.Queue(deleteAnswer, w.p.cfg.Group, k.typ, k.key, *m.announced)
		}
	}
	for _, m := range ms {
		m.announced = nil
	}
	if b.Len() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), releaseLimit)
	defer cancel()
	if err := w.p.cfg.Pool.SendBatch(ctx, &b).Close(); err != nil {
		w.p.cfg.Log.Debug().Err(err).Msg("marks of calls that were not made stay")
	}
}

// needsCallMark reports whether a run of m must lock and read the mark of the forward call of m's step. This is so for a forward call whose effects
// may be outside the database, and for a compensation.
func (p *Participant) needsCallMark(m *message) bool {
	return p.callsOutside(m) || m.answered() && m.ofSaga() && m.SagaOperation == compensate
}

// lockBegun queues the statement that locks the marks which a run of ms needs, in the same order in all members. queued is false if ms need none.
func (p *Participant) lockBegun(b *pgx.Batch, ms []*message) (queued bool) {
	var keys []answerKey
	for _, m := range ms {
		if p.needsCallMark(m) {
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

// errCallMarkGone makes a run begin again: another call of the same step was answered between the mark and the transaction.
var errCallMarkGone = conflict{error: errors.New("another call of the saga's step was answered at the same time"), own: true}

// mayHaveBegun reports whether the call of m's step has a mark, so that it may have taken effect. A mark does not count if this
// transaction has inserted it for a message behind m, whose call was not made yet.
func (u *unit) mayHaveBegun(m *message) bool {
	mark := u.answers[m.stepKey(begun)]
	return mark.outcome == begun && !slices.ContainsFunc(u.all, func(of *message) bool {
		return !of.called && of.announced != nil && mark.version != nil && *of.announced == *mark.version
	})
}

// lacksCallMark reports whether m is a call that must not be made, since its mark is gone.
func (u *unit) lacksCallMark(m *message) bool {
	_, marked := u.answers[m.stepKey(begun)]
	return u.w.p.callsOutside(m) && !marked
}

// endCall queues the deletion of the mark of m's call, once m's handler has answered.
func (u *unit) endCall(m *message) {
	if !u.w.p.callsOutside(m) {
		return
	}
	k := m.stepKey(begun)
	delete(u.answers, k)
	u.tx.stored.Queue(deleteAnswer, u.w.p.cfg.Group, k.typ, k.key, nil)
}

// bar stores that m, a compensation, has found no mark. The row has the key of the mark.
func (u *unit) bar(m *message) { u.store(m, m.stepKey(begun), storedAnswer{outcome: barred}) }
