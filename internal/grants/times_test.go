package grants_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/testkit"
)

// anyTime lists the columns of time that roles may write without a check, with the reason.
var anyTime = map[string]string{
	"outbox.created_at":         "a writer sets it; each reader takes any time: TestARowWithoutAUsableCreationTimeIsPublishedAsAnyOther",
	"outbox_repairs.created_at": "the creation time of a discarded row, which no program reads",
	"local_work.created_at":     "as in outbox: TestLocalWorkWithoutAUsableCreationTimeIsHandledAsAnyOther",
	"held.message_time":         "a producer sets it: TestARecordOfAnyTimeIsHeldAndGivenUp",
	"saga_events.at":            "each reader takes any time: TestAnEntryWithATimeThatCannotBeReadDoesNotHideTheLog",
}

// ownTables lists the tables that one role alone writes. Only the SQL of its own programs compares their times, or a search for one message
// reads them.
var ownTables = strings.Fields("inbox inbox_recent inbox_groups answers leases started rate_limits joins saga_stash " +
	"outbox_posts watch_flows watch_marks watch_messages watch_findings watch_unexpected")

// Go and JSON have no infinite time, and JSON none after the year 9999: one row with such a time would hide all rows of a list, or stop the
// program that reads it. So each timestamptz column that a part's role may write has a check, or is in one of the lists above.
func TestNoRoleWritesATimeThatCannotBeRead(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	listed := make(map[string]bool)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "SET TimeZone = 'UTC'") // in which the checks are printed
	require.NoError(t, err)
	for _, part := range grants.Parts() {
		rows, err := conn.Query(t.Context(), `
			SELECT c.relname || '.' || a.attname
			FROM pg_attribute AS a
			JOIN pg_class AS c ON c.oid = a.attrelid
			WHERE c.relnamespace = 'troupe'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
			  AND a.atttypid = 'timestamptz'::regtype AND NOT a.attisdropped
			  AND has_column_privilege($1, c.oid, a.attnum, 'INSERT, UPDATE')
			  AND NOT EXISTS (
			    SELECT
			    FROM pg_constraint AS k
			    WHERE k.conrelid = c.oid AND k.contype = 'c' AND a.attnum = ANY (k.conkey)
			      AND pg_get_constraintdef(k.oid) ~ '0001-01-01' AND pg_get_constraintdef(k.oid) ~ '10000-01-01')`,
			grantstest.New(t, pool, part).Name)
		require.NoError(t, err)
		columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		for _, column := range columns {
			table, _, _ := strings.Cut(column, ".")
			require.True(t, anyTime[column] != "" || slices.Contains(ownTables, table), "%s may write %s, which has no check", part, column)
			listed[column], listed[table] = true, true
		}
	}
	for _, entry := range slices.Concat(slices.Collect(maps.Keys(anyTime)), ownTables) {
		require.True(t, listed[entry], "%s needs no entry", entry)
	}
}

// A relay takes a lease with the next term: after the largest bigint there is none. An operator inserts the lease's row to pause an outbox
// before any relay has run, and may not set its term, its holder or its end.
func TestARelayOperatorSetsNoTermOfALease(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	operator := grantstest.New(t, pool, grants.RelayOperator).Pool()
	for _, columns := range []string{"term) VALUES (0, 9223372036854775807", "holder) VALUES (0, 'another'", "expires_at) VALUES (0, 'infinity'"} {
		_, err := operator.Exec(t.Context(), "INSERT INTO troupe.relay_leases (shard, "+columns+")")
		require.ErrorContains(t, err, "permission denied", columns)
	}
	_, err := operator.Exec(t.Context(), "INSERT INTO troupe.relay_leases (shard, paused_at, paused_by, paused_why) VALUES (0, now(), 'ann', 'ticket 7')")
	require.NoError(t, err)
}

// A relay of a divided outbox reads the leases of all shards. A relay's operator inserts leases, in order to pause an outbox before any relay has
// run, and fills no relay's memory by leases of shards that no outbox has.
func TestARelayOperatorMakesNoLeaseOfAShardThatNoOutboxHas(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	operator := grantstest.New(t, pool, grants.RelayOperator).Pool()
	const pause = "INSERT INTO troupe.relay_leases (shard, paused_at, paused_by, paused_why) SELECT n, now(), 'ann', 'ticket 7' FROM generate_series($1::int, $2::int) n"
	_, err := operator.Exec(t.Context(), pause, 64, 1_000_000)
	require.ErrorContains(t, err, "relay_leases_shard_check")
	_, err = operator.Exec(t.Context(), pause, 0, 63)
	require.NoError(t, err)
}
