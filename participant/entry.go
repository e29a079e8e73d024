package participant

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/internal/pg"
)

// localPartition is the partition of a local message; its offset is the entry's position.
const localPartition = outboxrow.LocalPartition

// entry holds a message's row of troupe.local_work as this participant has claimed it.
type entry struct {
	key     holdKey
	term    int32
	crashes int
	behind  []*message // later messages of its key that were claimed with it
	waits   bool       // its run failed, and the messages behind it were released
	lost    bool       // another member has it, or an earlier entry of its key
}

// claimBytes limits the size of one claim's entries, in bytes. The last entry may exceed it; an entry may have 8 MiB.
const claimBytes = 4 << 20

// maxType is the largest length of an entry's type, in bytes, as of a message in Kafka.
const maxType = 1024

// settings apply to the transaction of a claim. They have three purposes. The transaction does not wait for the disk: a claim that a crash of the
// server loses counts as never made. The claim uses the indexes, whatever the statistics are of a table that was empty a moment ago. Its columns are
// in UTF-8, as Go's strings are.
const settings = `
SELECT set_config('synchronous_commit', 'off', true), set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('client_encoding', CASE current_setting('server_encoding') WHEN 'UTF8' THEN 'UTF8' ELSE current_setting('client_encoding') END, true)`

// exec executes a statement in a transaction of its own, in one round trip.
func (l *local) exec(ctx context.Context, sql string, args pg.Args) error {
	var b pgx.Batch
	b.Queue(beginCommitted)
	b.Queue(sql, args)
	b.Queue("commit")
	return l.p.cfg.Pool.SendBatch(ctx, &b).Close()
}

// claim claims entries of two kinds: entries whose next try is due, and entries without a next try. It reads the second kind in the order of their
// keys, beginning with the key from. If dueFirst is true, entries of the first kind come first. If quarantine is true, an entry may be claimed that
// was in progress when its participant died; that entry then comes alone. large is true if claimBytes may have kept entries out of the claim.
func (l *local) claim(from []byte, dueFirst, quarantine bool) (ms []*message, large bool, err error) {
	ctx, cancel := context.WithTimeout(l.ctx, statementLimit)
	defer cancel()
	now, before := l.numbers()
	if now == 0 {
		return nil, false, nil
	}
	size := 0
	var b pgx.Batch
	b.Queue(beginCommitted)
	b.Queue(settings)
	b.Queue(claimLocal, pg.Args{
		"group": l.p.cfg.Group, "from": from, "due_first": dueFirst, "limit": l.p.cfg.Batch, "bytes": claimBytes, "quarantine": quarantine,
		"stale": l.p.cfg.Stale.Seconds(), "class": int32(memberClass), "member": now, "own": before, "max_attempts": l.p.cfg.Retry.Attempts,
		"topics": l.consumedTopics(), "unconsumed": l.knownUnconsumed(), "topic_class": int32(topicClass), "types": l.types,
		"yield": unhandledYield.Seconds(),
	})
	b.Queue("commit")
	results := l.p.cfg.Pool.SendBatch(ctx, &b)
	if _, err = results.Exec(); err == nil {
		_, err = results.Exec()
	}
	if err == nil {
		rows, _ := results.Query()
		for rows.Next() {
			m, err := l.scan(rows)
			if err != nil {
				rows.Close()
				l.renew()
				return nil, false, errors.Join(err, results.Close())
			}
			ms = append(ms, m)
			for _, value := range rows.RawValues() {
				size += len(value)
			}
		}
		err = rows.Err()
	}
	if err = errors.Join(err, ignore(results.Close(), err)); err != nil {
		l.renew() // the claim may have been committed nevertheless
		return nil, false, err
	}
	slices.SortFunc(ms, func(a, b *message) int { // so that the entries of a key are adjacent and in order
		return cmp.Or(bytes.Compare(a.entry.key[:], b.entry.key[:]), cmp.Compare(a.offset, b.offset))
	})
	last := make(map[holdKey][]*message, len(ms))
	for _, m := range ms {
		for _, before := range last[m.entry.key] {
			before.entry.behind = append(before.entry.behind, m)
		}
		last[m.entry.key] = append(last[m.entry.key], m)
	}
	return ms, size > claimBytes/2, nil
}

func (l *local) scan(rows pgx.Rows) (*message, error) {
	m := &message{partition: localPartition, epoch: -1, held: &heldRow{}, entry: &entry{}}
	var r outboxrow.Row
	var key []byte
	var failingFor, unhandledFor float64
	err := rows.Scan(append(r.Fields(), &key, &m.held.attempts, &m.held.firstFailed, &m.entry.term, &m.entry.crashes, &failingFor, &unhandledFor)...)
	if err != nil {
		return nil, err
	}
	m.entry.key = holdKey(key)
	m.held.failingFor, m.unhandledFor = seconds(failingFor), seconds(unhandledFor)
	if m.held.firstFailed == nil {
		m.held = nil
	}
	m.offset, m.at, m.topicID = r.Position, r.CreatedAt, outboxrow.LocalTopicID(r.Topic)
	if m.Message, err = r.Message(outboxrow.Defaults{Source: l.p.cfg.Source}); err != nil {
		m.unreadable = err
		m.ID, m.Type = r.ID.String(), r.Type
	}
	if len(r.Type) > maxType {
		m.unreadable = fmt.Errorf("the type has %d bytes: want at most %d", len(r.Type), maxType)
	}
	m.stored = m.Headers()
	m.identify(l.p.cfg.Group)
	l.p.route(m)
	return m, nil
}

