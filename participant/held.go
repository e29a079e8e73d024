package participant

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/retry"
)

var (
	//go:embed sql/hold_failed.sql
	holdFailed string
	//go:embed sql/hold_waiting.sql
	holdWaiting string
	//go:embed sql/load_holds.sql
	loadHolds string
	//go:embed sql/read_heads.sql
	readHeads string
	//go:embed sql/read_held.sql
	readHeld string
	//go:embed sql/reset_future_held.sql
	resetFutureHeld string
	//go:embed sql/record_attempt.sql
	recordAttempt string
	//go:embed sql/release_held.sql
	releaseHeld string
)

const maxErrorBytes = 2000

// The limits of the wait of a held key whose rows another session has locked.
const (
	leastLockedWait = time.Second
	mostLockedWait  = 10 * time.Second
)

// heldRow holds columns of a message's row in troupe.held, or in troupe.local_work if it has failed there.
type heldRow struct {
	position    int64
	attempts    int
	firstFailed *time.Time
	failingFor  time.Duration // since firstFailed when it was read, by the database's clock
	heldFor     time.Duration // when it was read
	id          string        // the identity that the message had when it was held
}

// failure is a failed run, whose error is about its message.
type failure struct {
	class     Class
	err       error
	uncounted bool // it is no attempt: the message waits for a handler of its type, for a call under way, or for a rate limit
}

// failureOf returns the failure of a run that ended with err.
func failureOf(err error) failure {
	class := classify(err)
	return failure{class: class, err: err, uncounted: class == RateLimited || errors.Is(err, errUnderWay)}
}

// attempts returns how many attempts of m have failed, the one that ended with f included.
func (f failure) attempts(m *message) int {
	if f.uncounted {
		return m.attempts()
	}
	return m.attempts() + 1
}

// record stores a failed attempt of m in troupe.held: in a new row, or in the row that m came from. Then m's key waits for the next try. If another
// member has changed that row meanwhile, record leaves it as it is.
func (w *worker) record(m *message, f failure) error {
	wait := w.p.waitAfter(m, f)
	args := w.rowArgs(m)
	args["attempts"] = f.attempts(m)
	args["unhandled"], args["unhandled_for"] = m.lacksHandler(), m.unhandledFor.Seconds()
	args["wait"] = wait.Seconds()
	args["class"] = string(f.class)
	args["error"] = w.p.errorText(f)
	w.p.letterArgs(m, args)
	var err error
	if m.held != nil {
		args["position"], args["before"] = m.held.position, m.held.attempts
		err = w.write(nil, func(b *pgx.Batch) { b.Queue(recordAttempt, args) })
	} else {
		err = w.write([]*message{m}, func(b *pgx.Batch) { b.Queue(holdFailed, args) })
	}
	if err != nil {
		// The row may have been stored although no answer came. The key must then be read from troupe.held, or the row would be left behind.
		w.hold(m.holdKey(), time.Now())
		return err
	}
	if m.limited() {
		w.holds.limit(m.holdKey(), &m.handler.limits)
	}
	w.hold(m.holdKey(), time.Now().Add(wait))
	return nil
}

// waitAfter returns how long m, whose run has failed with f, waits for its next try.
func (p *Participant) waitAfter(m *message, f failure) time.Duration {
	switch {
	case errors.Is(f.err, errUnderWay):
		return underWayWait
	case f.class == RateLimited:
		return p.waitForLimit(m, f)
	case f.uncounted:
		return p.unhandledWait(m)
	}
	return max(p.wait(m, f.attempts(m)), retry.NotBefore(f.err))
}

// wait returns how long m waits for its next try. failed is the number of its runs that have failed.
func (p *Participant) wait(m *message, failed int) time.Duration {
	if m.override != nil {
		return m.override.Wait(failed)
	}
	if failed <= p.cfg.Immediate {
		return 0
	}
	return p.cfg.Retry.Wait(failed - p.cfg.Immediate)
}

// append stores messages in troupe.held, behind the held messages of their keys.
func (w *worker) append(ms []*message) error {
	err := w.write(ms, func(b *pgx.Batch) {
		for _, m := range ms {
			b.Queue(holdWaiting, w.rowArgs(m))
		}
	})
	if err == nil {
		for _, m := range ms {
			m.passed = "" // a transaction that was rolled back may have set it
		}
		w.tellHeld(ms...)
	}
	return err
}

// write runs statements in a transaction of this package, which also stores the offsets of the messages in ended. The offsets of these messages have
// ended then: from now on only the rows that statements writes represent them. The error is not about a message.
func (w *worker) write(ended []*message, statements func(*pgx.Batch)) error {
	ctx, cancel := context.WithTimeout(w.ctx, w.p.statementTimeout)
	defer cancel()
	tx, err := w.begin(ctx, func(b *pgx.Batch) { w.queueTermCheck(b, ended) }, readTermCheck)
	if err == nil {
		defer tx.rollback(w.ctx)
		statements(&tx.queue)
		if err = tx.commit(ctx); err == nil {
			w.committed(ended)
		}
	}
	if err == nil || errors.Is(err, errFenced) {
		return err
	}
	return w.p.ownTxError(err)
}

// releaseArgs returns the arguments that identify m's row as it was read. If another member has run m since, no row matches: the row is gone, or has
// another number of attempts.
func (w *worker) releaseArgs(m *message) pg.Args {
	return pg.Args{
		"group": w.p.cfg.Group, "topic_id": m.topicID, "partition": m.partition, "offset": m.offset,
		"position": m.held.position, "attempts": m.held.attempts,
	}
}

