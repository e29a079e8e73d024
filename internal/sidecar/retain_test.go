package sidecar_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/testkit"
)

// TestAnOwnerRemovesClosedRecordsByCommand, and a relay's role is refused.
func TestAnOwnerRemovesClosedRecordsByCommand(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	_, err := pool.Exec(t.Context(), `
		INSERT INTO troupe.sagas (id, saga, key, hop, consumer_group, definition, version, status, steps, state, started_at, ended_at)
		VALUES ('order/o-1', 'order', 'o-1', 'shop.order', 'shop.order', 'd', 1, 'completed', '', '{"steps": []}', now() - interval '91 days',
		        now() - interval '91 days')`)
	require.NoError(t, err)
	r := run(t, []string{"DATABASE_URL=" + grantstest.New(t, pool, grants.Relay).URL()}, "retain")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "this role does not own Troupe's tables")

	address := testkit.DatabaseURL(t, pool)
	r = run(t, []string{"DATABASE_URL=" + address}, "retain")
	require.Equal(t, 0, r.code, r.stderr)
	require.Equal(t, "sagas: 1 removed\ndead letters: 0 removed\nrepairs: 0 removed\n", r.stdout)

	_, err = pool.Exec(t.Context(), "UPDATE troupe.retention SET keep = NULL WHERE kind <> 'repairs'")
	require.NoError(t, err)
	r = run(t, []string{"DATABASE_URL=" + address}, "retain")
	require.Equal(t, 0, r.code, r.stderr)
	require.Equal(t, "repairs: 0 removed\n", r.stdout)
}
