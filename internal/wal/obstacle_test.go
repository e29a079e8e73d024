package wal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/wal"
	"github.com/troupe-go/troupe/testkit"
)

// A table that is a partition of another may be published by itself or by its ancestor. A row filter is an obstacle in either
// case: by itself as such, and by its ancestor since its rows are the ancestor's then, which is the only case with a filter.
func TestARowFilterOfAPartitionedTableIsAnObstacle(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	var version int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int").Scan(&version))
	if version < 150000 {
		t.Skip("publications have row filters since Postgres 15")
	}
	_, err := pool.Exec(t.Context(), `CREATE TABLE public.events (id int, kind text, day int) PARTITION BY LIST (kind);
		CREATE TABLE public.orders PARTITION OF public.events FOR VALUES IN ('order') PARTITION BY LIST (day);
		CREATE TABLE public.orders_1 PARTITION OF public.orders FOR VALUES IN (1)`)
	require.NoError(t, err)
	for _, c := range []struct{ publication, orders, orders1 string }{
		{"public.events WHERE (id > 5) WITH (publish_via_partition_root = true)", "does not hold", "does not hold"},
		{"public.events WITH (publish_via_partition_root = true)", "does not hold", "does not hold"},
		{"public.events, public.orders_1 WHERE (id > 5) WITH (publish_via_partition_root = true)", "does not hold", "does not hold"},
		{"public.orders WHERE (id > 5) WITH (publish_via_partition_root = true)", "has a row filter", "does not hold"},
		{"public.orders WITH (publish_via_partition_root = true)", "", "does not hold"},
		{"public.events", "does not hold", ""},
		{"public.events, public.orders_1 WHERE (id > 5)", "does not hold", "has a row filter"},
	} {
		_, err := pool.Exec(t.Context(), "CREATE PUBLICATION one FOR TABLE "+c.publication)
		require.NoError(t, err)
		for table, want := range map[string]string{"orders": c.orders, "orders_1": c.orders1} {
			found, err := wal.Obstacle(t.Context(), pool, wal.Published{Publication: "one", Schema: "public", Table: table})
			require.NoError(t, err)
			require.Contains(t, found, want, "%s of %s", table, c.publication)
			require.Equal(t, want == "", found == "", "%s of %s: %s", table, c.publication, found)
		}
		_, err = pool.Exec(t.Context(), "DROP PUBLICATION one")
		require.NoError(t, err)
	}
	_, err = pool.Exec(t.Context(), "CREATE PUBLICATION one FOR TABLE public.events WHERE (id > 5)")
	require.Error(t, err, "Postgres has no filter of a partitioned table whose rows are the partitions'")
}

func TestAWalsenderIsTakenForASynchronousStandbyByItsName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		setting, application string
		want                 bool
	}{
		{"", "relay", false},
		{"*", "", true},
		{"FIRST 1 (a, Relay)", "relay", true},
		{"ANY 1 (a, relay2)", "relay", false},
		{"relay", "", false},
	} {
		require.Equal(t, c.want, wal.StandbyNamesMatch(c.setting, c.application), "%+v", c)
	}
}
