package participant_test

import (
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// A statement that was planned while its table was empty is kept to that plan for as long as its session lives, or until
// somebody analyzes the table.
func TestWhatIsPlannedOnEmptyTablesLooksUpByPrimaryKey(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	for statement, want := range map[string]struct{ types, args, index string }{
		"find_answers": {"text, text[], text[]", "'g', '{forward pay}', '{order/o-1}'", "answers_pkey"},
	} {
		text, err := os.ReadFile("sql/" + statement + ".sql")
		require.NoError(t, err)
		conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
		require.NoError(t, err)
		defer conn.Close(t.Context())
		for _, sql := range []string{
			"SET plan_cache_mode = force_generic_plan", "PREPARE it (" + want.types + ") AS " + string(text),
		} {
			_, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err)
		}
		rows, err := conn.Query(t.Context(), "EXPLAIN EXECUTE it ("+want.args+")", pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.Contains(t, strings.Join(plan, "\n"), "using "+want.index, statement)
	}
}
