package coordinator_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/schedule"
	"github.com/troupe-go/troupe/testkit"
)

const billing = `{"saga":"billing","version":1,"key":"id","data":{"id":"string","of":"string"},
 "steps":[{"name":"bill","command":{"hop":"bank","type":"Bill","input":{"of":"data.of","at":"now"}},"success":[{"event":"Billed"}],"timeout":"1h","irreversible":"letters"}]}`

// scheduled sets a schedule whose occurrence of this day is due, and returns the key of its saga.
func (f *flow) scheduled(spec schedule.Spec) (key string) {
	f.t.Helper()
	desk := schedule.Desk{Pool: f.pool}
	spec.Cron, spec.Zone, spec.CatchUp = "0 0 * * *", "UTC", 1
	by := admin.Actor{Name: "ada", Reason: "ticket 1"}
	require.NoError(f.t, errOf(desk.Set(f.t.Context(), spec, by)))
	f.due(spec.Name)
	var day time.Time
	require.NoError(f.t, f.pool.QueryRow(f.t.Context(), "SELECT date_trunc('day', clock_timestamp(), 'UTC')").Scan(&day))
	return spec.Occurrence(day)
}

func errOf(_ schedule.Schedule, err error) error { return err }

// due makes the occurrence of this day due, as in a database that was set back.
func (f *flow) due(name string) {
	f.t.Helper()
	_, err := f.pool.Exec(f.t.Context(), "UPDATE troupe.schedules SET next_at = date_trunc('day', clock_timestamp(), 'UTC'), last_at = NULL WHERE name = $1", name)
	require.NoError(f.t, err)
}

// TestACoordinatorRunsSchedules runs two processes.
func TestACoordinatorRunsSchedules(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	key := f.scheduled(schedule.Spec{Name: "nightly", Saga: "billing", Data: json.RawMessage(`{"of": "sales"}`)})
	f.scheduled(schedule.Spec{Name: "report", Topic: f.name + ".desk.events", Type: "ReportWanted"})
	for range 2 {
		f.coordinator(parsed(t, billing))
	}
	const commands = `
SELECT count(*)
FROM (SELECT id FROM troupe.local_work WHERE type = $1 UNION ALL SELECT id FROM troupe.outbox WHERE type = $1) AS m`
	f.waitCount("the saga of the occurrence", 1, "SELECT count(*) FROM troupe.sagas WHERE id = $1 AND state -> 'data' ->> 'of' = 'sales'", "billing/"+key)
	f.waitCount("its command", 1, commands, "Bill")
	f.waitCount("the message of the other", 1, commands, "ReportWanted")
	f.waitCount("both to move on", 0, "SELECT count(*) FROM troupe.schedules WHERE next_at <= clock_timestamp() OR error IS NOT NULL")

	f.due("nightly") // the saga exists
	f.waitCount("the schedule to move on", 0, "SELECT count(*) FROM troupe.schedules WHERE next_at <= clock_timestamp()")
	require.Equal(t, 1, f.count("SELECT count(*) FROM troupe.sagas"))
	require.Equal(t, 1, f.count(commands, "Bill"))
}

// TestASagaOfAScheduleHasTheSameIdsAgain takes the saga away, as a database that was set back before the occurrence has lost it.
func TestASagaOfAScheduleHasTheSameIdsAgain(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	key := f.scheduled(schedule.Spec{Name: "nightly", Saga: "billing", Data: json.RawMessage(`{"of": "sales"}`)})
	f.c = f.coordinator(parsed(t, billing))
	const command = "SELECT count(*) FROM troupe.outbox WHERE type = 'Bill'"
	f.waitCount("its command", 1, command)
	ids := func() (n int) {
		return f.count("SELECT count(DISTINCT (id, headers ->> 'ce_correlationid')) FROM troupe.outbox WHERE type = 'Bill'")
	}
	_, err := f.pool.Exec(t.Context(), "TRUNCATE troupe.sagas, troupe.saga_events, troupe.saga_associations")
	require.NoError(t, err)
	f.due("nightly")
	f.waitCount("its command again", 2, command)
	require.Equal(t, 1, ids())
	require.Equal(t, 1, f.count("SELECT count(*) FROM troupe.sagas WHERE key = $1", key))
}

// TestAScheduleWithDataThatItsSagaRefuses shows the error to the operator.
func TestAScheduleWithDataThatItsSagaRefuses(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	f.scheduled(schedule.Spec{Name: "typo", Saga: "billing", Data: json.RawMessage(`{"off": "sales"}`)})
	f.scheduled(schedule.Spec{Name: "keyed", Saga: "billing", Data: json.RawMessage(`{"id": "b-1"}`)})
	f.c = f.coordinator(parsed(t, billing))
	f.waitCount("the error", 1, "SELECT count(*) FROM troupe.schedules WHERE name = 'typo' AND error LIKE '%no variable off%'")
	f.waitCount("the error", 1, "SELECT count(*) FROM troupe.schedules WHERE name = 'keyed' AND error LIKE '%the key%'")
}
