package relay

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/wal"
)

// discards are the rows that an operator discarded and that a stream may read from the log once more: their line in trouble is
// gone, and the stream began before the LSN at which they were discarded. Each has that LSN: a row that was committed behind it
// is another one, written by the service again, and is published.
type discards map[discarded]wal.LSN

// A discarded row is known by its position and id, a row of a mapped table by its id alone.
type discarded struct {
	position int64
	id       uuid.UUID
}

func (d discards) has(i *item) bool {
	at, there := d[discarded{i.row.Position, i.row.ID}]
	return there && i.commit <= at
}

// load reads what rows are in trouble, and then which of them were discarded since the stream's first LSN: a row that is
// discarded in between is in both. Behind s.again no row is read for a second time.
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
	var row discarded
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

// auditError returns nil where the role may not read the discards: a relay whose rights are of an older version goes on, and logs it.
func (r *Relay) auditError(err error) error {
	if denied(err) {
		r.quiet.failed("discards", fmt.Errorf("a row that was discarded just before a crash may be published: "+
			"grant what outbox-relay grants prints: %w", err))
		return nil
	}
	return fmt.Errorf("read discards: %w", err)
}

// passOver settles the rows of a window that were discarded.
func (s *stream) passOver(w *window) {
	if len(s.discards) == 0 {
		return
	}
	for n := range w.items {
		i := &w.items[n]
		if !s.discards.has(i) {
			continue
		}
		i.settled = true
		s.relay.cfg.Log.Info().Int64("position", i.row.Position).Stringer("id", i.row.ID).Str("topic", i.row.Topic).
			Msg("row passed over: it was discarded, and the log has it once more")
	}
}

// unrecorded leaves out rows of a mapped table that are about to wait, and that the log has once more: rows that have
// a line already, and rows whose line was discarded a moment ago. Lines are read before discards, for the reason of load. A row
// of troupe.outbox needs no such care: its discard removes the row itself, and a line without a row is never published.
func (s *stream) unrecorded(ctx context.Context, troubled []trouble) ([]trouble, error) {
	if s.relay.mapped == nil || s.published.Load() >= uint64(s.again) {
		return troubled, nil
	}
	ids := make([][16]byte, 0, len(troubled))
	for _, t := range troubled {
		if t.Attempts == 0 {
			ids = append(ids, t.ID)
		}
	}
	if len(ids) == 0 {
		return troubled, nil
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
	kept := troubled[:0:0]
	for _, t := range troubled {
		if t.Attempts == 0 && (recorded[t.ID] || s.discards.has(t.item)) {
			t.item.settled = true
			continue
		}
		kept = append(kept, t)
	}
	return kept, nil
}

// discardedRow reports whether the row of a checkpoint was discarded: then it is of this server, though its table has it no more.
func (t *transactor) discardedRow(ctx context.Context, at checkpoint) (there bool, err error) {
	err = t.db.QueryRow(ctx, findDiscard, pg.Args{"position": at.position, "id": at.id}).Scan(&there)
	if err != nil {
		return false, t.relay.auditError(err)
	}
	return there, nil
}
