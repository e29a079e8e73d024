package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

// recordFailures records rows that a stream, or a sweep of a mapped table, could not publish.
func (r *Relay) recordFailures(ctx context.Context, db *server, l *lease, failures []failure) error {
	if r.mapped != nil {
		return r.mapped.recordFailures(ctx, db, l, failures)
	}
	return recordOutboxFailures(ctx, db, l, failures)
}

// maxKeptBytes is the size above which a failed row of a mapped table is not kept whole: its long values are left out. Postgres takes no
// jsonb of more than 256 MiB, and the values are in base64, which is 4/3 as long.
const maxKeptBytes = 128 << 20

// recordFailures records failures, unless the term is over. It stores the rows themselves too, since the service may delete them from its
// table.
func (t *mappedTable) recordFailures(ctx context.Context, db querier, l *lease, failures []failure) error {
	var ids [][16]byte
	var eventIDs, topics, errs, rows []string
	var keys [][]byte
	var attempts, most []int
	var waits, commits []*string
	var commitRows []*int64
	seen := make(map[uuid.UUID]bool)
	for _, one := range failures {
		row := one.item.mapped
		if seen[one.ID] { // two rows with the same id are one message
			continue
		}
		seen[one.ID] = true
		kept := row.Row
		if kept.Size() > t.maxKept {
			kept = kept.Without(t.maxKept / 2000) // a table has at most 1600 columns
		}
		text, err := json.Marshal(kept)
		if err != nil {
			return fmt.Errorf("record failures: %w", err)
		}
		eventID := row.message.EventID
		if !utf8.ValidString(eventID) {
			eventID = asciiText(eventID)
		}
		ids, eventIDs, topics = append(ids, one.ID), append(eventIDs, eventID), append(topics, one.Topic)
		keys, rows = append(keys, one.item.key), append(rows, string(text))
		attempts, most = append(attempts, one.Attempts), append(most, one.maxAttempts)
		problem := ""
		if one.Err != nil {
			problem = errorText(one.Err)
		}
		errs = append(errs, problem)
		var wait *string
		if !one.Parked && one.Attempts > 0 {
			micros := fmt.Sprintf("%d microseconds", one.Wait.Microseconds())
			wait = &micros
		}
		waits = append(waits, wait)
		var commit *string // a row that is read from the table has none
		var commitRow *int64
		if one.item.commit > 0 {
			lsn := one.item.commit.String()
			commit, commitRow = &lsn, &one.item.commitRow
		}
		commits, commitRows = append(commits, commit), append(commitRows, commitRow)
	}
	var held int
	args := l.args(t.args(pg.Args{
		"ids": ids, "event_ids": eventIDs, "topics": topics, "order_keys": keys,
		"attempts": attempts, "max_attempts": most, "waits": waits, "errors": errs, "rows": rows,
		"commits": commits, "commit_rows": commitRows,
	}))
	err := db.QueryRow(ctx, recordMappedFailures, args).Scan(&held)
	if unconvertible(err) { // as in recordOutboxFailures
		toASCII(topics, errs)
		err = db.QueryRow(ctx, recordMappedFailures, args).Scan(&held)
	}
	switch {
	case err != nil:
		return fmt.Errorf("record failures: %w", err)
	case held == 0:
		return fmt.Errorf("record failures: %w", errLost)
	}
	return nil
}

