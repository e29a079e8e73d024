package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/internal/retention"
)

// leader checks that a relay publishes the outbox. It warns if an operator has paused all relays, and if rows wait that no relay publishes,
// with their number and the age of the oldest. These are no errors: outbox-relay check also runs before a relay is started.
func (e *examination) leader(ctx context.Context, conn *pgx.Conn) {
	var holder, pausedBy, pausedWhy string
	var term int64
	var active bool
	var ended *float64 // seconds since the lease ended; nil if no relay has held it
	var paused *time.Time
	err := conn.QueryRow(ctx, `
		SELECT holder, term, expires_at > clock_timestamp(),
		       CASE WHEN term > 0 THEN extract(epoch FROM clock_timestamp() - expires_at)::float8 END,
		       paused_at, coalesce(left(paused_by, 200), ''), coalesce(left(paused_why, 2000), '')
		FROM troupe.relay_leases
		WHERE shard = 0`).Scan(&holder, &term, &active, &ended, &paused, &pausedBy, &pausedWhy)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		e.Warn("publishing", err.Error(), "grant the missing rights, see privileges")
		return
	}
	if active && paused == nil {
		e.Ok("publishing", fmt.Sprintf("by %s, term %d", holder, term))
		return
	}
	var found []string
	remedy := "start outbox-relay run for this database; outbox-relay status shows its progress"
	if paused != nil {
		found = append(found, fmt.Sprintf("%s paused all relays of the outbox at %s: %s", plain.Line(pausedBy, 100), paused.UTC().Format(time.RFC3339), plain.Line(pausedWhy, 300)))
		remedy = "run outbox-relay resume when the reason of the pause is gone"
	}
	switch {
	case active:
	case holder == "": // the lease has no row, or a pause has inserted it
		found = append(found, "no relay has run for this database")
	case ended == nil:
		found = append(found, "no relay runs")
	default:
		found = append(found, fmt.Sprintf("no relay runs; %s was active until %s ago", holder, seconds(*ended)))
	}
	rows, err := retention.ReadStats(ctx, conn)
	switch {
	case err != nil:
		e.Warn("publishing", err.Error(), "grant the missing rights, see privileges")
		return
	case rows.Pending == 0:
		found = append(found, "no row waits")
	default:
		found = append(found, fmt.Sprintf("rows that wait: %d, the oldest for %s", rows.Pending, rows.Oldest.Round(time.Second)))
	}
	if text := strings.Join(found, "; "); rows.Pending > 0 || paused != nil {
		e.Warn("publishing", text, remedy)
	} else {
		e.Ok("publishing", text)
	}
}

// seconds formats a number of seconds as a duration.
func seconds(n float64) time.Duration {
	return time.Duration(n * float64(time.Second)).Round(time.Second)
}
