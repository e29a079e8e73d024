package relay

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/wal"
)

// discards holds the rows that an operator discarded after the stream's first LSN. Their failure records are deleted, so the stream could
// publish them when the log repeats them. The value is the LSN of the discard. If a row with the same id was committed after that LSN, the
// service wrote the row again, and it is published.
type discards map[discardedRow]wal.LSN

// A discardedRow identifies a row by its position and id. For a row of a mapped table, the position is 0.
type discardedRow struct {
	position int64
	id       uuid.UUID
}

// discarded reports whether an operator has discarded row i, which the stream has read. The log repeats no row after s.repeatsUpTo, so
// discarded ignores greater LSNs. They may come from a restored dump, whose discards have the LSNs of another cluster.
func (s *stream) discarded(i *item) bool {
	at, there := s.discards[discardedRow{i.row.Position, i.row.ID}]
	return there && i.commit <= min(at, s.repeatsUpTo)
}

// load reads which rows failed, and then which rows were discarded since the stream's first LSN. The order matters. A row that is discarded
// between the two reads is in both results; in the other order it would be in none. Once the stream has passed s.repeatsUpTo, load reads no
// discards, since the log repeats no row after it.
func (s *stream) load(ctx context.Context) error {
	if err := s.ledger.load(ctx); err != nil {
		return err
	}
	s.discards = nil
	if s.published.Load() >= uint64(s.repeatsUpTo) {
		return nil
	}
	return s.loadDiscards(ctx)
}

// loadDiscards reads which rows were discarded since the stream's first LSN.
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

// auditError wraps an error of reading the discards. If the role lacks the right to read them, as a role with the grants of an older
// version does, auditError logs that and returns nil, so that the relay continues.
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

// unrecorded returns the failures that are to be recorded. It leaves out rows of a mapped table that the log has repeated and that only
// wait behind another row (Attempts is 0), if they have a failure record already or were discarded. It settles the rows that it leaves out.
//
// It reads the failure records before the discards, for the same reason as load. A row of troupe.outbox needs no such check: a discard
// deletes the row itself, and the failure record of a row that is gone has no effect.
func (s *stream) unrecorded(ctx context.Context, failures []failure) ([]failure, error) {
	if s.relay.mapped == nil || s.published.Load() >= uint64(s.repeatsUpTo) {
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
