package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/retention"
)

// leader checks that a relay publishes the outbox. If none does, and rows wait, it reports their number and the age of the oldest.
// This is a warning: outbox-relay check also runs before a relay is started.
func (e *examination) leader(ctx context.Context, conn *pgx.Conn) {
	var holder string
	var term int64
	var active bool
	var ended *float64 // seconds since the lease ended; null if no relay has held it
	err := conn.QueryRow(ctx, `
		SELECT holder, term, expires_at > clock_timestamp(),
		       CASE WHEN term > 0 THEN extract(epoch FROM clock_timestamp() - expires_at)::float8 END
		FROM troupe.relay_leases
		WHERE shard = 0`).Scan(&holder, &term, &active, &ended)
	found := "no relay has run for this database"
	switch {
	case err == nil && active:
		e.Ok("publishing", fmt.Sprintf("by %s, term %d", holder, term))
		return
	case err == nil:
		found = "no relay runs"
		if ended != nil {
			found = fmt.Sprintf("no relay runs; %s was active until %s ago", holder, seconds(*ended))
		}
	case !errors.Is(err, pgx.ErrNoRows):
		e.Warn("publishing", err.Error(), "grant the missing rights, see privileges")
		return
	}
	rows, err := retention.ReadStats(ctx, conn)
	switch {
	case err != nil:
		e.Warn("publishing", err.Error(), "grant the missing rights, see privileges")
	case rows.Pending == 0:
		e.Ok("publishing", found+"; no row waits")
	default:
		e.Warn("publishing", fmt.Sprintf("%s; rows that wait: %d, the oldest for %s", found, rows.Pending, rows.Oldest.Round(time.Second)),
			"start outbox-relay run for this database; outbox-relay status shows its progress")
	}
}

// seconds formats a number of seconds as a duration.
func seconds(n float64) time.Duration {
	return time.Duration(n * float64(time.Second)).Round(time.Second)
}