// load reads the held keys of the partition, and when each is due.
func (w *worker) load(ctx context.Context) error {
	rows, err := w.p.cfg.Pool.Query(ctx, loadHolds, pg.Args{
		"group": w.p.cfg.Group, "topic": w.topic, "partition": w.id,
	})
	if err != nil {
		return database(err)
	}
	now := time.Now()
	var key []byte
	var wait float64
	_, err = pgx.ForEachRow(rows, []any{&key, &wait}, func() error {
		w.holds.learn(holdKey(key), now.Add(seconds(wait)))
		return nil
	})
	if err != nil {
		return database(err)
	}
	return nil
}

// heads reads the first messages of a held key, as many as fit into one transaction, and how long the first one still has to wait. If there is none,
// the key is free.
func (w *worker) heads(ctx context.Context, key holdKey) (ms []*message, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.p.statementTimeout)
	defer cancel()
	rows, err := w.p.cfg.Pool.Query(ctx, readHeads, pg.Args{
		"group": w.p.cfg.Group, "topic": w.topic, "partition": w.id, "hold_key": key[:], "limit": w.p.cfg.Batch, "bytes": backlogBytes,
	})
	if err != nil {
		return nil, 0, database(err)
	}
	defer rows.Close()
	for rows.Next() {
		m := &message{partition: w.id, epoch: -1, held: &heldRow{}}
		m.Topic = w.topic
		var headers []byte
		var left, heldFor float64
		var failingFor float64
		var unhandledFor *float64
		var stored int
		err = rows.Scan(&m.held.position, &m.topicID, &m.offset, &m.Key, &headers, &m.Payload, &m.at, &m.held.attempts, &m.held.firstFailed,
			&failingFor, &left, &heldFor, &unhandledFor, &m.held.id, &stored)
		if err != nil {
			return nil, 0, database(err)
		}
		if m.stored, m.unreadable = envelope.UnmarshalHeaders(headers); m.unreadable != nil {
			m.undecoded = headers
		} else {
			m.unreadable = m.SetHeaders(m.stored)
		}
		if m.Time.IsZero() {
			m.Time = m.at
		}
		if w.later.delay > 0 && m.unreadable == nil {
			m.unwrapHeld()
		}
		m.identify(w.p.cfg.Group)
		w.p.route(m)
		m.restoreRebuild(stored)
		m.held.failingFor, m.held.heldFor = seconds(failingFor), seconds(heldFor)
		if unhandledFor != nil {
			m.unhandledFor = seconds(*unhandledFor)
		}
		if ms = append(ms, m); len(ms) == 1 {
			wait = seconds(left)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, 0, database(err)
	}
	return ms, wait, nil
}

// retry runs the first messages of a held key, if they are due. turn is the message that represents the turn of the key.
func (w *worker) retry(turn *message) error {
	key := turn.turn
	ms, wait, err := w.heads(w.ctx, key)
	switch {
	case err != nil:
		return err
	case len(ms) == 0:
		w.holds.free(key)
		return nil
	case wait > 0:
		w.hold(key, time.Now().Add(wait))
		return nil
	}
	if w.lacksPermit(turn, ms[0]) {
		w.hold(key, time.Now())
		return nil
	}
	began := time.Now()
	n, err := w.runHeads(ms)
	locked := w.p.outage("the turn of a held key")
	if errors.Is(err, errRowsLocked) { // such as by an operator's open session: the key waits, others do not
		locked.report(err)
		w.hold(key, time.Now().Add(min(max(time.Since(began), leastLockedWait), mostLockedWait)))
		return nil
	}
	if err != nil {
		return err
	}
	locked.report(nil)
	w.tellPassed(ms[:n]...)
	w.holds.settle(key) // the next messages of the key are due at once, unless try has set a time
	return nil
}

// runHeads runs the first of a key's held messages, and returns how many have ended. Messages that were not tried before run in one transaction, so
// that messages that only waited behind a failed one are handled as fast as others. If one of them fails, the messages before it run together again,
// and the failed message runs alone once it is the first.
func (w *worker) runHeads(ms []*message) (n int, err error) {
	for n < len(ms) && ms[n].held.firstFailed == nil && ms[n].plain() && !ms[n].limited() && !w.inQuarantine(ms[n]) && ms[n].generation() == ms[0].generation() {
		n++
	}
	for n > 1 {
		err := w.runSerially(w.attempt, ms[:n])
		if !w.counts(err) {
			return n, err
		}
		var in failedIn
		if n /= 2; errors.As(err, &in) {
			n = slices.Index(ms, in.m)
		}
	}
	if err = w.try(ms[0]); isUnstorable(err) && ms[0].markUnreadable(err) {
		err = w.try(ms[0])
	}
	return 1, err
}

// rowArgs returns the columns of a message in troupe.held. A message from a retry topic is stored with the retry topic and the headers that were
// added for it: the owner of that topic's partition tries it again.
func (w *worker) rowArgs(m *message) pg.Args {
	key := m.holdKey()
	return pg.Args{
		"group": w.p.cfg.Group, "topic_id": m.topicID, "partition": m.partition, "offset": m.offset, "topic": w.topic,
		"hold_key": key[:], "key": m.Key, "headers": marshal(m.received()), "payload": m.Payload, "message_time": m.at,
		"max_attempts": w.p.policy(m).Attempts, "message_id": m.id, "redrive": m.redrive,
	}
}

// marshal encodes headers for a column of troupe.held or troupe.outbox. Without headers it returns an empty slice, since the columns are NOT NULL.
func marshal(hs []envelope.Header) []byte {
	if b := envelope.MarshalHeaders(hs); b != nil {
		return b
	}
	return []byte{}
}

// seconds returns s as a duration. It limits s to 290 years, since a duration holds no more and the lag of a deadline may be longer.
func seconds(s float64) time.Duration {
	const most = 290 * 365 * 24 * 3600
	return time.Duration(min(max(s, -most), most) * float64(time.Second))
}
