package retention_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/testkit"
)

func TestStatisticsCountWhatWaits(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	s, err := retention.ReadStats(t.Context(), pool)
	require.NoError(t, err)
	require.Zero(t, s.Pending+s.Retrying+s.Parked)
	require.Zero(t, s.Oldest)
	require.Greater(t, s.Headroom, int64(15_000_000))

	_, err = pool.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, type, created_at)
		SELECT 't', 'T', now() - interval '1 hour' FROM generate_series(1, 5)`)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `INSERT INTO troupe.outbox_failures (position, id, topic, status, next_try, attempts, max_attempts, last_error)
		SELECT position, id, topic, s, CASE s WHEN 'retrying' THEN now() END, 1, 8, 'e'
		FROM troupe.outbox JOIN (VALUES (1, 'retrying'), (2, 'parked'), (3, 'parked')) AS x (n, s) ON n = position`)
	require.NoError(t, err)
	s, err = retention.ReadStats(t.Context(), pool)
	require.NoError(t, err)
	require.Equal(t, []int64{5, 1, 2}, []int64{s.Pending, s.Retrying, s.Parked})
	require.InDelta(t, time.Hour, s.Oldest, float64(time.Minute))
	require.InDelta(t, time.Hour, s.OldestUntried, float64(time.Minute))
	require.EqualValues(t, 3, s.Failed)
}

// With source wal rows stay after they were published, and the newest row of all may be published before older ones.
func TestStatisticsKnowWhatIsPublished(t *testing.T) {
	t.Parallel()
	r := room{t, testkit.Database(t)}
	write := func(rows int, age, payload string) {
		r.exec(`INSERT INTO troupe.outbox (topic, type, created_at, payload)
			SELECT 't', 'T', now() - $2::text::interval, $3 FROM generate_series(1, $1)`, rows, age, []byte(payload))
	}
	confirm := func() {
		r.exec(`INSERT INTO troupe.relay_state (slot, source, system_id, timeline, published)
			SELECT 's', 'wal', system_identifier, 1, $1::text::pg_snapshot FROM pg_control_system()
			ON CONFLICT (slot) DO UPDATE SET published = excluded.published`, string(r.snapshot()))
	}
	write(200, "3 hours", "published")
	late := r.begin()
	_, err := late.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, type, created_at, payload)
		VALUES ('t', 'T', now() - interval '2 hours', '1234')`)
	require.NoError(t, err)
	write(100, "3 hours", "published")
	confirm()
	s, err := retention.ReadStats(t.Context(), r.pool)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 0}, []int64{s.Pending, s.Bytes})
	require.Zero(t, s.Oldest)

	require.NoError(t, late.Commit(t.Context())) // below the last that is published
	write(3, "1 hour", "12")
	s, err = retention.ReadStats(t.Context(), r.pool)
	require.NoError(t, err)
	require.Equal(t, []int64{4, 10}, []int64{s.Pending, s.Bytes})
	require.InDelta(t, 2*time.Hour, s.Oldest, float64(time.Minute))

	r.exec(`INSERT INTO troupe.outbox_failures (position, id, topic, status, attempts, max_attempts, last_error)
		SELECT position, id, topic, 'parked', 1, 8, 'e' FROM troupe.outbox WHERE position = 7`)
	confirm()
	s, err = retention.ReadStats(t.Context(), r.pool)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 1, 9}, []int64{s.Pending, s.Parked, s.Bytes})
	require.InDelta(t, 3*time.Hour, s.Oldest, float64(time.Minute))
	require.Zero(t, s.OldestUntried, "only the parked row waits")

	write(100_000, "1 hour", "") // as many as are looked at
	confirm()
	s, err = retention.ReadStats(t.Context(), r.pool)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 1, 0}, []int64{s.Pending, s.Parked, s.Bytes})
	require.InDelta(t, 3*time.Hour, s.Oldest, float64(time.Minute))

	r.exec("INSERT INTO troupe.outbox (topic, type, payload, xid) VALUES ('t', 'T', '123', '3')") // from a dump
	s, err = retention.ReadStats(t.Context(), r.pool)
	require.NoError(t, err)
	require.Equal(t, []int64{2, 1, 3}, []int64{s.Pending, s.Parked, s.Bytes})
}

// A failed row is not done although the snapshot sees it, and one that the snapshot does not see is pending.
func TestEveryEntryHasAStatus(t *testing.T) {
	t.Parallel()
	r := room{t, testkit.Database(t)}
	statuses := func() (all []string) {
		found, err := r.pool.Query(t.Context(), "SELECT status FROM troupe.outbox_status ORDER BY position")
		require.NoError(t, err)
		all, err = pgx.CollectRows(found, pgx.RowTo[string])
		require.NoError(t, err)
		return all
	}
	r.insert(3)
	r.exec(`INSERT INTO troupe.outbox_failures (position, id, topic, status, attempts, max_attempts, last_error)
		SELECT position, id, topic, 'parked', 1, 8, 'e' FROM troupe.outbox WHERE position = 2`)
	r.exec("INSERT INTO troupe.relay_state (slot, source, system_id, timeline) SELECT 's', 'poll', system_identifier, 1 FROM pg_control_system()")
	require.Equal(t, []string{"pending", "parked", "pending"}, statuses(), "no relay has confirmed anything")
	r.exec("UPDATE troupe.relay_state SET published = $1::text::pg_snapshot", string(r.snapshot()))
	r.insert(1)
	r.exec("INSERT INTO troupe.outbox (topic, type, xid) VALUES ('t', 'T', '3')") // from a dump
	require.Equal(t, []string{"done", "parked", "done", "pending", "pending"}, statuses())
}

// A restored dump has the state of the relay of its former cluster. If the database has another name now, the relay stores its own state
// under another slot, next to that one.
func TestRowsOfACopyAreNotCountedAsPublished(t *testing.T) {
	t.Parallel()
	r := room{t, testkit.Database(t)}
	r.insert(3)
	r.exec("INSERT INTO troupe.relay_state (slot, source, system_id, timeline, published) VALUES ('former', 'wal', '7000000000000000000', 1, '4000000000:4000000000:')")
	pending := func() {
		t.Helper()
		s, err := retention.ReadStats(t.Context(), r.pool)
		require.NoError(t, err)
		require.EqualValues(t, 3, s.Pending)
		var rows int
		require.NoError(t, r.pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.outbox_status WHERE status = 'pending'").Scan(&rows))
		require.Equal(t, 3, rows)
	}
	pending()
	r.exec(`INSERT INTO troupe.relay_state (slot, source, system_id, timeline, updated_at)
		SELECT 'new', 'poll', system_identifier, 1, clock_timestamp() + interval '1 s' FROM pg_control_system()`)
	pending()
}
