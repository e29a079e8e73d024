package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/plain"
)

// schedules warns of overdue schedules: they cannot be run, or no coordinator runs them.
func (e *examination) schedules(ctx context.Context, conn *pgx.Conn) {
	const overdue = `
SELECT name, coalesce(saga, ''), coalesce(error, ''), coalesce(requested_at, next_at)
FROM troupe.schedules
WHERE (requested_at < clock_timestamp() - interval '2 minutes' OR paused_at IS NULL AND next_at < clock_timestamp() - interval '2 minutes')
ORDER BY next_at, name
LIMIT 10`
	var may bool // a role that runs no sagas needs no right to read schedules
	if conn.QueryRow(ctx, "SELECT has_table_privilege('troupe.schedules', 'SELECT')").Scan(&may) != nil || !may {
		return
	}
	rows, err := conn.Query(ctx, overdue)
	var name, saga, problem string
	var since time.Time
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&name, &saga, &problem, &since}, func() error {
			at := since.UTC().Format(time.RFC3339)
			switch {
			case problem != "":
				e.Warn("schedule", fmt.Sprintf("%s has been overdue since %s, and cannot be run: %s", name, at, plain.Line(problem, 300)),
					"correct it with troupe schedule set; it is tried again at least every 5 minutes")
			case saga != "":
				e.Warn("schedule", fmt.Sprintf("%s has been overdue since %s, and no coordinator that knows the saga type %s runs it", name, at, plain.Line(saga, 100)),
					"run a coordinator that has this type in its definitions, with the rights of outbox-relay grants saga; or pause the schedule with troupe schedule pause")
			default:
				e.Warn("schedule", fmt.Sprintf("%s has been overdue since %s, and no coordinator runs it", name, at),
					"run a coordinator on this database, with the rights of outbox-relay grants saga; or pause the schedule with troupe schedule pause")
			}
			return nil
		})
	}
	if err != nil {
		e.Warn("schedule", err.Error(), "grant the missing rights, see privileges")
	}
}
