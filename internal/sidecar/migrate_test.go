package sidecar_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/testkit"
)

// TestAnOwnerMigratesAndGrantsWithOneRight migrates as a role with the one right that docs/security.md gives to the owner, and then
// runs all printed statements as it. Functions of another role in the schema public do not run as the owner.
func TestAnOwnerMigratesAndGrantsWithOneRight(t *testing.T) {
	t.Parallel()
	address := testkit.EmptyDatabase(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	database := conn.Config().Database
	owner, other := "owner_"+database, "other_"+database
	for _, sql := range []string{
		"CREATE ROLE " + owner + " LOGIN PASSWORD 'of-a-test'", "CREATE ROLE " + other, "GRANT CREATE ON DATABASE " + database + " TO " + owner,
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		defer conn.Close(context.Background())
		_, err := conn.Exec(context.Background(), "DROP OWNED BY "+owner+", "+other+" CASCADE; DROP ROLE "+owner+", "+other)
		require.NoError(t, err)
	})
	as, err := url.Parse(address)
	require.NoError(t, err)
	as.User = url.UserPassword(owner, "of-a-test")

	trapped := grantstest.Trap(t, conn)
	for range 2 { // the second time there is nothing to do
		r := run(t, []string{"DATABASE_URL=" + as.String()}, "migrate")
		require.Equal(t, 0, r.code, r.stderr)
		require.Contains(t, r.stdout, "is at version")
	}
	require.Empty(t, trapped())
	self, err := pgx.Connect(t.Context(), as.String())
	require.NoError(t, err)
	defer self.Close(context.Background())
	args := []string{"grants", "--role", other}
	for _, part := range grants.Parts() {
		args = append(args, string(part))
	}
	r := run(t, nil, args...)
	require.Equal(t, 0, r.code, r.stderr)
	_, err = self.Exec(t.Context(), r.stdout)
	require.NoError(t, err)
	require.Contains(t, strings.ToLower(r.stdout), other)
	var reads, forges bool
	require.NoError(t, self.QueryRow(t.Context(), `SELECT has_table_privilege($1, 'troupe.outbox', 'SELECT'),
		has_column_privilege($1, 'troupe.saga_events', 'recorded_at', 'INSERT')`, other).Scan(&reads, &forges))
	require.True(t, reads)
	require.False(t, forges)
}

// TestMigrateAddsPartitionsWhenFewPositionsAreLeft checks the remedy for a flow in which no process owns the outbox.
func TestMigrateAddsPartitionsWhenFewPositionsAreLeft(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	left := func() (n int64) {
		t.Helper()
		require.NoError(t, pool.QueryRow(t.Context(), `
			SELECT (SELECT max(hi) FROM troupe.outbox_partitions WHERE state = 'attached') - last_value
			FROM troupe.outbox_position_seq`).Scan(&n))
		return n
	}
	_, err := pool.Exec(t.Context(), "SELECT setval('troupe.outbox_position_seq', 19000000)")
	require.NoError(t, err)
	require.EqualValues(t, 1_000_000, left())
	r := run(t, []string{"DATABASE_URL=" + testkit.DatabaseURL(t, pool)}, "migrate")
	require.Equal(t, 0, r.code, r.stderr)
	require.EqualValues(t, 16_000_000, left())
}

func TestMigrateOfAnEarlierVersionSaysThatTheTablesAreNewer(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	_, err := pool.Exec(t.Context(), "INSERT INTO troupe.migrations (version_id, is_applied) VALUES (9999, true)")
	require.NoError(t, err)
	r := run(t, []string{"DATABASE_URL=" + pool.Config().ConnString()}, "migrate")
	require.Equal(t, 0, r.code, r.stderr)
	require.Contains(t, r.stdout, "is at version 9999, which is newer than this program's")
}
