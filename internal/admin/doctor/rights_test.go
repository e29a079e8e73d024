package doctor_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/doctor"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/testkit"
)

// roleOf creates a role without any right, for one test.
func roleOf(t *testing.T, pool *pgxpool.Pool, name string) string {
	t.Helper()
	role := "doctor_" + name + "_" + strings.ReplaceAll(config(pool).Database, "-", "_")
	exec(t, pool, "CREATE ROLE "+role)
	t.Cleanup(func() {
		_, err := pool.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		require.NoError(t, err)
	})
	return role
}

// granted returns the rights of a role in the schema troupe.
func granted(t *testing.T, pool *pgxpool.Pool, role string) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		WITH objects AS (SELECT c.oid, c.relname, c.relkind FROM pg_class AS c WHERE relnamespace = 'troupe'::regnamespace)
		SELECT 'USAGE on the schema' WHERE has_schema_privilege($1, 'troupe', 'USAGE')
		UNION ALL SELECT p || ' ' || relname FROM objects, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) AS p
			WHERE relkind IN ('r', 'p', 'v') AND has_table_privilege($1, oid, p)
		UNION ALL SELECT p || ' ' || relname FROM objects, unnest(ARRAY['USAGE', 'SELECT', 'UPDATE']) AS p
			WHERE relkind = 'S' AND has_sequence_privilege($1, oid, p)
		UNION ALL SELECT p || ' ' || relname || ' ' || attname FROM objects, pg_attribute, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) AS p
			WHERE relkind IN ('r', 'p', 'v') AND attrelid = oid AND attnum > 0 AND NOT attisdropped AND has_column_privilege($1, oid, attnum, p)
		ORDER BY 1`, role)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return all
}

// TestFindingsNameTheGrantsThatARoleLacks gives a role without rights the grants that the findings name. The role then has the
// documented rights of the part, no more and no less.
func TestFindingsNameTheGrantsThatARoleLacks(t *testing.T) {
	t.Parallel()
	for _, part := range doctor.Parts() {
		t.Run(string(part), func(t *testing.T) {
			t.Parallel()
			pool := testkit.Database(t)
			role := roleOf(t, pool, "named")
			look := doctor.Config{Database: config(pool), Parts: []doctor.Part{part}, Role: role}
			r := examine(t, look)
			require.False(t, r.OK())
			for _, f := range of(r, "privileges") {
				require.Contains(t, []doctor.Level{doctor.Failure, doctor.Warning}, f.Level)
				exec(t, pool, f.Remedy)
			}
			r = examine(t, look)
			for _, f := range of(r, "privileges") {
				require.Equal(t, doctor.OK, f.Level, "%+v", f)
			}
			require.Equal(t, granted(t, pool, grantstest.New(t, pool, part).Name), granted(t, pool, role))
		})
	}
}

// TestARoleThatCouldForgeAnAuditLogIsWarnedOf: the finding's remedy leaves the role with the documented rights of the part. The owner of
// the log has all rights, and gets no warning.
func TestARoleThatCouldForgeAnAuditLogIsWarnedOf(t *testing.T) {
	t.Parallel()
	warnings := func(r *doctor.Report) []doctor.Finding {
		return slices.DeleteFunc(of(r, "privileges"), func(f doctor.Finding) bool { return f.Level == doctor.OK })
	}
	for part, log := range map[doctor.Part]string{
		doctor.Sagas: "saga_events", doctor.SagaOperator: "saga_events", doctor.Operator: "repairs", doctor.RelayOperator: "outbox_repairs",
	} {
		t.Run(string(part), func(t *testing.T) {
			t.Parallel()
			pool := testkit.Database(t)
			role := grantstest.New(t, pool, part).Name
			documented := granted(t, pool, role)
			look := doctor.Config{Database: config(pool), Parts: []doctor.Part{part}, Role: role}
			for _, more := range []string{"INSERT", "INSERT (role)", "UPDATE (actor)", "UPDATE", "DELETE", "TRUNCATE"} {
				exec(t, pool, "GRANT "+more+" ON troupe."+log+" TO "+role)
				found := warnings(examine(t, look))
				require.Len(t, found, 1, more)
				require.Contains(t, found[0].Found, "could forge")
				require.Contains(t, found[0].Found, log)
				exec(t, pool, found[0].Remedy)
				require.Equal(t, documented, granted(t, pool, role), more)
				require.Empty(t, warnings(examine(t, look)), more)
			}
			require.Empty(t, warnings(examine(t, doctor.Config{Database: config(pool), Parts: []doctor.Part{part}})))
		})
	}
}

// TestARightToForgeAnAuditLogIsFoundWhereverItIsHeld: the remedy is for the role that holds the right, and leaves that role the documented
// rights that it has.
func TestARightToForgeAnAuditLogIsFoundWhereverItIsHeld(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	outer, inner := roleOf(t, pool, "outer"), grantstest.New(t, pool, doctor.Operator).Name
	role := grantstest.New(t, pool, doctor.Participant).Name
	exec(t, pool, "GRANT "+inner+" TO "+outer)
	look := doctor.Config{Database: config(pool), Parts: []doctor.Part{doctor.Participant}, Role: role}
	ofOuter, ofInner, ofRole := granted(t, pool, outer), granted(t, pool, inner), granted(t, pool, role)

	for name, c := range map[string]struct{ before, after, names string }{
		"a log that no part of the role writes": {"GRANT UPDATE ON troupe.relay_pauses TO " + role, "", ""},
		"a log that no part writes":             {"GRANT INSERT ON troupe.erasures TO " + role, "", ""},
		"a trigger":                             {"GRANT TRIGGER ON troupe.saga_events TO " + role, "", ""},
		"a role of which the role is a member": {
			"GRANT " + outer + " TO " + role + "; GRANT DELETE ON troupe.repairs TO " + inner, "REVOKE " + outer + " FROM " + role, "as a member of " + inner,
		},
		"a member that has to set the role": {
			"ALTER ROLE " + role + " NOINHERIT; GRANT " + outer + " TO " + role + "; GRANT INSERT (role) ON troupe.saga_events TO " + outer,
			"ALTER ROLE " + role + " INHERIT; REVOKE " + outer + " FROM " + role, "as a member of " + outer,
		},
		"everybody": {"GRANT TRUNCATE ON troupe.outbox_repairs TO PUBLIC", "", "by a grant to PUBLIC"},
		"a right that another role granted": {
			"GRANT USAGE ON SCHEMA troupe TO " + outer + "; GRANT DELETE ON troupe.repairs TO " + outer + " WITH GRANT OPTION; SET ROLE " + outer +
				"; GRANT DELETE ON troupe.repairs TO " + role + "; RESET ROLE",
			"REVOKE DELETE ON troupe.repairs FROM " + outer + "; REVOKE USAGE ON SCHEMA troupe FROM " + outer, "",
		},
		"every table of the server": {"GRANT pg_write_all_data TO " + outer + "; GRANT " + outer + " TO " + role, "REVOKE " + outer + " FROM " + role, outer},
	} {
		exec(t, pool, c.before)
		found := slices.DeleteFunc(of(examine(t, look), "privileges"), func(f doctor.Finding) bool { return f.Level == doctor.OK })
		require.Len(t, found, 1, name)
		require.Contains(t, found[0].Found, "could forge", name)
		require.Contains(t, found[0].Found, c.names, name)
		exec(t, pool, found[0].Remedy)
		for _, f := range of(examine(t, look), "privileges") {
			require.Equal(t, doctor.OK, f.Level, "%s: %+v", name, f)
		}
		exec(t, pool, c.after)
		require.Equal(t, ofOuter, granted(t, pool, outer), name)
		require.Equal(t, ofInner, granted(t, pool, inner), name)
		require.Equal(t, ofRole, granted(t, pool, role), name)
	}
}

// TestAViewerMayReadEveryTable but the keys of subjects; it includes tables of later migrations.
func TestAViewerMayReadEveryTable(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	role := grantstest.New(t, pool, doctor.Viewer).Name
	rows, err := pool.Query(t.Context(), `
		SELECT relname FROM pg_class
		WHERE relnamespace = 'troupe'::regnamespace AND relkind IN ('r', 'p', 'v') AND NOT relispartition
		  AND NOT has_table_privilege($1, oid, 'SELECT')
		ORDER BY 1`, role)
	require.NoError(t, err)
	unread, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"subject_keys"}, unread, "internal/grants lacks these for viewer")
}

// TestOnlyItsPartMayReadTheKeysOfSubjects, and no part may change or remove one.
func TestOnlyItsPartMayReadTheKeysOfSubjects(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	for _, part := range doctor.Parts() {
		role := grantstest.New(t, pool, part).Name
		var reads, changes bool
		require.NoError(t, pool.QueryRow(t.Context(), `
			SELECT has_column_privilege($1, 'troupe.subject_keys', 'wrapped_key', 'SELECT'),
			       has_any_column_privilege($1, 'troupe.subject_keys', 'UPDATE') OR has_table_privilege($1, 'troupe.subject_keys', 'DELETE, TRUNCATE, TRIGGER')`,
			role).Scan(&reads, &changes))
		require.Equal(t, part == grants.SubjectKeys, reads, part)
		require.False(t, changes, part)
	}
}

func TestARoleThatCannotBeTakenIsSaid(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	r := examine(t, doctor.Config{Database: config(pool), Role: "no such role"})
	require.Equal(t, doctor.Failure, require1(t, r, "role").Level)
	require.Empty(t, of(r, "privileges"))
}

// TestTablesOfTheServiceAreNotTroupes checks that a table of the service with the same name is not taken for Troupe's.
func TestTablesOfTheServiceAreNotTroupes(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	exec(t, pool, "CREATE TABLE outbox (id int); CREATE TABLE sagas (id int)")
	role := roleOf(t, pool, "own")
	exec(t, pool, "GRANT ALL ON outbox, sagas TO "+role)
	r := examine(t, doctor.Config{Database: config(pool), Role: role, Parts: []doctor.Part{doctor.Participant, doctor.SagaOperator}})
	require.False(t, r.OK())
	for _, f := range of(r, "privileges") {
		require.Contains(t, f.Remedy, "GRANT")
	}
}
