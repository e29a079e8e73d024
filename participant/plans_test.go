package participant_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// TestPlansMadeOnEmptyTablesUseThePrimaryKey checks statements that were planned while their tables were empty: a
// session keeps such a plan as long as it lives, or until the table is analyzed.
func TestPlansMadeOnEmptyTablesUseThePrimaryKey(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	for statement, want := range map[string]struct{ types, args, index, by string }{
		"find_answers": {
			"text, text[], text[]", "'g', '{forward pay}', '{order/o-1}'", "answers_pkey",
			"((consumer_group = $1) AND (message_type = m.message_type) AND (idempotency_key = m.idempotency_key))",
		},
		"cancel_named": { // by the group alone it would read all of the group's for each
			"text, text[], text[], bigint", "'g', '{o-1}', '{n}', 1", "deadlines_pkey",
			"((consumer_group = gone.consumer_group) AND (scope = gone.scope) AND (name = gone.name))",
		},
		"reset_future_held": { // by the group alone it would read all that are held
			"text", "'g'", "held_last_failed", "((consumer_group = $1) AND (last_failed_at > ",
		},
		"fire_again": { // by the group alone it would read all that are pending
			"text, timestamptz, float8, text, text, bigint", "'g', NULL, 1, '', '', 1", "deadlines_fired", "((consumer_group = $1)",
		},
	} {
		text, err := os.ReadFile("sql/" + statement + ".sql")
		require.NoError(t, err)
		conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
		require.NoError(t, err)
		defer conn.Close(t.Context())
		named := pgx.NamedArgs{"scopes": nil, "names": nil, "limit": nil, "group": nil, "before": nil, "age": nil, "scope": nil, "name": nil}
		numbered, _, err := named.RewriteQuery(t.Context(), conn, string(text), nil)
		require.NoError(t, err)
		for _, sql := range []string{
			"SET plan_cache_mode = force_generic_plan", "PREPARE it (" + want.types + ") AS " + numbered,
		} {
			_, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err)
		}
		rows, err := conn.Query(t.Context(), "EXPLAIN EXECUTE it ("+want.args+")", pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.Contains(t, strings.Join(plan, "\n"), "using "+want.index, statement)
		require.Contains(t, strings.Join(plan, "\n"), "Index Cond: "+want.by, statement)
	}
}

// TestTheHotStatementsAreNotPlannedEachTime checks them, since a session plans a statement again for each call while that seems
// cheaper than one plan for all arguments, as it does if the planner sees how many elements an array has.
func TestTheHotStatementsAreNotPlannedEachTime(t *testing.T) {
	t.Parallel()
	conn, err := pgx.ConnectConfig(t.Context(), testkit.Database(t).Config().ConnConfig)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	id := [16]byte{15: 1}
	for statement, args := range map[string][]any{
		"insert_recent":  {"g", []int16{1}, [][16]byte{id}, []int32{0}},
		"insert_other":   {"g", []string{"m~1"}, []int32{0}, []int32{1}, [][16]byte{id}, []string{"m"}},
		"find_answers":   {"g", []string{"Pay"}, []string{"o-1"}},
		"insert_offsets": {int32(1), int64(1), id, int64(1), int64(1), []int64{1}, int32(1)},
		"schedule_deadlines": {pgx.NamedArgs{
			"group": "g", "scopes": []string{"o-1"}, "names": []string{"n"}, "ids": [][16]byte{id}, "ats": []*time.Time{nil},
			"afters": []float64{1}, "keys": []string{"k"}, "key_bytes": [][]byte{nil}, "types": []string{"T"}, "headers": []string{"{}"},
			"raw_headers": [][]byte{nil}, "payloads": [][]byte{nil}, "utf8_keys": [][]byte{nil}, "utf8_headers": [][]byte{nil},
		}},
		"cancel_named": {pgx.NamedArgs{"group": "g", "scopes": []string{"o-1"}, "names": []string{"n"}, "limit": 1}},
	} {
		text, err := os.ReadFile("sql/" + statement + ".sql")
		require.NoError(t, err)
		sql := string(text)
		if named, ok := args[0].(pgx.NamedArgs); ok {
			sql, args, err = named.RewriteQuery(t.Context(), conn, sql, nil)
			require.NoError(t, err)
		}
		for range 20 {
			_, err = conn.Exec(t.Context(), sql, args...)
			require.NoError(t, err, statement)
		}
		var custom int
		const planned = "SELECT custom_plans FROM pg_prepared_statements WHERE statement = $1"
		require.NoError(t, conn.QueryRow(t.Context(), planned, sql).Scan(&custom))
		assert.LessOrEqual(t, custom, 5, statement)
	}
}
