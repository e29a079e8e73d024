package coordinator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/saga"
)

// folded fills a database with n completed orders, copies of one that ran.
func folded(t testing.TB, n int) *flow {
	t.Helper()
	f := newFlow(t, true)
	f.start("o-0")
	f.await("order/o-0", saga.Completed)
	for _, sql := range []string{
		`INSERT INTO troupe.sagas (id, saga, key, hop, consumer_group, definition, version, status, steps, state, started_at, ended_at)
		 SELECT 'order/o-' || i, saga, 'o-' || i, hop, consumer_group, definition, version, status, steps,
		        replace(state::text, '"o-0"', '"o-' || i || '"')::jsonb, started_at, ended_at
		 FROM troupe.sagas CROSS JOIN generate_series(1, $1 - 1) AS i`,
		`INSERT INTO troupe.saga_events (saga_id, version, at, kind, event, moments)
		 SELECT 'order/o-' || i, version, at, kind, replace(event::text, '"o-0"', '"o-' || i || '"')::jsonb, moments
		 FROM troupe.saga_events CROSS JOIN generate_series(1, $1 - 1) AS i`,
	} {
		_, err := f.pool.Exec(t.Context(), sql, n)
		require.NoError(t, err)
	}
	_, err := f.pool.Exec(t.Context(), "ANALYZE troupe.sagas, troupe.saga_events")
	require.NoError(t, err)
	return f
}

// There are more sagas than are read at a time: each is replayed once, in the order of their ids, and a replay after an id
// leaves out the sagas up to that id.
func TestReplayGoesThroughAllOnce(t *testing.T) {
	t.Parallel()
	f := folded(t, 450)
	var ids []string
	take := func(r sagadesk.Replayed) error {
		require.Empty(t, r.Difference, r.ID)
		require.Equal(t, 4, r.Events)
		ids = append(ids, r.ID)
		return nil
	}
	require.NoError(t, f.desk().ReplayAll(t.Context(), "", take))
	require.Len(t, ids, 450)
	require.IsNonDecreasing(t, ids)
	all := ids
	ids = nil
	require.NoError(t, f.desk().ReplayAll(t.Context(), all[200], take))
	require.Equal(t, all[201:], ids)
}

// BenchmarkReplay measures how many sagas of three steps are replayed in a second:
//
//	go test -run '^$' -bench BenchmarkReplay -benchtime 3x ./saga/coordinator
func BenchmarkReplay(b *testing.B) {
	const n = 20_000
	f := folded(b, n)
	begun, sagas := time.Now(), 0
	b.ReportAllocs()
	for b.Loop() {
		err := f.desk().ReplayAll(b.Context(), "", func(r sagadesk.Replayed) error {
			if r.Difference != "" {
				return fmt.Errorf("%s: %s", r.ID, r.Difference)
			}
			sagas++
			return nil
		})
		require.NoError(b, err)
	}
	b.ReportMetric(float64(sagas)/time.Since(begun).Seconds(), "sagas/s")
}
