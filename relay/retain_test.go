package relay

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/retention"
)

// A copied or restored database has the former cluster's state, whose snapshot has other transactions under the same numbers
// as this one's.
func TestAStateOfAnotherClusterDropsNoPartition(t *testing.T) {
	t.Parallel()
	pool, _ := tenure(t)
	exec := func(sql string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	r, err := New(Config{Pool: pool, Brokers: []string{"127.0.0.1:1"}, Service: "shop", Source: Poll})
	require.NoError(t, err)
	r.pool = pool
	db, err := bindNow(t.Context(), pool)
	require.NoError(t, err)
	defer db.Close()
	retention, err := retention.New(retention.Config{Pool: db.Pool, Age: -1})
	require.NoError(t, err)
	defer retention.Close()
	there := func() (there bool) {
		t.Helper()
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT to_regclass('troupe.outbox_0') IS NOT NULL").Scan(&there))
		return there
	}

	exec("INSERT INTO troupe.outbox (topic, type) VALUES ('t', 'T')")
	exec("SELECT setval('troupe.outbox_position_seq', (SELECT max(hi) FROM troupe.outbox_partitions) - 1)")
	exec("INSERT INTO troupe.relay_state (slot, source, system_id, timeline, published) VALUES ('" + r.cfg.Slot +
		"', 'wal', '1', 1, pg_current_snapshot())")
	require.ErrorContains(t, r.drop(t.Context(), db, retention), "the stored state is of cluster 1")
	require.True(t, there(), "its row may not be published")

	exec("UPDATE troupe.relay_state SET system_id = (SELECT system_identifier::text FROM pg_control_system())")
	require.NoError(t, r.drop(t.Context(), db, retention))
	require.False(t, there(), "its row is published")
}

// A partition that was detached with a row that is not published is read by no relay. The reason is logged each hour.
func TestTheReasonWhyAPartitionStaysIsLogged(t *testing.T) {
	t.Parallel()
	pool, _ := tenure(t)
	var log bytes.Buffer
	r, err := New(Config{Pool: pool, Brokers: []string{"127.0.0.1:1"}, Service: "shop", Source: Poll, Log: zerolog.New(&log)})
	require.NoError(t, err)
	r.pool = pool
	db, err := bindNow(t.Context(), pool)
	require.NoError(t, err)
	defer db.Close()
	retention, err := retention.New(retention.Config{Pool: db.Pool})
	require.NoError(t, err)
	defer retention.Close()
	for _, sql := range []string{
		"INSERT INTO troupe.outbox (topic, type) VALUES ('t', 'T')",
		"SELECT setval('troupe.outbox_position_seq', (SELECT max(hi) FROM troupe.outbox_partitions) - 1)",
		"UPDATE troupe.outbox_partitions SET state = 'detached' WHERE name = 'outbox_0'",
		"ALTER TABLE troupe.outbox DETACH PARTITION troupe.outbox_0",
	} {
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	later := func() {
		for name, k := range r.keptPartitions {
			k.warn = k.warn.Add(-logKeptEvery)
			r.keptPartitions[name] = k
		}
	}
	lines := func() int { return strings.Count(log.String(), "a full partition stays") }
	for range 2 {
		require.NoError(t, r.drop(t.Context(), db, retention))
	}
	require.Zero(t, lines(), "it may go soon")
	for n := range 2 {
		later()
		for range 2 {
			require.NoError(t, r.drop(t.Context(), db, retention))
		}
		require.Equal(t, n+1, lines(), log.String())
	}
	require.Contains(t, log.String(), "it is detached, and position 1 is not published")

	_, err = pool.Exec(t.Context(), `INSERT INTO troupe.outbox_failures (position, id, topic, status, attempts, max_attempts, last_error)
		VALUES (1, gen_random_uuid(), 't', 'parked', 1, 1, 'e')`)
	require.NoError(t, err)
	require.NoError(t, r.drop(t.Context(), db, retention))
	require.Equal(t, 2, lines(), "the reason has changed, but the partition stays")
	ended, end := context.WithCancel(t.Context())
	end()
	require.Error(t, r.drop(ended, db, retention))
	later()
	require.NoError(t, r.drop(t.Context(), db, retention))
	require.Equal(t, 3, lines(), "an error does not restart the hour")
}

// A partition whose rows are published stays for Config.Retention, which is no reason for a warning.
func TestAPartitionThatStaysForItsRetentionIsLoggedOnceWithoutAWarning(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	r := &Relay{cfg: Config{Log: zerolog.New(&log)}, keptPartitions: make(map[string]keptLog)}
	stays := func(why string, aging bool) {
		r.logKept([]retention.KeptPartition{{Name: "p", Why: why, Aging: aging}})
	}
	stays("1 transactions are open", false)
	stays("2 transactions are open", false)
	for range 3 {
		stays("its rows are published", true)
	}
	require.Equal(t, 1, strings.Count(log.String(), "info"), log.String())
	require.NotContains(t, log.String(), "warn")
	r.forgetKept(nil)
	require.Empty(t, r.keptPartitions)
}
