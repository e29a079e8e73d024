package doctor_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/doctor"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/testkit"
)

// Each obstacle to a failover without loss is named while it is there. From Postgres 17 on there are more of them.
func TestTheCostOfAFailoverIsNamed(t *testing.T) {
	t.Parallel()
	server, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	address, err := server.CreateDatabase(t.Context(), "shop", "")
	require.NoError(t, err)
	require.NoError(t, migrations.Up(t.Context(), address))
	pool, err := pgxpool.New(t.Context(), address)
	require.NoError(t, err)
	defer pool.Close()
	// wants waits until the findings are these, by a part of each: a changed setting takes a moment.
	wants := func(parts ...string) {
		t.Helper()
		testkit.Wait(t, strings.Join(parts, "; "), func() (bool, error) {
			found := of(examine(t, doctor.Config{Database: config(pool)}), "failover")
			ok := len(found) == len(parts)
			for n := 0; ok && n < len(parts); n++ {
				ok = strings.Contains(found[n].Found, parts[n])
			}
			if !ok {
				return false, fmt.Errorf("%+v", found)
			}
			return true, nil
		})
	}
	var version int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int").Scan(&version))
	wants("no standby is connected")
	exec(t, pool, "SELECT pg_create_physical_replication_slot('standby_b')")
	if version < 170000 {
		wants("copies no slots to standbys")
		return
	}
	const ahead = "the log is streamed before a standby has it"
	exec(t, pool, "SELECT pg_create_logical_replication_slot('troupe_shop', 'pgoutput')")
	wants("slot troupe_shop is not copied", "sync_replication_slots is off", ahead)
	exec(t, pool, "SELECT pg_drop_replication_slot('troupe_shop')")
	exec(t, pool, "SELECT pg_create_logical_replication_slot('troupe_shop', 'pgoutput', failover => true)")
	exec(t, pool, "ALTER SYSTEM SET sync_replication_slots = on")
	exec(t, pool, "SELECT pg_reload_conf()")
	wants(ahead)
	exec(t, pool, "ALTER SYSTEM SET synchronized_standby_slots = 'standby_b'")
	exec(t, pool, "SELECT pg_reload_conf()")
	wants("publishes nothing until the standby of slot standby_b is connected")
	exec(t, pool, "SELECT pg_drop_replication_slot('standby_b')")
	wants("the relay publishes nothing: synchronized_standby_slots names standby_b, and there is no such physical slot")
}
