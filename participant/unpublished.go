package participant

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed sql/unpublished.sql
var unpublishedSQL string

const (
	unpublishedFor  = time.Minute      // age of the oldest row at which a line is logged
	unpublishedWarn = 10 * time.Minute // time between two log lines
)

// unpublished describes the rows of the outbox that wait while no relay is active.
type unpublished struct {
	rows   int // up to 10,000
	oldest time.Duration
	ran    bool // a relay has run before
}

func (p *Participant) findUnpublished(ctx context.Context) (u unpublished, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	var oldest float64
	err = p.cfg.Pool.QueryRow(ctx, unpublishedSQL).Scan(&u.rows, &oldest, &u.ran)
	u.oldest = seconds(oldest)
	return u, err
}

// warnUnpublished logs that rows of the outbox wait and no relay publishes them. warned reports whether it has logged a line. It logs none if the
// role may not read the tables, as with the grants of an earlier version.
func (p *Participant) warnUnpublished(ctx context.Context) (warned bool, err error) {
	u, err := p.findUnpublished(ctx)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "42501" {
		return false, nil
	}
	if err != nil || u.oldest < unpublishedFor {
		return false, err
	}
	why := "no relay has run for this database"
	if u.ran {
		why = "no relay runs for this database any more"
	}
	p.cfg.Log.Error().Int("rows", u.rows).Dur("oldest_ms", u.oldest.Round(time.Second)).
		Msg("the outbox is not published: " + why + ": start outbox-relay run; outbox-relay status shows its state")
	return true, nil
}
