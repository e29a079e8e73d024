package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// rebuilds warns of rebuilds of which a partition has not begun for minutes, and of ones that have run for more than a day: a topic may be
// gone, or its last messages deleted, so that they never end.
func (e *examination) rebuilds(ctx context.Context, conn *pgx.Conn) {
	const open = `
SELECT r.id, r.consumer_group, r.started_at, count(*) FILTER (WHERE p.until IS NULL)
FROM troupe.rebuilds AS r
JOIN troupe.rebuild_partitions AS p ON p.rebuild = r.id
WHERE r.finished_at IS NULL AND r.started_at < clock_timestamp() - interval '5 minutes'
GROUP BY r.id
HAVING count(*) > count(p.until) OR r.started_at < clock_timestamp() - interval '1 day'
ORDER BY r.id
LIMIT 10`
	var may bool // an outbox alone needs no right to read rebuilds
	if conn.QueryRow(ctx, "SELECT has_table_privilege('troupe.rebuilds', 'SELECT')").Scan(&may) != nil || !may {
		return
	}
	rows, err := conn.Query(ctx, open)
	var id int64
	var group string
	var since time.Time
	var n int
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&id, &group, &since, &n}, func() error {
			begun := since.UTC().Format(time.RFC3339)
			if n > 0 {
				e.Warn("rebuild", fmt.Sprintf("rebuild %d of the group %s waits in %d partitions since %s", id, group, n, begun),
					fmt.Sprintf("troupe rebuild show %d prints the cause for each partition: held keys, dead letters, or no member", id))
				return nil
			}
			e.Warn("rebuild", fmt.Sprintf("rebuild %d of the group %s has run since %s", id, group, begun),
				fmt.Sprintf("troupe rebuild show %d prints its progress; if a partition makes none, since its topic or its last messages were deleted, cancel the rebuild", id))
			return nil
		})
	}
	if err != nil {
		e.Warn("rebuild", err.Error(), "grant the missing rights, see privileges")
	}
}
