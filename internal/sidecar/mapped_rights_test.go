//go:build unix

package sidecar_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/testkit"
)

// TestCheckReportsThatTheRoleCannotReadItsMappedTable: a relay that continues a slot needs no right on the table until the slot is lost.
// Then it must read the table, and waits. So check reports the missing right before that.
func TestCheckReportsThatTheRoleCannotReadItsMappedTable(t *testing.T) {
	t.Parallel()
	environ, conn, _ := site(t)
	pool, err := pgxpool.New(t.Context(), conn.Config().ConnString())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	role := grantstest.New(t, pool, grants.MappedRelay)
	exec := func(sql string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec("ALTER ROLE " + role.Name + " REPLICATION")
	exec("CREATE TABLE public.outbox (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text, type text, payload jsonb)")
	exec("CREATE PUBLICATION dbz FOR TABLE public.outbox")
	flow := testkit.Flow(t)
	exec("INSERT INTO public.outbox VALUES (gen_random_uuid(), 'order', 'k', 'Placed', '{}')")
	path := filepath.Join(t.TempDir(), "relay.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`
outboxes:
  - name: shop
    publication: dbz
    mapping:
      table: public.outbox
      route.topic.replacement: `+flow+`.${routedByValue}.events
`), 0o600))
	check := func() result {
		return run(t, []string{"DATABASE_URL=" + role.URL(), environ[1]}, "check", "--config", path)
	}

	r := check()
	require.Equal(t, 1, r.code, r.stdout+r.stderr)
	require.Contains(t, r.stdout, "public.outbox: this role may not read it")
	require.Contains(t, r.stdout, "GRANT SELECT ON public.outbox TO "+role.Name+";")
	require.NotContains(t, r.stdout, "no row in the table names one", "the table was not read")

	exec("GRANT SELECT (id, payload) ON public.outbox TO " + role.Name)
	require.Contains(t, check().stdout, "public.outbox: this role may not read it", "a failed row is stored with all its columns")

	exec("GRANT SELECT ON public.outbox TO " + role.Name)
	r = check()
	require.NotContains(t, r.stdout, "may not read it")
	require.Contains(t, r.stdout, flow+".order.events: does not exist, and rows of the table go there")
}
