package relay

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/wal"
)

// discards holds rows that an operator discarded after the stream's first LSN. Their failure records are deleted, so the stream could
// publish them when the log repeats them. The value is the LSN of the discard. If a row with the same id was committed after that LSN, the
// service wrote the row again, and it is published.
type discards map[discardedRow]wal.LSN

// A discardedRow identifies a row by its position and id. For a row of a mapped table, the position is 0.
type discardedRow struct {
	position int64
	id       uuid.UUID
}

// discarded reports whether an operator has discarded row i, which the stream has read. found has the discards of the row. The log repeats
// no row after s.repeatsUpTo, so discarded ignores greater LSNs. They may come from a restored dump, whose discards have the LSNs of another
// cluster.
func (s *stream) discarded(i *item, found discards) bool {
	at, there := found[discardedRow{i.row.Position, i.row.ID}]
	return there && i.commit <= min(at, s.repeatsUpTo)
}

// load reads which rows failed, and then whether rows were discarded since the stream's first LSN. The order matters. A row that is discarded
// between the two reads is in both results; in the other order it would be in none. Once the stream has passed s.repeatsUpTo, load looks for
// no discards, since the log repeats no row after it.
func (s *stream) load(ctx context.Context) error {
	if err := s.ledger.load(ctx); err != nil {
		return err
	}
	s.anyDiscards = false
	if s.published.Load() >= uint64(s.repeatsUpTo) {
		return nil
	}
	if err := s.db.QueryRow(ctx, anyDiscard, s.discardArgs(nil)).Scan(&s.anyDiscards); err != nil {
		return s.relay.auditError(err)
	}
	return nil
}

func (s *stream) discardArgs(args pg.Args) pg.Args {
	if args == nil {
		args = make(pg.Args)
	}
	args["from"], args["table"] = s.from.String(), ""
	if s.relay.mapped != nil {
		args["table"] = s.relay.mapped.String()
	}
	return args
}

// findDiscards reads which of the rows were discarded since the stream's first LSN. An operator may have recorded any number of other discards.
func (s *stream) findDiscards(ctx context.Context, ids [][16]byte) (discards, error) {
	rows, err := s.db.Query(ctx, listDiscards, s.discardArgs(pg.Args{"ids": ids}))
	if err != nil {
		return nil, s.relay.auditError(err)
	}
	found := make(discards)
	var row discardedRow
	var lsn string
	_, err = pgx.ForEachRow(rows, []any{&row.position, &row.id, &lsn}, func() (err error) {
		found[row], err = wal.ParseLSN(lsn)
		return err
	})
	if err != nil {
		return nil, s.relay.auditError(err)
	}
	return found, nil
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

// skipDiscarded settles the rows of a window that were discarded, so that they are not published. It does so once for each window, and once more
// after an error or after the discards were read again in deleteLaterRecords.
func (s *stream) skipDiscarded(ctx context.Context, w *window) error {
	if w.discardsSettled || !s.anyDiscards || len(w.items) == 0 || w.items[0].commit > s.repeatsUpTo {
		return nil
	}
	ids := make([][16]byte, len(w.items))
	for n := range w.items {
		ids[n] = w.items[n].row.ID
	}
	found, err := s.findDiscards(ctx, ids)
	if err != nil {
		return err
	}
	for n := range w.items {
		i := &w.items[n]
		if i.settled || !s.discarded(i, found) {
			continue
		}
		i.settled = true
		s.relay.cfg.Log.Info().Int64("position", i.row.Position).Stringer("id", i.row.ID).Str("topic", i.row.Topic).
			Msg("row passed over: it was discarded, and the log has it once more")
	}
	w.discardsSettled = true
	return nil
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
	found, err := s.findDiscards(ctx, ids)
	if err != nil {
		return nil, err
	}
	kept := failures[:0:0]
	for _, t := range failures {
		if t.Attempts == 0 && (recorded[t.ID] || s.discarded(t.item, found)) {
			t.item.settled = true
			continue
		}
		kept = append(kept, t)
	}
	return kept, nil
}
