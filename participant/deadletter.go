package participant

import (
	"context"
	"errors"
	"time"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/pg"
)

// bury makes m a dead letter. One transaction inserts m's inbox row, its row in troupe.dead_letters, the copy for the dlq topic and the exhausted
// event, and deletes m's row in troupe.held. If bury returns an error, the dead letter was not written, or it is not known whether it was: the
// database is away, the rows are locked, or another member owns the partition.
//
// After the commit bury logs a line and calls the hook. Both are lost if the process ends after the commit, or if the commit gets no answer: so alert
// on the rows of troupe.dead_letters, and not on the log.
func (w *runner) bury(m *message, f failure) error {
	d := w.delivery(m)
	d.Class, d.Err, d.Outcome = f.class, f.err, envelope.Exhausted
	id := envelope.NewID()
	d.Took = time.Since(m.began)
	written, err := w.writeLetter(m, f, id, d)
	if err != nil {
		if errors.Is(err, errFenced) || errors.Is(err, errRowsLocked) {
			return err
		}
		return database(err)
	}
	w.cuts.forget(m)
	if !written {
		m.passed = reasonDuplicate
		return nil // m took effect, or is a dead letter, already
	}
	w.p.cfg.Log.Error().Err(f.err).Str("class", string(f.class)).Str("handler", d.Handler).Str("key", readable(string(m.Key), 200)).
		Str("place", m.place()).Str("message_id", m.id).Str("dead_letter", id).Int("attempts", d.Attempt).
		Msg("dead letter: " + why(f.class))
	tell(w.p.cfg.Hooks.AfterCommit, d)
	return nil
}

func (w *runner) writeLetter(m *message, f failure, id string, d Delivery) (written bool, err error) {
	u, err := w.beginUnit([]*message{m}, &f)
	if err != nil {
		return false, err
	}
	defer u.tx.rollback(w.ctx)
	for _, m := range u.toRun {
		ctx, cancel := context.WithTimeout(w.ctx, w.p.statementTimeout)
		written, err = w.p.letters().Write(ctx, u.tx, w.letter(m, f, id))
		cancel()
		if err != nil {
			return false, err
		}
		tell(w.p.cfg.Hooks.BeforeCommit, d)
	}
	return written, u.commit()
}

// buryAfterOwnEnd makes dead letters of ms, whose transaction a handler has ended. Their inbox rows may be committed, so that no message of ms would
// be handled again. It is not known which of their effects are committed. If the process ends before a dead letter is committed, its message counts
// as a duplicate and has no dead letter.
func (w *runner) buryAfterOwnEnd(ms []*message) error {
	for _, m := range ms {
		if m.began.IsZero() {
			m.began = time.Now()
		}
		if err := w.bury(m, failure{class: Permanent, err: m.txEnded}); err != nil {
			return err
		}
	}
	return nil
}

func endedItsTx(m *message) bool { return m.txEnded != nil }

// letters returns the writer of the group's dead letters.
func (p *Participant) letters() deadletter.Writer {
	return deadletter.Writer{
		Group: p.cfg.Group, Hop: p.cfg.Hop, Outbox: p.out, Profile: p.cfg.profile(),
		Exhausted: func(e deadletter.Exhausted) any { return Exhausted(e) },
	}
}

// letterArgs adds to args the columns of m's row that an operator's tool needs to write the same dead letter as this participant would.
func (p *Participant) letterArgs(m *message, args pg.Args) {
	args["handler"], args["hop"] = m.handlerName(p.cfg.Group), p.cfg.Hop.String()
	args["source"], args["letter_headers"] = p.cfg.Source, int(p.cfg.profile())
}

// letter returns the dead letter of m after its last failure.
func (w *runner) letter(m *message, f failure, id string) deadletter.Letter {
	l := deadletter.Letter{
		ID: id, Message: m.Message, Headers: m.headers(), Stored: m.undecoded, TopicID: m.topicID, Partition: m.partition, Offset: m.offset,
		At: m.at, Redrive: m.redrive, Handler: m.handlerName(w.p.cfg.Group),
		Class: string(f.class), Error: f.err.Error(), Attempts: m.attempts() + 1, FirstFailed: m.again.firstFailed,
	}
	if m.held != nil && l.FirstFailed == nil {
		l.FirstFailed = m.held.firstFailed
	}
	return l
}
