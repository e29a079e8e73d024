package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/troupe-go/troupe/internal/wal"
	"github.com/troupe-go/troupe/relay/mapping"
)

// A mappedReader reads the rows of a mapped table out of the log. It belongs to the goroutine that reads.
type mappedReader struct {
	*mappedTable
	bound map[uint32]boundRelation // by the table's OID
	at    time.Time                // when the transaction that is told committed
}

// A boundRelation is what the last Relation message of a table told.
type boundRelation struct {
	of    *wal.Relation
	bound *boundTable // nil: of another table
}

// insert puts a row into the window. Ours is false for rows of other tables, which a publication of more may tell.
func (m *mappedReader) insert(s *stream, e wal.Event) (ours bool, err error) {
	known := m.bound[e.Relation.ID]
	b := known.bound
	if known.of != e.Relation {
		b = nil
		if m.is(e.Relation) {
			if b, err = m.bindRelation(context.Background(), s.relay, e.Relation); err != nil {
				return false, err
			}
			if err = s.checkPublication(); err != nil {
				return false, err
			}
		}
		m.bound[e.Relation.ID] = boundRelation{e.Relation, b}
	}
	if b == nil {
		return false, nil
	}
	w := s.roomy()
	if w == nil {
		return false, errStream // it has ended, and why is known
	}
	defer s.mu.Unlock()
	w.addMapped(b, e.Tuple, &s.skip, m.at)
	return true, nil
}

func (m *mappedReader) is(r *wal.Relation) bool {
	return r.ID == m.oid || r.Namespace == m.schema && r.Name == m.name
}

// update is what table.op.invalid.behavior says. The relay's own publication tells none.
func (m *mappedReader) update(r *Relay, rel *wal.Relation) error {
	if !m.is(rel) {
		return nil
	}
	err := fmt.Errorf("a row of %s was updated: an outbox is only inserted into; see table.op.invalid.behavior", m)
	switch m.mapping.Config().OnUpdate {
	case mapping.Fatal:
		return fmt.Errorf("%w: %w", errStop, err)
	case mapping.Error:
		r.cfg.Log.Error().Err(err).Msg("passed over")
	default:
		r.cfg.Log.Warn().Err(err).Msg("passed over")
	}
	return nil
}

// addMapped reads a row of a mapped table. It is not there if what skip sees wrote it.
func (w *window) addMapped(b *boundTable, tuple wal.Tuple, skip *snapshot, at time.Time) {
	start := len(w.bytes)
	values := make([]mapping.Value, len(b.columns))
	for n := range values {
		if format, value := tuple.Next(); format == wal.Binary || format == wal.Text {
			values[n] = mapping.Value{Data: w.keep(value), Binary: format == wal.Binary}
		}
	}
	i := b.item(values, at)
	if xid := i.mapped.message.XID; b.xid && xid > 0 && skip.sees(xid) {
		w.bytes = w.bytes[:start]
		return
	}
	w.push(i)
}

// takeOver goes on with a slot that somebody else has read: Debezium, or whoever made it by hand. It begins where the slot
// stands, so nothing is missing, and what was sent behind that place comes again.
func (r *Relay) takeOver(ctx context.Context, db *server, l *lease, slot slotState, system wal.System) (st standing, err error) {
	if !slot.there || slot.walStatus == "lost" {
		return st, nil
	}
	if slot.activePID != 0 {
		return st, fmt.Errorf("slot %s is streamed by process %d of the server: stop the connector or relay that does, "+
			"or give this one a slot of its own", r.cfg.Slot, slot.activePID)
	}
	st = standing{there: true, source: WAL, system: system.ID, timeline: system.Timeline, lsn: slot.confirmed}
	r.cfg.Log.Info().Str("slot", r.cfg.Slot).Stringer("lsn", slot.confirmed).Msg("slot taken over: it goes on where it stands")
	return st, r.store(ctx, db, l, st)
}
