package participant

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/topics"
)

// searchedAtOnce is the number of held messages among which a compensation looks for commands to cancel, and cancels them in one transaction. A saga
// sends few commands of one step, but another producer may have sent any number, whose headers would fill the memory.
const searchedAtOnce = 100

// overtake lets m, a compensation, overtake the held forward command of its own step. That command must not run any more: overtake ends it, with its
// identity in the inbox and without an answer. m is stored behind the other held messages of its key, and the key continues at once. If there are
// many such commands, m is stored with the last of them. After a crash before that, m comes again.
func (w *worker) overtake(m *message) error {
	var after int64
	for {
		cancelled, next, err := w.heldForwardCalls(m, after)
		if err != nil {
			return err
		}
		if next == 0 {
			return w.cancelHeld(cancelled, m)
		}
		if err := w.cancelHeld(cancelled); err != nil {
			return err
		}
		after = next
	}
}

// cancelHeld ends held commands, and stores their compensation, if it is passed.
func (w *worker) cancelHeld(cancelled []*message, compensation ...*message) error {
	if len(cancelled)+len(compensation) == 0 {
		return nil
	}
	err := w.write(compensation, func(b *pgx.Batch) {
		for _, f := range cancelled {
			b.Queue(releaseHeld, w.releaseArgs(f))
		}
		if len(cancelled) > 0 {
			w.p.claim(b, cancelled)
		}
		for _, m := range compensation {
			b.Queue(holdWaiting, w.rowArgs(m))
		}
	})
	if err != nil {
		return err
	}
	w.tellHeld(compensation...)
	for _, f := range cancelled {
		f.passed = reasonCancelled
		w.tellPassed(f)
		w.p.cfg.Log.Info().Str("place", f.place()).Str("message_id", f.id).Str("saga", f.SagaID).Str("step", f.SagaStep).
			Msg("held command cancelled by its compensation")
	}
	if len(cancelled) > 0 {
		key := cancelled[0].holdKey()
		w.holds.limit(key, nil) // the known limits may be the ones of a cancelled command's handler
		w.hold(key, time.Now())
	}
	return nil
}

// heldForwardCalls finds the held commands that m compensates, at any position in the key. It searches the first messages behind the position after.
// next is the position of the last of these; 0 if there are no more.
func (w *worker) heldForwardCalls(m *message, after int64) (found []*message, next int64, err error) {
	ctx, cancel := context.WithTimeout(w.ctx, w.p.statementTimeout)
	defer cancel()
	key := m.holdKey()
	rows, err := w.p.cfg.Pool.Query(ctx, readHeld, pg.Args{
		"group": w.p.cfg.Group, "topic": w.topic, "partition": w.id, "hold_key": key[:],
		"saga": []byte(m.SagaID), "step": []byte(m.SagaStep), "after": after, "limit": searchedAtOnce,
	})
	if err != nil {
		return nil, 0, database(err)
	}
	var f message
	var headers []byte
	var row heldRow
	tag, err := pgx.ForEachRow(rows, []any{&row.position, &f.topicID, &f.offset, &headers, &row.attempts, &row.id}, func() error {
		of := row
		held := message{topicID: f.topicID, partition: w.id, offset: f.offset, held: &of}
		held.Topic, held.Key = w.topic, m.Key
		if held.stored, held.unreadable = envelope.UnmarshalHeaders(headers); held.unreadable == nil {
			held.unreadable = held.SetHeaders(held.stored)
		}
		if held.unreadable == nil && held.isCallTo(w.p.cfg.Hop, forward) && held.SagaID == m.SagaID && held.SagaStep == m.SagaStep {
			held.identify(w.p.cfg.Group)
			if row.id != "" && row.id != held.id { // the database cannot store the id in its headers
				held.ID, held.id, held.unnamed = row.id, row.id, true
			}
			w.p.route(&held)
			found = append(found, &held)
		}
		return nil
	})
	if err != nil {
		return nil, 0, database(err)
	}
	if tag.RowsAffected() == searchedAtOnce {
		next = row.position
	}
	return found, next, nil
}

// isCallTo reports whether m is a saga's command to hop with the given operation (forward or compensate). Events are not calls, although they carry
// the saga and step of the command that they answer. Deadlines are not calls, although they come on the commands topic.
func (m *message) isCallTo(hop topics.Hop, operation string) bool {
	return m.Topic == hop.Commands() && m.SagaOperation == operation && m.SagaID != "" && m.SagaStep != "" && firingOf(m.Extra) == nil
}
