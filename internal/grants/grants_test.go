package grants_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
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
