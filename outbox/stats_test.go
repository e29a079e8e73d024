package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/testkit"
)

func TestStatisticsCountWhatWaits(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	s, err := outbox.ReadStats(t.Context(), pool)
	require.NoError(t, err)
	require.Zero(t, s.Pending+s.Retrying+s.Parked)
	require.Zero(t, s.Oldest)
	require.Greater(t, s.Headroom, int64(15_000_000))

	_, err = pool.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, type, created_at)
		SELECT 't', 'T', now() - interval '1 hour' FROM generate_series(1, 5)`)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `INSERT INTO troupe.outbox_trouble (position, id, topic, status, next_try, attempts, max_attempts, last_error)
		SELECT position, id, topic, s, CASE s WHEN 'retrying' THEN now() END, 1, 8, 'e'
		FROM troupe.outbox JOIN (VALUES (1, 'retrying'), (2, 'parked'), (3, 'parked')) AS x (n, s) ON n = position`)
	require.NoError(t, err)
	s, err = outbox.ReadStats(t.Context(), pool)
	require.NoError(t, err)
	require.Equal(t, []int64{5, 1, 2}, []int64{s.Pending, s.Retrying, s.Parked})
	require.InDelta(t, time.Hour, s.Oldest, float64(time.Minute))
}
