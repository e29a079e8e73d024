package coordinator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

func TestSagasAreCountedByWhenTheyStarted(t *testing.T) {
	t.Parallel()
	pool, desk := many(t, 3000)
	// To the second, so that what is counted does not depend on when the test runs.
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
