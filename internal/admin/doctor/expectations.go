package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/plain"
)

// expectations warns of expected events that are missing, of expectations whose end no member has recorded, and of alerts that the
// receiver does not accept.
func (e *examination) expectations(ctx context.Context, conn *pgx.Conn) {
	const late = `
SELECT consumer_group, name,
  count(*) FILTER (WHERE missed_at IS NOT NULL AND met_at IS NULL), min(due_at) FILTER (WHERE missed_at IS NOT NULL AND met_at IS NULL),
  count(*) FILTER (WHERE missed_at IS NULL), min(due_at) FILTER (WHERE missed_at IS NULL),
  count(*) FILTER (WHERE alert_at IS NOT NULL AND missed_at < clock_timestamp() - interval '10 minutes')
FROM troupe.expectations
WHERE met_at IS NULL AND (missed_at IS NOT NULL OR due_at < clock_timestamp() - interval '2 minutes')
  OR alert_at IS NOT NULL AND missed_at < clock_timestamp() - interval '10 minutes'
GROUP BY consumer_group, name
ORDER BY consumer_group, name
LIMIT 10`
	var may bool // a role without a flow.Service needs no right to read expectations
	if conn.QueryRow(ctx, "SELECT has_table_privilege('troupe.expectations', 'SELECT')").Scan(&may) != nil || !may {
		return
	}
	rows, err := conn.Query(ctx, late)
	var group, name string
	var missing, unrecorded, alerts int
	var missingSince, unrecordedSince *time.Time
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&group, &name, &missing, &missingSince, &unrecorded, &unrecordedSince, &alerts}, func() error {
			of := fmt.Sprintf("%s of the group %s", plain.Line(name, 100), plain.Line(group, 100))
			if missing > 0 {
				e.Warn("expectation", fmt.Sprintf("the expected event of %s is missing for %s; the first was due at %s", of, counted(missing, "key"), missingSince.UTC().Format(time.RFC3339)),
					"troupe expectation list --status missing names the keys, and troupe trace KEY finds each message")
			}
			if unrecorded > 0 {
				e.Warn("expectation", fmt.Sprintf("the time of %s is over for %s, and no member has recorded it; the first was due at %s", of, counted(unrecorded, "key"), unrecordedSince.UTC().Format(time.RFC3339)),
					"start the service that declares it: only its members record the end and post alerts")
			}
			if alerts > 0 {
				e.Warn("expectation", fmt.Sprintf("of %s, %s waited for more than 10 minutes", of, pick(alerts, "1 alert has", fmt.Sprintf("%d alerts have", alerts))),
					"the receiver at flow.Config.AlertURL does not accept them, or no member runs: the service's log says why")
			}
			return nil
		})
	}
	if err != nil {
		e.Warn("expectation", err.Error(), "grant the missing rights, see privileges")
	}
}
