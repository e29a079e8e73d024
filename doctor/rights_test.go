package doctor_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/doctor"
	"github.com/troupe-go/troupe/testkit"
)

// roleOf makes a role without any right, of the test's own.
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

// granted is everything that a role may do in the schema troupe.
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

// TestTheGrantsThatAreNamedAreThoseThatAreNeeded: a role without rights gets what the findings say, and then has what the
// package comment or the page says, no more and no less.
func TestTheGrantsThatAreNamedAreThoseThatAreNeeded(t *testing.T) {
	t.Parallel()
	service := statements(t, "../participant/doc.go", "service")
	require.Len(t, service, 7)
	local := slices.Clone(service)
	local[2] = regexp.MustCompile(`troupe\.(leases|inbox_offsets|started|held),\s*`).ReplaceAllString(service[2], "")
	for part, documented := range map[doctor.Part][]string{
		doctor.Relay:        nil, // no page says more than this package
		doctor.MappedRelay:  nil,
		doctor.Participant:  service[:4],
		doctor.LocalWork:    local,
		doctor.Sagas:        append(service[:1:1], statements(t, "../saga/coordinator/doc.go", "service")...),
		doctor.Flow:         append(service[:1:1], statements(t, "../flow/doc.go", "service")...),
		doctor.Watch:        append(service[:1:1], statements(t, "../flow/watch/doc.go", "watcher")...),
		doctor.Operator:     statements(t, "../docs/dead-letters.md", "operator"),
		doctor.SagaOperator: statements(t, "../docs/operating-sagas.md", "operator"),
	} {
		t.Run(string(part), func(t *testing.T) {
			t.Parallel()
			pool := testkit.Database(t)
			role := roleOf(t, pool, "named")
			look := doctor.Config{Database: config(pool), Parts: []doctor.Part{part}, Role: role}
			r := examine(t, look)
			require.False(t, r.OK())
			for _, f := range of(r, "privileges") {
				require.Contains(t, []doctor.Level{doctor.Failure, doctor.Warning}, f.Level)
				for _, sql := range strings.Split(f.Remedy, "\n") {
					exec(t, pool, sql)
				}
			}
			r = examine(t, look)
			require.Equal(t, doctor.OK, require1(t, r, "privileges").Level, "%+v", r.Findings)
			if documented == nil {
				return
			}
			other := roleOf(t, pool, "documented")
			for _, sql := range documented {
				exec(t, pool, strings.ReplaceAll(sql, "TO ROLE", "TO "+other))
			}
			require.Equal(t, granted(t, pool, other), granted(t, pool, role))
		})
	}
}

// statements are the GRANTs of a package comment or of a page, to ROLE.
func statements(t *testing.T, path, to string) []string {
	t.Helper()
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	text := strings.ReplaceAll(string(source), "\n//", "\n")
	if strings.HasSuffix(path, ".md") {
		_, text, _ = strings.Cut(text, "## Rights")
		_, text, _ = strings.Cut(text, "```sql\n")
		text, _, _ = strings.Cut(text, "```")
	}
	var ring []string
	for slot := range 32 {
		ring = append(ring, fmt.Sprintf("troupe.inbox_recent_%d", slot))
	}
	text = strings.ReplaceAll(text, "troupe.inbox_recent_0, …, troupe.inbox_recent_31", strings.Join(ring, ", "))
	text = strings.ReplaceAll(text, "TO "+to, "TO ROLE")
	all := regexp.MustCompile(`(?s)DO \$\$.*?END \$\$;|GRANT [^;]*;`).FindAllString(text, -1)
	require.NotEmpty(t, all, path)
	return all
}

func TestARoleThatCannotBeTakenIsSaid(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	r := examine(t, doctor.Config{Database: config(pool), Role: "nobody at all"})
	require.Equal(t, doctor.Failure, require1(t, r, "role").Level)
	require.Empty(t, of(r, "privileges"))
}

// A table of the service's own with the same name must not be taken for Troupe's.
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
