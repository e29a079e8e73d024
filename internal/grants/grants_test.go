package grants_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// A statement of an audit log is a quoted body: a role's name must not end it.
func TestAGrantIsOneStatementWhateverTheRolesName(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	database := pool.Config().ConnConfig.Database // a name of its own
	for _, name := range []string{`a$$b`, `a$$; DROP SCHEMA troupe CASCADE; DO $$b`, `$q$$$$qq$"'`} {
		role := name + database[max(0, len(database)-12):]
		quoted := pgx.Identifier{role}.Sanitize()
		_, err := pool.Exec(t.Context(), "CREATE ROLE "+quoted)
		require.NoError(t, err)
		for _, g := range grants.Of(grants.Operator) {
			_, err = pool.Exec(t.Context(), g.To(role))
			require.NoError(t, err, g.To(role))
		}
		var insert bool
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT has_column_privilege($1, 'troupe.repairs', 'actor', 'INSERT')", role).Scan(&insert))
		require.True(t, insert)
		_, err = pool.Exec(t.Context(), "DROP OWNED BY "+quoted+"; DROP ROLE "+quoted)
		require.NoError(t, err)
	}
}

// The owner of a log that was named by mistake, or that runs a program, keeps its rights.
func TestTheStatementsChangeNothingForTheOwner(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	for _, name := range []string{"owner", `it's a \ "role"`} {
		role := name + pool.Config().ConnConfig.Database
		quoted := pgx.Identifier{role}.Sanitize()
		_, err := pool.Exec(t.Context(), "CREATE ROLE "+quoted+"; GRANT CREATE, USAGE ON SCHEMA troupe TO "+quoted+"; ALTER TABLE troupe.repairs OWNER TO "+quoted)
		require.NoError(t, err)
		before := rights(t, pool, "repairs")
		for _, g := range grants.Of(grants.Operator) {
			_, err = pool.Exec(t.Context(), g.To(role))
			require.NoError(t, err, g.To(role))
		}
		require.Equal(t, before, rights(t, pool, "repairs"))
		_, err = pool.Exec(t.Context(), "ALTER TABLE troupe.repairs OWNER TO CURRENT_USER; DROP OWNED BY "+quoted+"; DROP ROLE "+quoted)
		require.NoError(t, err)
	}
}

func rights(t *testing.T, pool *pgxpool.Pool, table string) (acl string) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `
		SELECT coalesce(relacl, acldefault('r', relowner))::text || coalesce((SELECT string_agg(attacl::text, ' ') FROM pg_attribute WHERE attrelid = c.oid), '')
		FROM pg_class AS c
		WHERE oid = ('troupe.' || $1)::regclass`, table).Scan(&acl)
	require.NoError(t, err)
	return acl
}
