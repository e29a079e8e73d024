package participant

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/troupe-go/troupe/internal/retention"
)

// Entries of local work get their positions from the outbox, whose partitions have room for a limited number of positions. When none is
// left, each insert into the outbox fails. A relay adds partitions ahead of time. A flow on Postgres alone has no relay, so its members add
// them.

const (
	// lowHeadroom is the least number of free positions in the outbox. If fewer are left and the member's role may not add partitions, the member
	// logs an error.
	lowHeadroom = 5_000_000
	// headroomWarn is the number of tries between two such lines.
	headroomWarn = 10
)

// keepPartitions adds partitions to the outbox ahead of time until ctx ends.
func (l *local) keepPartitions(ctx context.Context) {
	n := 0
	l.p.repeat(ctx, "add partitions to the outbox", pruneEvery, func(ctx context.Context) error {
		headroom, err := l.ensurePartitions(ctx)
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == "42501" && headroom != 0 { // the owner must add them, or a relay of the owner
			if headroom < lowHeadroom && n%headroomWarn == 0 {
				l.p.cfg.Log.Error().Int64("positions", headroom).Msg("the outbox has few positions left, and this role may not add partitions: " +
					"when none is left, each insert into the outbox fails; have the owner of Troupe's tables run outbox-relay migrate, or run a " +
					"relay or a participant with Local as the owner")
			}
			err = nil
		}
		n++
		return err
	})
}

// ensurePartitions adds the missing partitions. It returns the number of positions left; 0 if it is not known.
func (l *local) ensurePartitions(ctx context.Context) (headroom int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	return retention.Partitions{}.Ensure(ctx, l.p.cfg.Pool)
}
