package participant

import (
	"context"
	"errors"

	"github.com/troupe-go/troupe/internal/retention"
)

// removeRecords removes ended sagas, closed dead letters and the log of operators' actions, as a relay does, until ctx ends. A flow on Postgres alone
// has no relay.
func (l *local) removeRecords(ctx context.Context) {
	records := retention.NewRecords(l.p.cfg.Pool)
	logged := false
	l.p.repeat(ctx, "remove closed records", pruneEvery, func(ctx context.Context) error {
		_, err := records.Remove(ctx)
		if errors.Is(err, retention.ErrNotOwner) {
			if !logged {
				l.p.cfg.Log.Info().Str("reason", err.Error()).Msg("this participant removes no closed records: if no other program does, run outbox-relay retain as the owner of the tables")
			}
			logged, err = true, nil
		}
		return err
	})
}
