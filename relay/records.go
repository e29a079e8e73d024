package relay

import (
	"context"
	"errors"
	"time"

	"github.com/troupe-go/troupe/internal/retention"
)

// recordsEvery is the time between two passes over closed records.
const recordsEvery = time.Minute

// removeRecords removes closed records that are older than troupe.retention allows: ended sagas, closed dead letters, and entries of the
// log of operators' actions. A batch is one transaction: after a kill the next pass continues, see type Records of package
// internal/retention. removeRecords has a goroutine of its own, since the first pass over a large database may take an hour.
func (r *Relay) removeRecords(ctx context.Context, every time.Duration) {
	records := retention.NewRecords(r.pool)
	logged := false
	for !sleep(ctx, every, nil) && ctx.Err() == nil {
		removed, err := records.Remove(ctx)
		for kind, n := range removed {
			if n > 0 {
				r.cfg.Log.Info().Str("kind", kind).Int64("records", n).Msg("closed records removed: they are older than troupe.retention keeps them")
			}
		}
		switch {
		case ctx.Err() != nil:
		case err == nil:
			r.quiet.recovered("removal of closed records")
		case !errors.Is(err, retention.ErrNotOwner):
			r.quiet.failed("removal of closed records", err)
		case !logged: // no failure: the operator did not grant the role this right
			logged = true
			r.cfg.Log.Info().Str("reason", err.Error()).Msg("this relay removes no closed records: if no other program does, run outbox-relay retain as the owner of the tables")
		}
	}
}
