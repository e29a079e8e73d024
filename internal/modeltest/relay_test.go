package modeltest_test

import (
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/outboxrow"
)

// relay moves the outbox's rows to the table relayed, and produces the messages that the hop itself consumes. A row is produced
// before the move commits, as by a relay that loses its acknowledgement.
func (h *history) relay() error {
	return pgx.BeginFunc(h.ctx, h.pool, func(tx pgx.Tx) error {
		found, err := tx.Query(h.ctx, "DELETE FROM troupe.outbox RETURNING "+outboxrow.Columns)
		if err != nil {
			return err
		}
		rows, err := pgx.CollectRows(found, func(r pgx.CollectableRow) (row outboxrow.Row, err error) {
			return row, r.Scan(row.Fields()...)
		})
		if err != nil {
			return err
		}
		slices.SortFunc(rows, func(a, b outboxrow.Row) int { return int(a.Position - b.Position) })
		var records []*kgo.Record
		for _, r := range rows {
			m, err := r.Message(outboxrow.Defaults{Source: h.hop.Name()})
			if err != nil {
				return err
			}
			if _, err := tx.Exec(h.ctx, `INSERT INTO relayed (position, id, topic, key, type, outcome, cause, saga_step, payload)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
				r.Position, m.ID, m.Topic, m.Key, m.Type, string(m.Outcome), m.CausationID, m.SagaStep, m.Payload); err != nil {
				return err
			}
			h.noteAnswer(m)
			if h.client != nil && h.consumes(m.Topic) {
				records = append(records, kafka.Record(m))
			}
		}
		if len(records) == 0 {
			return nil
		}
		return h.client.ProduceSync(h.ctx, records...).FirstErr()
	})
}

// consumes reports whether the hop reads a topic.
func (h *history) consumes(topic string) bool {
	return slices.Contains(h.consumed(), topic) || strings.HasPrefix(topic, h.hop.String()+".retry.")
}

// noteAnswer compares the id of an outcome with the id of the answer that the same life of the message had before the database
// was set back.
func (h *history) noteAnswer(m envelope.Message) {
	if m.Topic != h.hop.Events() || (m.Type != "Answered" && m.Type != "Refused") {
		return
	}
	of := m.CausationID + " " + m.Type
	if before, known := h.answerIDs[of]; known && before != m.ID {
		h.violate("the answer %s to message %d has id %s, and had %s", m.Type, h.numbers[m.CausationID], m.ID, before)
	}
	h.answerIDs[of] = m.ID
}
