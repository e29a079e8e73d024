package relay

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/wal"
)

// discards holds the rows that an operator discarded and that a stream may read from the log again: their lines are
// deleted, and the stream began before the LSN at which they were discarded. The value is that LSN. A row that was committed
// after it was written again by the service, and is published.
type discards map[discardedRow]wal.LSN

// discardedRow identifies a row by its position and id, a row of a mapped table by its id alone.
type discardedRow struct {
	position int64
	id       uuid.UUID
}

// discarded reports whether i was discarded, and is in the log again. It ignores LSNs after s.again, where the log repeats no row: a
// restored dump may have discards of another cluster, with greater LSNs.
func (s *stream) discarded(i *item) bool {
	at, there := s.discards[discardedRow{i.row.Position, i.row.ID}]
	return there && i.commit <= min(at, s.again)
}

// load reads which rows failed, and then which rows were discarded since the stream's first LSN. This order matters:
// a row that is discarded in between is in both results, and in the other order would be in none. After s.again the log
// repeats no row, so discards are not needed.
func (s *stream) load(ctx context.Context) error {
	if err := s.ledger.load(ctx); err != nil {
		return err
	}
	s.discards = nil
	if s.published.Load() >= uint64(s.again) {
		return nil
	}
	return s.loadDiscards(ctx)
}

func (s *stream) loadDiscards(ctx context.Context) error {
	table := ""
	if s.relay.mapped != nil {
		table = s.relay.mapped.String()
	}
	rows, err := s.db.Query(ctx, listDiscards, pg.Args{"from": s.from.String(), "table": table})
	if err != nil {
		return s.relay.auditError(err)
	}
	found := make(discards)
	var row discardedRow
	var lsn string
	_, err = pgx.ForEachRow(rows, []any{&row.position, &row.id, &lsn}, func() error {
		at, err := wal.ParseLSN(lsn)
		found[row] = max(found[row], at)
		return err
	})
	if err != nil {
		return s.relay.auditError(err)
	}
	s.discards = found
	return nil
}

// auditError wraps an error of reading the discards. If the role lacks the right to read them, as with the rights of an older version, it
// logs that and returns nil, and the relay continues.
func (r *Relay) auditError(err error) error {
	if denied(err) {
		r.quiet.failed("discards", fmt.Errorf("a row that was discarded just before a crash may be published: "+
			"grant what outbox-relay grants prints: %w", err))
		return nil
	}
	return fmt.Errorf("read discards: %w", err)
}

// passOver settles the rows of a window that were discarded, so that they are not published.
func (s *stream) passOver(w *window) {
	if len(s.discards) == 0 {
		return
	}
	for n := range w.items {
		i := &w.items[n]
		if !s.discarded(i) {
			continue
		}
		i.settled = true
		s.relay.cfg.Log.Info().Int64("position", i.row.Position).Stringer("id", i.row.ID).Str("topic", i.row.Topic).
			Msg("row passed over: it was discarded, and the log has it once more")
	}
}

// unrecorded leaves out rows of a mapped table that are about to be recorded as waiting, and that the log has repeated: rows
// that have a line already, and rows whose line was discarded a moment ago. It reads lines before discards, for the same
// reason as load. A row of troupe.outbox needs no such check: a discard deletes the row itself, and a line without a row is
// never published.
func (s *stream) unrecorded(ctx context.Context, failures []failure) ([]failure, error) {
	if s.relay.mapped == nil || s.published.Load() >= uint64(s.again) {
		return failures, nil
	}
	ids := make([][16]byte, 0, len(failures))
	for _, t := range failures {
		if t.Attempts == 0 {
			ids = append(ids, t.ID)
		}
	}
	if len(ids) == 0 {
		return failures, nil
	}
	rows, err := s.db.Query(ctx, listRecordedMapped, s.relay.mapped.args(pg.Args{"ids": ids}))
	if err != nil {
		return nil, fmt.Errorf("read recorded rows: %w", err)
	}
	recorded := make(map[uuid.UUID]bool)
	var id uuid.UUID
	if _, err = pgx.ForEachRow(rows, []any{&id}, func() error { recorded[id] = true; return nil }); err != nil {
		return nil, fmt.Errorf("read recorded rows: %w", err)
	}
	if err := s.loadDiscards(ctx); err != nil {
		return nil, err
	}
	kept := failures[:0:0]
	for _, t := range failures {
		if t.Attempts == 0 && (recorded[t.ID] || s.discarded(t.item)) {
			t.item.settled = true
			continue
		}
		kept = append(kept, t)
	}
	return kept, nil
}
