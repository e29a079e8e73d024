package watch

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var (
	//go:embed sql/next_chunk.sql
	nextChunk string
	//go:embed sql/judge_by_cause.sql
	judgeByCause string
	//go:embed sql/judge_by_key.sql
	judgeByKey string
)

const (
	// chunk is the approximate number of messages that are judged in one transaction.
	chunk = 20_000
	// mostTold limits how many findings of one transaction are passed to Config.Found.
	mostTold = 100
	// pruneAgain is the time after which prune tries again to empty a slot that a transaction reads.
	pruneAgain = 10 * time.Minute
)

// judge finds answers that were due by upTo and are missing. All records that the brokers had at that time are stored.
func (s *session) judge(ctx context.Context, upTo time.Time) error {
	upTo = upTo.Truncate(time.Microsecond)
	if !time.Now().Before(s.pruneAt) {
		if err := s.prune(ctx); err != nil {
			return err
		}
	}
	for _, within := range limits(s.rules) {
		for to := upTo.Add(-within); ; {
			end, err := s.judgeSome(ctx, within, to)
			if err != nil {
				return fmt.Errorf("judge: %w", err)
			}
			if end {
				break
			}
		}
	}
	_, err := s.cfg.Pool.Exec(ctx, "UPDATE troupe.watch_flows SET seen_at = $2 WHERE flow = $1", s.flow, upTo)
	return err
}

// judgeSome judges the next messages by the rules of one time limit. end reports that none is left.
func (s *session) judgeSome(ctx context.Context, within time.Duration, to time.Time) (end bool, err error) {
	var found []Finding
	err = pgx.BeginFunc(ctx, s.cfg.Pool, func(tx pgx.Tx) error {
		if err := s.lockDeclarations(ctx, tx); err != nil {
			return err
		}
		const mark = `INSERT INTO troupe.watch_marks AS m (flow, within, judged) VALUES ($1, $2, 'epoch')
			ON CONFLICT (flow, within) DO UPDATE SET judged = m.judged RETURNING judged`
		var from time.Time
		if err := tx.QueryRow(ctx, mark, s.flow, within).Scan(&from); err != nil {
			return err
		}
		if !from.Before(to) {
			end = true
			return nil
		}
		args := pgx.NamedArgs{"flow": s.flow, "from": from, "to": to, "slots": slotsOf(from, to), "most": chunk}
		err := tx.QueryRow(ctx, nextChunk, args).Scan(&to)
		if end = errors.Is(err, pgx.ErrNoRows); err != nil && !end {
			return err
		}
		foundAt := time.Now().UTC().Truncate(time.Microsecond)
		args["to"], args["within"], args["found_at"] = to, within, foundAt
		args["answer_slots"] = slotsOf(from.Add(-day), time.Now())
		n, err := s.applyRules(ctx, tx, within, args)
		if err != nil {
			return err
		}
		if n > 0 {
			if found, err = readFindings(ctx, tx, s.rules, s.flow, findingFilter{foundAt: &foundAt, most: mostTold}); err != nil {
				return err
			}
		}
		if int(n) > len(found) {
			s.cfg.Log.Warn().Str("flow", s.cfg.Flow).Int64("findings", n).Int("told", len(found)).
				Msg("more findings than are logged one by one")
		}
		_, err = tx.Exec(ctx, "UPDATE troupe.watch_marks SET judged = $3 WHERE flow = $1 AND within = $2", s.flow, within, to)
		return err
	})
	if err != nil {
		return false, err
	}
	s.open = s.open || len(found) > 0
	if to.After(s.floor) {
		s.floor = to
	}
	s.tell(ctx, found)
	return end, nil
}

// applyRules applies the rules by cause and the rules by key, and returns the number of findings.
func (s *session) applyRules(ctx context.Context, tx pgx.Tx, within time.Duration, args pgx.NamedArgs) (n int64, err error) {
	for _, by := range []struct {
		sql string
		key bool
	}{{judgeByCause, false}, {judgeByKey, true}} {
		var rules, topics, types, answerRules, answerTopics, answerTypes []int32
		for i, r := range s.rules {
			if r.within != within || r.byKey != by.key {
				continue
			}
			for _, m := range r.on {
				rules, topics, types = append(rules, int32(i)), append(topics, s.names[m.topic]), append(types, s.names[m.typ])
			}
			for _, m := range r.answers {
				answerRules = append(answerRules, int32(i))
				answerTopics, answerTypes = append(answerTopics, s.names[m.topic]), append(answerTypes, s.names[m.typ])
			}
		}
		if len(rules) == 0 {
			continue
		}
		if by.key { // the expected message may be older than the message after which it is expected
			args["answer_slots"] = slotsOf(time.Time{}, time.Now())
		}
		args["rules"], args["topics"], args["types"] = rules, topics, types
		args["answer_rules"], args["answer_topics"], args["answer_types"] = answerRules, answerTopics, answerTypes
		tag, err := tx.Exec(ctx, by.sql, args)
		if err != nil {
			return n, err
		}
		n += tag.RowsAffected()
	}
	return n, nil
}

