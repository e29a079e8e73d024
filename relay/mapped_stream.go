package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/troupe-go/troupe/internal/mapping"
	"github.com/troupe-go/troupe/internal/wal"
)

// A mappedReader reads the rows of a mapped table from the log. Only the goroutine of stream.read uses it.
type mappedReader struct {
	*mappedTable
	bound map[uint32]boundRelation // by the table's OID
}

// A boundRelation is the last Relation message for an OID, with the boundTable of its columns.
type boundRelation struct {
	relation *wal.Relation
	bound    *boundTable // nil: another table
}

// errNeedsText means that the stream has reached rows that the server must send as text, and that it sends values in the binary format: the
// table had other columns when the stream began.
var errNeedsText = errors.New("a column has a type that is read as text")

// insert adds a row of the log to the window that is being filled. It returns false, and adds nothing, for a row of another table, which a
// wider publication may contain.
func (m *mappedReader) insert(s *stream, e wal.Event) (ours bool, err error) {
	known := m.bound[e.Relation.ID]
	b := known.bound
	if known.relation != e.Relation {
		b = nil
		relation := e.Relation
		if s.converter != nil {
			if relation, err = s.converter.relation(relation); err != nil {
				return false, err
			}
		}
		if m.is(relation) {
			if b, err = m.bindRelation(context.Background(), s.relay, relation); err != nil {
				return false, err
			}
			if b.table.AsText() && !m.asText {
				return false, errNeedsText
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
	s.number++ // rows that are left out count too, so that a row has the same number each time it is read
	values := valuesOf(e.Tuple, len(b.columns))
	if s.converter != nil {
		if err = s.converter.values(b, values); err != nil {
			return false, err
		}
	}
	w := s.roomy()
	if w == nil {
		return false, errStream // the stream has ended, and its error is known
	}
	defer s.mu.Unlock()
	w.addMapped(b, values, s)
	return true, nil
}

// valuesOf returns the values of a tuple with n columns, without copying them.
func valuesOf(tuple wal.Tuple, n int) []mapping.Value {
	values := make([]mapping.Value, n)
	for n := range values {
		if format, value := tuple.Next(); format == wal.Binary || format == wal.Text {
			values[n] = mapping.Value{Data: value, Binary: format == wal.Binary}
		}
	}
	return values
}

// is reports whether r describes the mapped table. It recognises a renamed table by its object id, and one that was made again by its name.
func (m *mappedReader) is(r *wal.Relation) bool {
	return r.ID == m.oid || r.Namespace == m.schema && r.Name == m.name
}

// update handles the update of a row: as the mapping's option table.op.invalid.behavior says, it logs the update or returns an error. The
// publication that the relay creates contains no updates.
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

// addMapped adds a row that s has read to the window, unless the sweep for this slot has settled the row.
func (w *window) addMapped(b *boundTable, values []mapping.Value, s *stream) {
	start := len(w.bytes)
	for n := range values {
		if values[n].Data != nil {
			values[n].Data = w.copyValue(values[n].Data)
		}
	}
	i := b.item(values, s.commitAt)
	if b.xid && b.mapped.swept.has(&i) {
		w.bytes = w.bytes[:start]
		return
	}
	i.commitRow = s.number
	w.push(i)
}

// takeOver makes the relay continue with a slot that existed before its first start. Debezium may have read from this slot, or it was
// created by hand. The relay begins at the slot's confirmed LSN. So no row is missing, and rows that were sent after that LSN are published
// again.
func (r *Relay) takeOver(ctx context.Context, db *server, l *lease, slot slotState, system wal.System) (st storedState, err error) {
	if !slot.there || slot.walStatus == "lost" {
		return st, nil
	}
	if slot.activePID != 0 {
		return st, fmt.Errorf("slot %s is streamed by process %d of the server: stop the connector or relay that does, "+
			"or give this one a slot of its own", r.cfg.Slot, slot.activePID)
	}
	st = storedState{there: true, source: WAL, system: system.ID, timeline: system.Timeline, lsn: slot.confirmed}
	r.cfg.Log.Info().Str("slot", r.cfg.Slot).Stringer("lsn", slot.confirmed).Msg("slot taken over: it continues at its confirmed position")
	return st, r.store(ctx, db, l, st)
}
