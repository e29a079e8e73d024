package coordinator_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// TestNoRoleForgesTheAuditOfSagas: a role that may write events of sagas cannot choose the server's time and role, cannot date an event
// to another year, and cannot change an event. A role with the rights of an older list loses the surplus by the newer list.
func TestNoRoleForgesTheAuditOfSagas(t *testing.T) {
	t.Parallel()
	for _, part := range []grants.Part{grants.Sagas, grants.SagaOperator} {
		t.Run(string(part), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			owner := testkit.Database(t)
			role := grantstest.New(t, owner, part)
			pool := role.Pool()
			denied := func(want, sql string, args ...any) {
				t.Helper()
				_, err := pool.Exec(ctx, sql, args...)
				require.ErrorContains(t, err, want, sql)
			}
			const event = "INSERT INTO troupe.saga_events (saga_id, version, at, kind, event, moments, actor, reason"
			forging := []string{
				event + ", recorded_at) VALUES ('order/o-1', 1, now(), 'abandon', '{}', '[]', 'ann', 'r', '1999-01-01')",
				event + ", recorded_at) VALUES ('order/o-1', 1, now(), 'abandon', '{}', '[]', 'ann', 'r', NULL)",
				event + ", recorded_at) VALUES ('order/o-1', 1, now(), 'abandon', '{}', '[]', 'ann', 'r', DEFAULT)",
				event + ", role) VALUES ('order/o-1', 1, now(), 'abandon', '{}', '[]', 'ann', 'r', 'ann')",
				"UPDATE troupe.saga_events SET actor = 'ann'",
				"DELETE FROM troupe.saga_events",
				"TRUNCATE troupe.saga_events",
			}
			check := func() {
				t.Helper()
				for _, sql := range forging {
					denied("permission denied", sql)
				}
				denied("permission denied", "SET SESSION AUTHORIZATION "+owner.Config().ConnConfig.User)
			}
			check()

			_, err := pool.Exec(ctx, event+") VALUES ('order/o-1', 1, now(), 'abandon', '{}', '[]', 'ann', 'r')")
			require.NoError(t, err)
			var recorded, now time.Time
			var by string
			require.NoError(t, owner.QueryRow(ctx, "SELECT recorded_at, role, clock_timestamp() FROM troupe.saga_events").Scan(&recorded, &by, &now))
			require.Equal(t, role.Name, by)
			require.WithinDuration(t, now, recorded, time.Hour)

			_, err = owner.Exec(ctx, "GRANT INSERT, UPDATE, DELETE, TRUNCATE ON troupe.saga_events TO "+role.Name)
			require.NoError(t, err)
			for _, g := range grants.Of(part) {
				_, err = owner.Exec(ctx, g.To(role.Name))
				require.NoError(t, err)
			}
			check()
		})
	}
}

// TestTheHistoryOfASagaHasTheServersTimeAndRole of each entry, in addition to the actor and the time that the entry states.
func TestTheHistoryOfASagaHasTheServersTimeAndRole(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newFlow(t, true)
	f.start("o-1")
	f.await("order/o-1", saga.Completed)
	desk := f.as(grants.Viewer)
	log, err := desk.Log(ctx, "order/o-1", 0, 10)
	require.NoError(t, err)
	require.NotEmpty(t, log)
	var user string
	require.NoError(t, f.pool.QueryRow(ctx, "SELECT session_user").Scan(&user))
	for _, e := range log {
		require.Equal(t, user, e.Role)
		require.NotZero(t, e.RecordedAt)
	}

	forger := grantstest.New(t, f.pool, grants.Sagas).Pool()
	_, err = forger.Exec(ctx, `INSERT INTO troupe.saga_events (saga_id, version, at, kind, event, moments)
		VALUES ('order/o-1', 100, now(), 'abandon', '{"kind": "abandon", "actor": "ann", "reason": "r"}', '[]')`)
	require.NoError(t, err)
	replayed, err := desk.Replay(ctx, "order/o-1")
	require.NoError(t, err)
	require.NotEmpty(t, replayed.Difference, "an event that no decision made is found")

	_, err = f.pool.Exec(ctx, "UPDATE troupe.saga_events SET at = recorded_at - interval '1 hour' WHERE version = 2")
	require.NoError(t, err)
	_, err = f.pool.Exec(ctx, "UPDATE troupe.saga_events SET recorded_at = NULL, role = NULL, at = '1999-01-01' WHERE version = 3")
	require.NoError(t, err)
	log, err = desk.Log(ctx, "order/o-1", 0, 10)
	require.NoError(t, err)
	require.True(t, log[1].Misdated())
	require.False(t, log[2].Misdated(), "an entry from before the server recorded them")
	require.Zero(t, log[2].RecordedAt)
	require.Empty(t, log[2].Role)
}

// A role of a service may write the time of an entry. A time that is none of Go's, or that JSON cannot have, does not hide the log.
func TestAnEntryWithATimeThatCannotBeReadDoesNotHideTheLog(t *testing.T) {
	t.Parallel()
	f := newFlow(t, true)
	f.start("o-1")
	f.await("order/o-1", saga.Completed)
	forger := grantstest.New(t, f.pool, grants.Sagas).Pool()
	odd := []string{"infinity", "-infinity", "294276-01-01", "4000-01-01 BC"}
	for n, at := range odd {
		_, err := forger.Exec(t.Context(), `INSERT INTO troupe.saga_events (saga_id, version, at, kind, event, moments)
			VALUES ('order/o-1', $1, $2::text::timestamptz, 'abandon', '{"kind": "abandon", "actor": "ann", "reason": "r"}', '[]')`, 100+n, at)
		require.NoError(t, err)
	}
	desk := f.as(grants.Viewer)
	log, err := desk.Log(t.Context(), "order/o-1", 0, 1000)
	require.NoError(t, err)
	require.Greater(t, len(log), len(odd))
	_, err = json.Marshal(log)
	require.NoError(t, err)
	for _, e := range log[len(log)-len(odd):] {
		require.True(t, e.At.IsZero())
		require.True(t, e.Misdated())
		require.NotEmpty(t, e.Role)
	}
	replayed, err := desk.Replay(t.Context(), "order/o-1")
	require.NoError(t, err)
	require.NotEmpty(t, replayed.Difference)
}

// Programs list all sagas of a database, and Go and JSON have no infinite time.
func TestNoRoleGivesASagaATimeThatCannotBeRead(t *testing.T) {
	t.Parallel()
	f := newFlow(t, true)
	f.start("o-1")
	f.await("order/o-1", saga.Completed)
	forger := grantstest.New(t, f.pool, grants.Sagas).Pool()
	for _, column := range []string{"started_at", "updated_at", "wake_at", "ended_at"} {
		for _, at := range []string{"infinity", "-infinity", "10000-01-01", "4000-01-01 BC"} {
			_, err := forger.Exec(t.Context(), "UPDATE troupe.sagas SET "+column+" = $1::text::timestamptz", at)
			require.ErrorContains(t, err, "check constraint", "%s = %s", column, at)
		}
	}
	sagas, _, err := f.as(grants.Viewer).List(t.Context(), sagadesk.Filter{}, sagadesk.Page{})
	require.NoError(t, err)
	require.Len(t, sagas, 1)
}
