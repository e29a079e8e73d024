package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// stranded warns of stored messages that no member of their group tries, as after a handler or a retry topic was removed, or after
// a topic became local or was given back. A member tries a message when it is due, so one that is long overdue has none.
func (e *examination) stranded(ctx context.Context, conn *pgx.Conn) {
	for _, look := range []struct{ name, sql, what, remedy string }{
		{"held", `
			SELECT consumer_group, topic, sum(n)::bigint, min(since)
			FROM ( -- as stranded_topics.sql
			  SELECT consumer_group, topic, count(*) AS n, coalesce(min(next_try), min(released_at)) AS since
			  FROM troupe.held
			  LEFT JOIN troupe.leases USING (consumer_group, topic, partition)
			  GROUP BY consumer_group, topic, partition) AS h
			WHERE since < clock_timestamp() - interval '10 minutes'
			GROUP BY consumer_group, topic
			ORDER BY 1, 2
			LIMIT 10`,
			"messages of %s are held by the group %s and not tried again since %s: no member consumes their topic or partition",
			"run a participant of this group with a handler for the topic, on Kafka; or give the messages up: troupe held list, troupe held dead-letter"},
		{"local work", `
			SELECT consumer_group, topic, count(*), greatest(min(coalesce(locked_at, next_try, created_at)), 'epoch')
			FROM troupe.local_work AS w
			WHERE ended_at IS NULL AND coalesce(locked_at, next_try, created_at) < clock_timestamp() - interval '10 minutes'
			  AND (status = 'pending' OR NOT EXISTS ( -- a member that runs has its number locked, as in stranded_local.sql
			    SELECT
			    FROM pg_locks AS l
			    WHERE l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
			      AND l.classid = x'7472756c'::integer::oid AND l.objid = w.locked_by::oid AND l.objsubid = 2))
			  AND NOT EXISTS (
			    SELECT
			    FROM troupe.local_work AS e
			    WHERE e.consumer_group = w.consumer_group AND e.hold_key = w.hold_key AND e.position < w.position AND e.ended_at IS NULL)
			GROUP BY consumer_group, topic
			ORDER BY 1, 2
			LIMIT 10`,
			"keys of %s wait for the group %s and are not tried since %s: no participant of it takes local work",
			"run a participant of this group with Local, or give the topic back to Kafka: SELECT troupe.end_local(topic)"},
	} {
		rows, err := conn.Query(ctx, look.sql)
		var group, topic string
		var n int
		var since time.Time
		if err == nil {
			_, err = pgx.ForEachRow(rows, []any{&group, &topic, &n, &since}, func() error {
				e.Warn(look.name, fmt.Sprintf("%d "+look.what, n, topic, group, since.UTC().Format(time.RFC3339)), look.remedy)
				return nil
			})
		}
		if err != nil {
			e.Warn(look.name, err.Error(), "grant the missing rights, see privileges")
		}
	}
}