// giveBack releases the entries of ms that have not ended, so that they can be claimed again. They have not ended because Run must stop or a
// dependency is away.
func (l *local) giveBack(ms []*message, ended map[*message]bool) {
	ms = slices.DeleteFunc(slices.Clone(ms), func(m *message) bool { return ended[m] })
	if len(ms) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), releaseLimit)
	defer cancel()
	if err := l.exec(ctx, returnLocal, l.args(ms)); err != nil {
		l.mu.Lock()
		l.kept = append(l.kept, ms...)
		l.mu.Unlock()
		l.p.cfg.Log.Warn().Err(err).Int("entries", len(ms)).
			Msg("local work not given back: that is tried again before the next claim; if this process ends before, it will be taken for crashed")
	}
}

// giveBackKept releases the entries that giveBack could not release. While this participant lives, no other one takes them over until they are stale.
func (l *local) giveBackKept() error {
	l.mu.Lock()
	ms := l.kept
	l.kept = nil
	l.mu.Unlock()
	if len(ms) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(l.ctx, statementLimit)
	defer cancel()
	err := l.exec(ctx, returnLocal, l.args(ms))
	if err != nil {
		l.mu.Lock()
		l.kept = append(l.kept, ms...)
		l.mu.Unlock()
	}
	return err
}

// args returns the arguments that identify entries: their positions, and the terms under which they were claimed.
func (l *local) args(ms []*message) pg.Args {
	positions, terms := make([]int64, len(ms)), make([]int32, len(ms))
	for i, m := range ms {
		positions[i], terms[i] = m.offset, m.entry.term
	}
	return pg.Args{"group": l.p.cfg.Group, "positions": positions, "terms": terms}
}

func (l *local) endArgs(ms []*message, f *failure) pg.Args {
	args := l.args(ms)
	args["attempts"], args["class"], args["error"], args["max_attempts"] = 0, nil, nil, nil
	if f != nil {
		args["max_attempts"] = l.p.policy(ms[0]).Attempts
		args["attempts"], args["class"] = ms[0].attempts()+1, string(f.class)
		args["error"] = l.p.errorText(*f)
	}
	return args
}

// queueEnd queues the statement that ends the entries of ms. The statement locks their rows until the transaction ends. It does not find an entry
// that was taken over, since that entry has another term.
func (l *local) queueEnd(b *pgx.Batch, ms []*message, f *failure) (read func(pgx.BatchResults) ([]*message, error)) {
	idle := l.p.cfg.Timeout + wedgedAfter
	b.Queue("SELECT set_config('idle_in_transaction_session_timeout', $1, true)", fmt.Sprint(idle.Milliseconds()))
	b.Queue(endLocal, l.endArgs(ms, f))
	ages := f != nil && ms[0].lacksHandler() && ms[0].deadline == nil
	if ages {
		b.Queue(ageLocal, l.ageArgs(ms[0], f))
	}
	return func(results pgx.BatchResults) (mine []*message, err error) {
		if _, err := results.Exec(); err != nil {
			return nil, err
		}
		rows, _ := results.Query()
		still := make(map[int64]bool, len(ms))
		var position int64
		if _, err = pgx.ForEachRow(rows, []any{&position}, func() error { still[position] = true; return nil }); err != nil {
			return nil, err
		}
		if ages {
			if _, err := results.Exec(); err != nil {
				return nil, err
			}
		}
		for _, m := range ms {
			if (still[m.offset] || m.txEnded != nil) && !m.entry.lost {
				mine = append(mine, m)
				continue
			}
			m.entry.lost = true
			for _, b := range m.entry.behind {
				b.entry.lost = true
			}
		}
		return mine, nil
	}
}

// record stores a failed run of m, and releases the entries behind m in the same statement, so that they are never seen in progress while m waits.
func (l *local) record(m *message, f failure) error {
	ctx, cancel := context.WithTimeout(l.ctx, l.p.statementTimeout)
	defer cancel()
	wait := l.p.waitAfter(m, f)
	args := l.args(append([]*message{m}, m.entry.behind...))
	args["position"], args["attempts"], args["wait"] = m.offset, f.attempts(m), wait.Seconds()
	args["unhandled"] = m.lacksHandler()
	args["max_attempts"] = l.p.policy(m).Attempts
	args["class"], args["error"] = string(f.class), l.p.errorText(f)
	l.p.letterArgs(m, args)
	if err := l.exec(ctx, retryLocal, args); err != nil {
		return l.p.ownTxError(err)
	}
	m.entry.waits = true
	if m.lacksHandler() {
		wait += unhandledYield
	}
	time.AfterFunc(wait, l.hint)
	return nil
}

func (l *local) committed([]*message) {}
func (l *local) pause()               {} // the gate is shut: may returns false
func (l *local) resume()              { l.hint() }
func (l *local) fenced()              {}
func (l *local) tryOne() {
	l.try.Store(true)
	l.hint()
}