// deleteLaterRecords deletes the records of failed rows of a mapped table that come after failures of their keys in the log. Under exactly-once there
// may be such rows: a row was acknowledged, a later row of its key was recorded, the Kafka transaction was aborted, and now the earlier row
// fails. troupe.mapped_failures orders the rows of a key by the time at which they are recorded, so the earlier row would wait behind the
// later one. The stream has begun again at the checkpoint before the earlier row. So it also delivers the later row again, which is then
// recorded behind the earlier one. A record may also be gone since an operator has discarded its row. So after it the discards are read again, also
// for the rows of the present window.
func (s *stream) deleteLaterRecords(ctx context.Context, failures []failure) error {
	if s.tx == nil || s.mapped == nil {
		return nil
	}
	var keys [][]byte
	var commits []string
	var commitRows []int64
	for _, t := range failures {
		if i := t.item; !i.failedBefore && s.ledger.precedesRecorded(i) {
			keys, commits, commitRows = append(keys, i.key), append(commits, i.commit.String()), append(commitRows, i.commitRow)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	args := s.lease.args(s.mapped.args(pg.Args{"order_keys": keys, "commits": commits, "commit_rows": commitRows}))
	var held int
	switch err := s.db.QueryRow(ctx, deleteLaterMapped, args).Scan(&held); {
	case err != nil:
		return fmt.Errorf("delete the records of later failures: %w", err)
	case held == 0:
		return fmt.Errorf("delete the records of later failures: %w", errLost)
	}
	if s.now != nil {
		s.now.discardsSettled = false
	}
	return s.load(ctx)
}

// clearCommits sets the commit LSN of all failed rows to null, so that these rows come before every row that a new slot delivers.
// pollUntilSlot calls it after it has created a slot: in a restored dump the LSNs would be of another cluster. If the relay dies before it
// has stored the new slot, the next relay creates a slot again: no stream uses the old LSNs any more.
func (t *mappedTable) clearCommits(ctx context.Context, db querier, l *lease) error {
	if _, err := db.Exec(ctx, clearMappedCommits, l.args(t.args(nil))); err != nil {
		return fmt.Errorf("clear the commits of failed rows: %w", err)
	}
	return nil
}

// sweepOrder returns the number by which a sweep orders the rows of the table: the mapping's position, or else its timestamp in
// microseconds. It returns unknown if the row has neither.
func (m *mappedRow) sweepOrder(t *mappedTable, unknown int64) int64 {
	cfg := t.mapping.Config()
	switch at := m.message.Timestamp; {
	case cfg.Position != "" && (m.err == nil || m.message.Position != 0):
		return m.message.Position
	case cfg.Position != "" || cfg.Timestamp == "":
	case !at.IsZero():
		return at.UnixMicro()
	case m.err == nil:
		return math.MaxInt64 // null sorts last
	}
	return unknown
}

// due reads the failed rows that may be published now: rows whose next try is due, and waiting rows that nothing blocks any more. Of the waiting
// rows it reads only the ones whose position in troupe.mapped_failures is above the parameter after. It applies the mapping to each row again,
// since the mapping may have changed since the row was recorded.
func (t *mappedTable) due(ctx context.Context, db *server, after int64, service string) ([]*item, error) {
	rows, err := db.Query(ctx, claimMappedFailures, t.args(pg.Args{"rows": 1000, "after": after, "bytes": claimBytes}))
	if err != nil {
		return nil, fmt.Errorf("claim failed rows: %w", err)
	}
	items, err := pgx.CollectRows(rows, func(one pgx.CollectableRow) (*item, error) {
		var position int64
		var id [16]byte
		var kept []byte
		was := item{}
		if err := one.Scan(&position, &id, &was.key, &kept, &was.attempts, &was.failingFor, &was.maxAttempts); err != nil {
			return nil, err
		}
		row := &mappedRow{}
		if err := json.Unmarshal(kept, &row.Row); err != nil {
			return nil, fmt.Errorf("position %d: %w", position, err)
		}
		row.message, row.err = row.Message(t.mapping)
		i := row.item(t, service)
		i.row.Position, i.row.ID, i.key = position, id, was.key // as recorded, since rows wait behind that key
		i.failedBefore, i.attempts, i.failingFor, i.maxAttempts = true, was.attempts, was.failingFor, was.maxAttempts
		return &i, nil
	})
	if err != nil {
		return nil, fmt.Errorf("claim failed rows: %w", err)
	}
	return items, nil
}

// cure deletes the failure records of rows that were published. The error wraps errLost when the term is over.
func (t *mappedTable) cure(ctx context.Context, db querier, l *lease, ids [][16]byte) error {
	var held int
	switch err := db.QueryRow(ctx, cureMappedFailures, l.args(t.args(pg.Args{"ids": ids}))).Scan(&held); {
	case err != nil:
		return fmt.Errorf("delete the failure records of published rows: %w", err)
	case held == 0:
		return fmt.Errorf("delete the failure records of published rows: %w", errLost)
	}
	return nil
}
