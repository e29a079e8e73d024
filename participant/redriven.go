package participant

import (
	_ "embed"
	"maps"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/inbox"
	"github.com/troupe-go/troupe/internal/pg"
)

// A redriven message is normally no duplicate of its earlier deliveries, since each of these is a dead letter. After the database was set back, by a
// failover to a standby that lagged or by a restore, this need not be so: the dead letter and the redrive are lost, but Kafka has both messages. Both
// are read again, and only the first one that succeeds must take effect. Usually that is the earlier message, which comes first. It can be the
// redriven one if the earlier message fails again and does not hold a key: its handler has retry topics, or it has no key.
//
// Likewise a message takes effect once if a rebuild has handled it and its earlier dead letter is redriven later.

//go:embed sql/find_effective.sql
var findEffective string

// mayHaveTwin reports whether another delivery of m may have taken effect after the database was set back: m was redriven, or m is tried again
// without an order (on a retry topic, or held without a key).
func (m *message) mayHaveTwin() bool {
	if m.rebuilt {
		return false
	}
	return m.redrive > 0 || m.again.stage > 0 || m.held != nil && m.Key == nil
}

// findEffective queues the query for other deliveries that took effect, if any of the messages may have one.
func (p *Participant) findEffective(b *pgx.Batch, ms []*message) (queued bool) {
	var identities, messageIDs []string
	var redrives []int32
	var slotsOf []*int16
	var uuids []*uuid.UUID
	for _, m := range ms {
		if !m.mayHaveTwin() {
			continue
		}
		identities, redrives, messageIDs = append(identities, m.id), append(redrives, int32(m.redrive)), append(messageIDs, inbox.ID(m.ID))
		var slot *int16
		var recent *uuid.UUID
		if id, day, ok := inbox.Recent(m.id); ok {
			of := int16(day % slots)
			slot, recent = &of, &id
		}
		slotsOf, uuids = append(slotsOf, slot), append(uuids, recent)
	}
	if len(identities) == 0 {
		return false
	}
	b.Queue(findEffective, pg.Args{
		"group": p.cfg.Group, "identities": identities, "redrives": redrives, "message_ids": messageIDs, "slots": slotsOf, "uuids": uuids,
	})
	return true
}

// dropTwins removes an identity from known, which holds the identities that are new to the inbox, if another delivery of its message took effect. The
// identity's row stays in the inbox. If both deliveries are in this transaction, the earlier one is kept.
func (p *Participant) dropTwins(results pgx.BatchResults, known map[identity]bool) error {
	inserted := maps.Clone(known)
	rows, _ := results.Query()
	var i identity
	var other int
	_, err := pgx.ForEachRow(rows, []any{&i.id, &i.redrive, &other}, func() error {
		if known[i] && (other < i.redrive || !inserted[identity{i.id, other}]) {
			delete(known, i)
			p.cfg.Log.Warn().Str("message_id", i.id).Int("redrive", i.redrive).Int("other", other).
				Msg("message passed over: another delivery of it took effect, before or after a redrive that the database had lost")
		}
		return nil
	})
	return err
}
