package participant

import (
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

// A run of a handler that works outside the database (Ask, Alone) may take effect although it fails: the service did the
// work, and its response came too late. The forward call of a saga's step then has no answer, and a compensation in doubt
// must run all the same. So each failed run of such a call stores a row in troupe.answers under the operation begun, in
// the transaction that records the failure. A run that a crash ended needs no row: its message comes again, and no
// compensation of its key is handled before it.

//go:embed sql/mark_begun.sql
var markBegun string

const begun = "begun"

// outside reports whether a run of h may take effect outside the database.
func (h *handler) outside() bool { return h.ask != nil || h.alone }

// markBegun queues the row that a failed run of m stores, if m is a forward call whose effects may be outside the database.
func (p *Participant) markBegun(b *pgx.Batch, ms ...*message) {
	for _, m := range ms {
		if m.unreadable != nil || m.handler == nil || !m.handler.outside() || !m.calls(p.cfg.Hop, forward) {
			continue
		}
		k := m.stepKey(begun)
		b.Queue(markBegun, pg.Args{
			"group": p.cfg.Group, "operation": k.typ, "saga": k.key, "command_key": indexable(m.IdempotencyKey),
		})
	}
}
