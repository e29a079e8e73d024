package sagadesk_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/saga"
)

func TestSagasAreCountedByWhenTheyStarted(t *testing.T) {
	t.Parallel()
	pool, desk := many(t, 3000)
	// Truncated to the second, so that the counts do not depend on when the test runs.
	var at time.Time
	require.NoError(t, pool.QueryRow(t.Context(), "UPDATE troupe.sagas SET started_at = date_trunc('hour', started_at) WHERE key = 'o-3000' RETURNING started_at").Scan(&at))
	_, err := pool.Exec(t.Context(), `
UPDATE troupe.sagas SET started_at = $1::timestamptz + make_interval(secs => substr(key, 3)::integer - 1) WHERE substr(key, 3)::integer <= 90`, at.Add(24*time.Hour))
	require.NoError(t, err)

	started, err := desk.Started(t.Context(), at.Add(24*time.Hour), time.Minute)
	require.NoError(t, err)
	count := make(map[time.Duration]int)
	parked := 0
	for _, one := range started {
		count[one.At.Sub(at)-24*time.Hour] += one.Count
		if one.Status == saga.Parked {
			parked += one.Count
		}
	}
	require.Equal(t, map[time.Duration]int{0: 60, time.Minute: 30}, count)
	require.Equal(t, 2, parked)
	_, err = desk.Started(t.Context(), at, time.Millisecond)
	require.ErrorContains(t, err, "want 1s or more")
}

// If many sagas have a status, a sample is counted and marked as one; if few have it, such as the parked ones, all are
// counted.
func TestCountsOfManySagasAreEstimates(t *testing.T) {
	t.Parallel()
	const n = 3 * sagadesk.CountedTo
	pool, desk := many(t, n) // one a second
	var since time.Time
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT min(started_at) FROM troupe.sagas").Scan(&since))
	started, err := desk.Started(t.Context(), since, 10*time.Minute)
	require.NoError(t, err)
	count := make(map[saga.Status]int)
	for _, one := range started {
		count[one.Status] += one.Count
		require.Equal(t, one.Status == saga.Completed, one.About, "%+v", one)
	}
	var parked, completed int
	const all = "SELECT count(*) FILTER (WHERE status = 'parked'), count(*) FILTER (WHERE status = 'completed') FROM troupe.sagas"
	require.NoError(t, pool.QueryRow(t.Context(), all).Scan(&parked, &completed))
	require.Equal(t, parked, count[saga.Parked])
	require.InEpsilon(t, completed, count[saga.Completed], 0.1)
	for i := 1; i < len(started); i++ {
		require.False(t, started[i].At.Before(started[i-1].At), "in the order of time")
	}
	for name, sql := range map[string]string{
		"weigh": sagadesk.WeighStarted, "count": sagadesk.CountStarted, "sample": sagadesk.SampleStarted,
	} {
		rows, err := pool.Query(t.Context(), "EXPLAIN (COSTS OFF) "+sql, pgx.NamedArgs{
			"statuses": []string{"parked", "completed"}, "since": since, "seconds": 600, "limit": 10,
		})
		require.NoError(t, err, name)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err, name)
		plan := strings.Join(lines, "\n")
		require.Contains(t, plan, "Index Only Scan using sagas_by_status", "%s\n%s", name, plan)
		require.NotContains(t, plan, "Seq Scan on sagas", "%s\n%s", name, plan)
	}
}
