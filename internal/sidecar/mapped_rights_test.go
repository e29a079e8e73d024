//go:build unix

package sidecar_test

import (
	"encoding/json"
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

// TestCheckReportsThatNoRelayPublishesAMappedTable also pauses the relays of the table.
func TestCheckReportsThatNoRelayPublishesAMappedTable(t *testing.T) {
	t.Parallel()
	environ, conn, _ := site(t)
	exec := func(sql string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec("CREATE TABLE public.outbox (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text, type text, payload jsonb)")
	path := filepath.Join(t.TempDir(), "relay.yaml")
	require.NoError(t, os.WriteFile(path, []byte("outboxes:\n  - name: shop\n    mapping: {table: public.outbox}\n"), 0o600))
	publishing := func() (level, found string) {
		t.Helper()
		var f findings
		r := run(t, environ, "check", "--config", path, "--output", "json")
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &f), r.stdout+r.stderr)
		for _, one := range f.Findings {
			if one.Name == "publishing" {
				return one.Level, one.Found
			}
		}
		return "", ""
	}
	level, found := publishing()
	require.Equal(t, "info", level)
	require.Equal(t, "no relay has published public.outbox yet", found)

	exec(`WITH t AS (INSERT INTO troupe.mapped_tables (name) VALUES ('public.outbox') RETURNING shard)
		INSERT INTO troupe.relay_leases (shard, holder, term, expires_at) SELECT shard, 'r-1', 3, now() - interval '3 hours' FROM t`)
	level, found = publishing()
	require.Equal(t, "warning", level)
	require.Regexp(t, `^no relay runs for public.outbox; r-1 was active until \S+Z$`, found)

	exec("UPDATE troupe.relay_leases SET expires_at = now() + interval '1 hour'")
	level, found = publishing()
	require.Equal(t, "ok", level)
	require.Equal(t, "by r-1", found)

	exec("UPDATE troupe.relay_leases SET paused_at = now(), paused_by = 'ann', paused_why = 'ticket 4711'")
	level, found = publishing()
	require.Equal(t, "warning", level)
	require.Regexp(t, `^ann paused all relays of public.outbox at \S+Z: ticket 4711$`, found)

	// Before the first relay: only an operator's pause, and its end, have written the lease.
	exec("UPDATE troupe.relay_leases SET holder = '', term = 0, expires_at = 'epoch', paused_at = NULL, paused_by = NULL, paused_why = NULL")
	level, found = publishing()
	require.Equal(t, "info", level)
	require.Equal(t, "no relay has published public.outbox yet", found)
}
