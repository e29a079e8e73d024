package grants_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/testkit"
)

// The function of the trigger of local topics inserts into troupe.local_work with the owner's rights: a role that could use it in a
// trigger of its own table would write messages for every local participant.
func TestNoRoleWritesLocalWorkByATriggerOfItsOwn(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	for _, part := range grants.Parts() {
		role := grantstest.New(t, pool, part).Pool()
		conn, err := role.Acquire(t.Context())
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), `CREATE TEMP TABLE own (position bigint, id uuid, topic text, key text, key_bytes bytea, type text, headers jsonb,
			raw_headers bytea, payload bytea, created_at timestamptz)`)
		require.NoError(t, err, "every role may create temporary tables, unless an administrator has revoked it")
		_, err = conn.Exec(t.Context(), "CREATE TRIGGER forge BEFORE INSERT ON own FOR EACH ROW EXECUTE FUNCTION troupe.take_local('order.payment')")
		if err == nil {
			_, err = conn.Exec(t.Context(), `INSERT INTO own (position, id, topic, key, type, headers, payload, created_at)
				VALUES (1, gen_random_uuid(), 'order.payment.commands', 'o-1', 'RefundPayment', '{}', '{}', now())`)
		}
		conn.Release()
		require.Error(t, err, part)
		require.Regexp(t, `permission denied for function .*take_local`, err.Error(), part)
	}
	var forged int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.local_work").Scan(&forged))
	require.Zero(t, forged)
}

// A function that runs with its owner's rights is a door of its own: no part's role may call one.
func TestNoRoleMayCallAFunctionWithTheOwnersRights(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	for _, part := range grants.Parts() {
		var open []string
		require.NoError(t, pool.QueryRow(t.Context(), `
			SELECT coalesce(array_agg(p.proname::text), '{}')
			FROM pg_proc AS p
			WHERE p.pronamespace = 'troupe'::regnamespace AND p.prosecdef AND has_function_privilege($1, p.oid, 'EXECUTE')`,
			grantstest.New(t, pool, part).Name).Scan(&open))
		require.Empty(t, open, part)
	}
}

// A function whose search_path does not name pg_temp finds the temporary tables of the role that calls it before the ones that it means.
func TestNoFunctionFindsTemporaryTablesFirst(t *testing.T) {
	t.Parallel()
	var early []string
	require.NoError(t, testkit.Database(t).QueryRow(t.Context(), `
		SELECT coalesce(array_agg(p.proname::text), '{}')
		FROM pg_proc AS p, unnest(p.proconfig) AS setting
		WHERE p.pronamespace = 'troupe'::regnamespace AND setting LIKE 'search_path=%' AND setting NOT LIKE '%, pg_temp'`).Scan(&early))
	require.Empty(t, early)
}
