package retention_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/testkit"
)

// BenchmarkRemoveSagas removes ended sagas with logs of six entries, without the pauses between the batches.
func BenchmarkRemoveSagas(b *testing.B) {
	pool := testkit.Database(b)
	for _, sql := range []string{`
		INSERT INTO troupe.sagas (id, saga, key, hop, consumer_group, definition, version, status, steps, state, started_at, ended_at)
		SELECT 'order/' || n, 'order', n, 'shop.order', 'shop.order', 'd', 6, 'completed', '',
		       '{"steps": [{"name": "payment"}, {"name": "inventory"}, {"name": "shipping"}]}', at, at
		FROM generate_series(1, $1) AS n
		CROSS JOIN LATERAL (SELECT now() - interval '100 days' + n * interval '1 ms' AS at) AS t`, `
		INSERT INTO troupe.saga_events (saga_id, version, at, kind, event, moments, recorded_at)
		SELECT 'order/' || n, version, now(), 'answered', jsonb_build_object('payload', repeat('x', 200)), '[]', now() - interval '100 days'
		FROM generate_series(1, $1) AS n
		CROSS JOIN generate_series(1, 6) AS version`,
	} {
		_, err := pool.Exec(b.Context(), sql, b.N)
		require.NoError(b, err)
	}
	_, err := pool.Exec(b.Context(), "VACUUM ANALYZE")
	require.NoError(b, err)
	records := retention.NewRecords(pool)
	records.DoNotPause()
	b.ResetTimer()
	b.ReportAllocs()
	removed, err := records.Remove(b.Context())
	require.NoError(b, err)
	b.StopTimer()
	require.EqualValues(b, b.N, removed[retention.Sagas])
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sagas/s")
}
