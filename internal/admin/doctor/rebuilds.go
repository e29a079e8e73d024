package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// rebuilds warns of rebuilds of which a partition has not begun, or was not set forward after the rebuild was cancelled, for minutes.
func (e *examination) rebuilds(ctx context.Context, conn *pgx.Conn) {
	const waiting = `
SELECT r.id, r.consumer_group, coalesce(r.cancelled_at, r.started_at), count(*)
FROM troupe.rebuilds AS r
JOIN troupe.rebuild_partitions AS p ON p.rebuild = r.id
WHERE r.finished_at IS NULL AND coalesce(r.cancelled_at, r.started_at) < clock_timestamp() - interval '5 minutes'
  AND CASE WHEN r.cancelled_at IS NULL THEN p.until IS NULL ELSE p.until IS NOT NULL AND p.undone_at IS NULL END
GROUP BY r.id
ORDER BY r.id
LIMIT 10`
	var may bool // an outbox alone needs no right to read rebuilds
	if conn.QueryRow(ctx, "SELECT has_table_privilege('troupe.rebuilds', 'SELECT')").Scan(&may) != nil || !may {
		return
	}
	rows, err := conn.Query(ctx, waiting)
	var id int64
	var group string
	var since time.Time
	var n int
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&id, &group, &since, &n}, func() error {
			e.Warn("rebuild", fmt.Sprintf("rebuild %d of the group %s waits in %d partitions since %s", id, group, n, since.UTC().Format(time.RFC3339)),
				fmt.Sprintf("troupe rebuild show %d prints the cause for each partition: held keys, dead letters, or no member", id))
			return nil
		})
	}
	if err != nil {
		e.Warn("rebuild", err.Error(), "grant the missing rights, see privileges")
	}
}