func dayOf(at time.Time) int { return int(at.Unix() / int64(day/time.Second)) }

// slotsOf returns the slots that hold the messages of a span of time.
func slotsOf(from, to time.Time) []int16 {
	first, last := dayOf(from), dayOf(to)
	if last-first >= ring {
		first = last - ring + 1
	}
	var slots []int16
	for d := first; d <= last; d++ {
		slots = append(slots, int16(d%ring))
	}
	return slots
}

// slot returns the slot for messages of that time. The first message of a day empties it.
func (s *session) slot(ctx context.Context, at time.Time) (int16, error) {
	d := dayOf(at)
	if s.days[d] {
		return int16(d % ring), nil
	}
	if err := s.take(ctx, d); err != nil {
		return 0, err
	}
	s.days[d] = true
	return int16(d % ring), nil
}

// take assigns the day's slot to it.
func (s *session) take(ctx context.Context, d int) error {
	return s.empty(ctx, d%ring, func(was int) (int, bool) { return d, was < d })
}

// empty truncates a slot if now says so for its present day, and assigns another day to it.
func (s *session) empty(ctx context.Context, slot int, now func(was int) (is int, empty bool)) error {
	err := pgx.BeginFunc(ctx, s.cfg.Pool, func(tx pgx.Tx) error {
		var was int
		if err := tx.QueryRow(ctx, "SELECT day FROM troupe.watch_days WHERE slot = $1 FOR UPDATE", slot).Scan(&was); err != nil {
			return err
		}
		is, empty := now(was)
		if !empty {
			return nil
		}
		// TRUNCATE waits for transactions that have read messages. The slot of a new day is usually empty: then it needs no TRUNCATE.
		const filled = "SELECT EXISTS (SELECT FROM troupe.watch_messages WHERE slot = $1) OR EXISTS (SELECT FROM troupe.watch_findings WHERE slot = $1)"
		var truncate bool
		if err := tx.QueryRow(ctx, filled, slot).Scan(&truncate); err != nil {
			return err
		}
		if truncate {
			const sql = "SET LOCAL lock_timeout = '5s'; TRUNCATE troupe.watch_messages_%d, troupe.watch_findings_%d"
			if _, err := tx.Exec(ctx, fmt.Sprintf(sql, slot, slot)); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, "UPDATE troupe.watch_days SET day = $2 WHERE slot = $1", slot, is)
		return err
	})
	if err != nil {
		return fmt.Errorf("empty slot %d: %w", slot, err)
	}
	return nil
}

// prune empties the slots of days that are past the retention. It is called when a session begins and after each midnight (UTC), and every
// pruneAgain while a transaction that reads messages, such as a dump, keeps a slot from being emptied.
func (s *session) prune(ctx context.Context) error {
	now := time.Now()
	s.pruneAt = now.Truncate(24 * time.Hour).Add(24 * time.Hour)
	oldest := dayOf(now.Add(-s.cfg.Retention))
	for slot := range ring {
		err := s.empty(ctx, slot, func(was int) (int, bool) { return 0, was > 0 && was < oldest })
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == "55P03" { // lock_not_available
			s.cfg.Log.Warn().Err(err).Str("flow", s.cfg.Flow).
				Msg("messages past the retention are not deleted yet: a transaction that has read messages is open, see pg_stat_activity")
			s.pruneAt = now.Add(pruneAgain)
			break // the transaction has read the other slots, too: each would wait 5 s
		}
		if err != nil {
			return err
		}
	}
	const forgotten = "DELETE FROM troupe.watch_unexpected WHERE flow = $1 AND last_at < $2"
	if _, err := s.cfg.Pool.Exec(ctx, forgotten, s.flow, now.Add(-s.cfg.Retention)); err != nil {
		return err
	}
	clear(s.days)
	_, err := s.slot(ctx, now)
	return err
}
