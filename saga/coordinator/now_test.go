package coordinator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/testkit"
)

// TestASagaThatReadsTheTimeIsReplayed begins a saga by an event, with the time of the database.
func TestASagaThatReadsTheTimeIsReplayed(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	f.c = f.coordinator(parsed(t, `{"saga":"loan","version":1,"key":"id","data":{"id":"string","begun":"string","due":"string"},
 "start":[{"hop":"desk","event":"Asked","when":"now > timestamp('2026-01-01T00:00:00Z')","set":{"id":"event.id","begun":"string(now)"}}],
 "steps":[{"name":"check","command":{"hop":"bank","type":"Check","input":{"at":"now"}},
  "success":[{"event":"Checked","set":{"due":"string(now + duration('24h'))"}}],"timeout":"1h","irreversible":"it only reads"}]}`))
	_, err := f.pool.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'o-1', 'Asked', '{"id": "o-1"}')`, f.name+".desk.events")
	require.NoError(t, err)
	f.waitCount("the saga to begin", 1, "SELECT count(*) FROM troupe.sagas")
	f.answer("loan/o-1", "bank", "Checked", "check", "forward", "success")
	f.waitCount("the saga to complete", 1, "SELECT count(*) FROM troupe.sagas WHERE status = 'completed' AND state -> 'data' ->> 'begun' <> ''")
	n := 0
	require.NoError(t, f.desk().ReplayAll(t.Context(), "", func(r sagadesk.Replayed) error {
		n++
		require.Empty(t, r.Difference)
		return nil
	}))
	require.Equal(t, 1, n)
}
