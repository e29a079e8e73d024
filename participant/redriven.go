package participant

import (
	_ "embed"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/inbox"
	"github.com/troupe-go/troupe/internal/pg"
)

// A redriven message is no duplicate of its earlier deliveries, since each of them is a dead letter. After the database was set back,
// by a failover to a standby that lagged or by a restore, this need not be so: the dead letter and the redrive are lost, but Kafka has
// both messages. The first is read again, and if it takes effect now, the redriven one must not.

//go:embed sql/find_effective.sql
var findEffective string

// findEffective queues the query for the redriven messages of which an earlier delivery took effect, if any was redriven.
func (p *Participant) findEffective(b *pgx.Batch, ms []*message) (queued bool) {
	var identities, messageIDs []string
	var redrives []int32
	var slotsOf []*int16
	var uuids []*uuid.UUID
	for _, m := range ms {
		if m.redrive == 0 {
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

// dropEffective removes the messages that the query returns from known, the identities that are new. Their rows stay in the inbox.
func (p *Participant) dropEffective(results pgx.BatchResults, known map[identity]bool) error {
	rows, _ := results.Query()
	var i identity
	_, err := pgx.ForEachRow(rows, []any{&i.id, &i.redrive}, func() error {
		if known[i] {
			delete(known, i)
			p.cfg.Log.Warn().Str("message_id", i.id).Int("redrive", i.redrive).
				Msg("redriven message passed over: an earlier delivery of it took effect, after the database had lost its dead letter")
		}
		return nil
	})
	return err
}
