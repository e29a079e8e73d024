package participant

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
)

var (
	//go:embed sql/hold_failed.sql
	holdFailed string
	//go:embed sql/hold_waiting.sql
	holdWaiting string
	//go:embed sql/load_holds.sql
	loadHolds string
	//go:embed sql/read_head.sql
	readHead string
	//go:embed sql/record_attempt.sql
	recordAttempt string
	//go:embed sql/release_held.sql
	releaseHeld string
)

const maxErrorBytes = 2000

// heldRow is what a message that comes from troupe.held brings along.
type heldRow struct {
	attempts    int
	firstFailed *time.Time
}

// failure is a run that counts.
type failure struct {
	class Class
	err   error
}

// hold stores m's first failed attempt, or counts one more, and says how long to wait for the next. Where another
// member was faster, that one's row stands.
func (w *worker) hold(ctx context.Context, m *message, f failure) (wait time.Duration, err error) {
	failed := m.attempts() + 1
	if failed > w.p.cfg.Immediate {
		wait = w.p.cfg.Retry.Wait(failed - w.p.cfg.Immediate)
	}
	args := w.rowArgs(m)
	args["attempts"] = failed
	args["wait"] = wait.Seconds()
	args["class"] = string(f.class)
	args["error"] = readable(f.err.Error(), maxErrorBytes)
	sql := holdFailed
	if m.held != nil {
		sql = recordAttempt
	}
	_, err = w.p.cfg.Pool.Exec(ctx, sql, args)
	return wait, ours(err)
}

// append stores m behind what its key waits for.
func (w *worker) append(ctx context.Context, m *message) error {
	_, err := w.p.cfg.Pool.Exec(ctx, holdWaiting, w.rowArgs(m))
	return ours(err)
}

// release deletes m's row, as part of the transaction that ends its waiting. It says no where the row is gone or has
// another attempt by now: somebody else has it.
func (p *Participant) release(ctx context.Context, tx pgx.Tx, m *message) (still bool, err error) {
	tag, err := tx.Exec(ctx, releaseHeld, pgx.NamedArgs{
		"group": p.cfg.Group, "topic_id": m.topicID, "partition": m.partition, "offset": m.offset, "attempts": m.held.attempts,
	})
	return tag.RowsAffected() == 1, ours(err)
}

// load reads which keys of the partition are held, and when each is due.
func (w *worker) load(ctx context.Context) error {
	rows, err := w.p.cfg.Pool.Query(ctx, loadHolds, pgx.NamedArgs{
		"group": w.p.cfg.Group, "topic": w.topic, "partition": w.id,
	})
	if err != nil {
		return ours(err)
	}
	now := time.Now()
	var key []byte
	var wait float64
	_, err = pgx.ForEachRow(rows, []any{&key, &wait}, func() error {
		w.holds.set(holdKey(key), now.Add(seconds(wait)))
		return nil
	})
	return ours(err)
}

// head reads the message that a held key waits for, and how long it still has to. No row: the key is free.
func (w *worker) head(ctx context.Context, key holdKey) (m *message, wait time.Duration, err error) {
	m = &message{partition: w.id, held: &heldRow{}}
	m.Topic = w.topic
	var headers []byte
	var left float64
	err = w.p.cfg.Pool.QueryRow(ctx, readHead, pgx.NamedArgs{
		"group": w.p.cfg.Group, "topic": w.topic, "partition": w.id, "hold_key": key[:],
	}).Scan(&m.topicID, &m.offset, &m.Key, &headers, &m.Payload, &m.at, &m.held.attempts, &m.held.firstFailed, &left)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, ours(err)
	}
	m.stored, m.unreadable = envelope.UnmarshalHeaders(headers)
	if m.unreadable == nil {
		m.unreadable = m.SetHeaders(m.stored)
	}
	if m.Time.IsZero() {
		m.Time = m.at
	}
	m.identify()
	m.handler = w.p.handlers[w.topic][m.Type]
	return m, seconds(left), nil
}

// rowArgs are the columns that a message fills in troupe.held and troupe.dead_letters.
func (w *worker) rowArgs(m *message) pgx.NamedArgs {
	key := m.holdKey()
	return pgx.NamedArgs{
		"group": w.p.cfg.Group, "topic_id": m.topicID, "partition": m.partition, "offset": m.offset, "topic": m.Topic,
		"hold_key": key[:], "key": m.Key, "headers": marshal(m.headers()), "payload": m.Payload, "message_time": m.at,
		"max_attempts": w.p.cfg.Retry.Attempts,
	}
}

// marshal never gives nil, which the columns refuse.
func marshal(hs []envelope.Header) []byte {
	if b := envelope.MarshalHeaders(hs); b != nil {
		return b
	}
	return []byte{}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
