package decisions_test

import (
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// ofOne has the arguments of the hot statements, for one saga.
var ofOne = map[string]any{
	"ids": []string{"order/o-1"}, "hop": "order.order", "group": "order.order", "sagas": []string{"order"},
	"variables": []string{"payment_id"}, "values": []string{"p-1"}, "was": []int32{1}, "versions": []int32{2},
	"statuses": []string{"running"}, "steps": []string{""}, "reasons": []string{""}, "states": []string{"{}"},
	"wakes": []*string{nil}, "ended": []*string{nil}, "definitions": []string{"d"}, "limit": 1,
	"id": "order/o-1", "saga": "order", "variable": "payment_id", "value": "p-1", "message": "m", "seconds": 1,
	"prefixes": []string{"door/Arrived/"}, "after": 0, "most": 8,
}

// A statement that was planned while its table was empty keeps that plan as long as its session lives, or until the table is
// analyzed.
func TestPlansMadeOnEmptyTablesScanNoTable(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	for statement, index := range map[string]string{
		"find_kept": "saga_stash_saga_id", "find_stash": "saga_stash_pkey", "read_stash": "saga_stash_pkey", "measure_stash": "saga_stash_pkey",
		"delete_kept": "saga_stash_saga_id", "delete_stash": "saga_stash_pkey", "expire_stash": "saga_stash_pkey", "keep_stash": "saga_stash_pkey",
		"drop_stash": "saga_stash_saga_id", "open_stash": "saga_stash_pkey", "prune_stash": "saga_stash_expires_at",
		"load_sagas": "sagas_pkey", "update_sagas": "sagas_pkey", "find_associated": "saga_associations_pkey",
		"delete_associations": "saga_associations_saga ",
	} {
		text, err := os.ReadFile("sql/" + statement + ".sql")
		require.NoError(t, err)
		conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
		require.NoError(t, err)
		defer conn.Close(t.Context())
		_, err = conn.Exec(t.Context(), "SET plan_cache_mode = force_generic_plan")
		require.NoError(t, err)
		sql, args, err := pgx.NamedArgs(ofOne).RewriteQuery(t.Context(), conn, string(text), nil)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "PREPARE it AS "+sql, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err, statement)
		list := strings.Repeat(", NULL", len(args))[2:]
		rows, err := conn.Query(t.Context(), "EXPLAIN EXECUTE it ("+list+")", pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.Contains(t, strings.Join(plan, "\n"), index, "%s", statement)
		require.NotContains(t, strings.Join(plan, "\n"), "Seq Scan", "%s", statement)
		require.True(t, index == "saga_stash_expires_at" || !strings.Contains(strings.Join(plan, "\n"), "saga_stash_expires_at"), "%s reads all events for the next saga", statement)
		if index == "saga_stash_pkey" {
			require.Regexp(t, `saga_stash_pkey on saga_stash\b[^\n]*\n *Index Cond: \(\(saga = `, strings.Join(plan, "\n"), "%s", statement)
		}
	}
}

// TestTheHotStatementsAreNotPlannedEachTime: a session plans a statement for each call while that looks cheaper than one plan
// for all arguments, as it does when the planner sees how many elements an array has.
func TestTheHotStatementsAreNotPlannedEachTime(t *testing.T) {
	t.Parallel()
	conn, err := pgx.ConnectConfig(t.Context(), testkit.Database(t).Config().ConnConfig)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	for _, statement := range []string{"load_sagas", "update_sagas", "find_associated", "delete_associations"} {
		text, err := os.ReadFile("sql/" + statement + ".sql")
		require.NoError(t, err)
		sql, args, err := pgx.NamedArgs(ofOne).RewriteQuery(t.Context(), conn, string(text), nil)
		require.NoError(t, err)
		for range 20 {
			_, err = conn.Exec(t.Context(), sql, args...)
			require.NoError(t, err)
		}
		var custom int
		const planned = "SELECT custom_plans FROM pg_prepared_statements WHERE statement = $1"
		require.NoError(t, conn.QueryRow(t.Context(), planned, sql).Scan(&custom))
		require.LessOrEqual(t, custom, 5, statement)
	}
}
