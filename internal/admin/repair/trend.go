package repair

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Trend is the number of messages of one cause that became dead letters in one interval, whatever their status is now.
type Trend struct {
	Cause string    `json:"cause"`
	At    time.Time `json:"at"` // when the interval begins
	Count int       `json:"count"`
}

// mostTrend limits the rows that Trends and HeldByAge read of one table.
const mostTrend = 10_000

// Trends counts dead letters by cause and by the interval in which they failed, in intervals of length every that begin at since. It
// reads the newest 10,000 open and the newest 10,000 closed ones.
func (d *Desk) Trends(ctx context.Context, since time.Time, every time.Duration) ([]Trend, error) {
	rows, err := d.pool.Query(ctx, `
		SELECT cause, date_bin(make_interval(secs => @seconds), at, @since) AS at, count(*)
		FROM (
		  (SELECT cause, last_failed_at AS at
		   FROM troupe.dead_letters
		   WHERE status = 'open' AND last_failed_at >= @since
		   ORDER BY last_failed_at DESC
		   LIMIT @rows)
		  UNION ALL
		  (SELECT cause, created_at
		   FROM troupe.dead_letters
		   WHERE status <> 'open' AND created_at >= @since
		   ORDER BY created_at DESC
		   LIMIT @rows)) AS failed
		GROUP BY 1, 2
		ORDER BY 1, 2`, pgx.NamedArgs{"since": since, "seconds": every.Seconds(), "rows": mostTrend})
	if err != nil {
		return nil, fmt.Errorf("count dead letters by time: %w", explain(err))
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Trend])
	if err != nil {
		return nil, fmt.Errorf("count dead letters by time: %w", explain(err))
	}
	return all, nil
}

// HeldAges counts held keys by the time since their message first failed. A key is counted in one range only.
type HeldAges struct {
	Minute  int        `json:"under_1m"`
	Ten     int        `json:"under_10m"`
	Hour    int        `json:"under_1h"`
	Day     int        `json:"under_1d"`
	Older   int        `json:"older"`
	Oldest  *time.Time `json:"oldest"`  // null: no key is held
	Behind  int        `json:"behind"`  // messages that wait behind a failed one
	Limited bool       `json:"limited"` // whether there may be more messages than were read
}

// HeldByAge counts held keys by the time since their message first failed. It reads 10,000 messages at most.
func (d *Desk) HeldByAge(ctx context.Context) (a HeldAges, err error) {
	err = d.pool.QueryRow(ctx, `
		WITH waiting AS (
		  (SELECT next_try IS NOT NULL AS failed, coalesce(first_failed_at, unhandled_since, created_at) AS since
		   FROM troupe.held
		   LIMIT @rows)
		  UNION ALL
		  (SELECT true, coalesce(first_failed_at, unhandled_since, created_at)
		   FROM troupe.local_work
		   WHERE next_try IS NOT NULL
		   LIMIT @rows)
		), aged AS (SELECT since, now() - since AS age FROM waiting WHERE failed)
		SELECT count(*) FILTER (WHERE age < '1 minute'), count(*) FILTER (WHERE age >= '1 minute' AND age < '10 minutes'),
		       count(*) FILTER (WHERE age >= '10 minutes' AND age < '1 hour'), count(*) FILTER (WHERE age >= '1 hour' AND age < '1 day'),
		       count(*) FILTER (WHERE age >= '1 day'), min(since), (SELECT count(*) FROM waiting WHERE NOT failed),
		       (SELECT count(*) >= @rows FROM waiting)
		FROM aged`, pgx.NamedArgs{"rows": mostTrend}).
		Scan(&a.Minute, &a.Ten, &a.Hour, &a.Day, &a.Older, &a.Oldest, &a.Behind, &a.Limited)
	if err != nil {
		return a, fmt.Errorf("count held keys by age: %w", explain(err))
	}
	return a, nil
}

// Keys returns the number of held keys.
func (a HeldAges) Keys() int { return a.Minute + a.Ten + a.Hour + a.Day + a.Older }
