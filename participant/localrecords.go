package participant

import (
	"context"
	"errors"
	"time"

	"github.com/troupe-go/troupe/internal/retention"
)

// removeRecords removes ended sagas, closed dead letters and the log of operators' actions until ctx ends, as a relay does. A flow on
// Postgres alone has no relay.
func (l *local) removeRecords(ctx context.Context) {
	failures := l.p.repeated("remove closed records")
	records := retention.NewRecords(l.p.cfg.Pool)
	tick := time.NewTicker(pruneEvery)
	defer tick.Stop()
	logged := false
	for {
		_, err := records.Remove(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, retention.ErrNotOwner) {
			if !logged {
				l.p.cfg.Log.Info().Str("reason", err.Error()).Msg("this participant removes no closed records: if no other program does, run outbox-relay retain as the owner of the tables")
			}
			logged, err = true, nil
		}
		failures.report(err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
