package relay_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
)

// The roles of relays of different outboxes have rights on the same tables: each may change the records of its own outbox only.
func TestARelayChangesNoRecordOfAnotherOutbox(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, nil)
	ofOutbox, ofA := grantstest.New(t, s.pool, grants.Relay, grants.MappedRelay), grantstest.New(t, s.pool, grants.MappedRelay)
	s.exec("CREATE TABLE public.a (id int); CREATE TABLE public.b (id int); CREATE TABLE public.d (id int); GRANT SELECT ON public.a, public.d TO " + ofA.Name)
	s.exec("INSERT INTO troupe.mapped_tables (name) VALUES ('public.b'), ('public.a')")
	s.exec("INSERT INTO troupe.relay_leases (shard) SELECT shard FROM troupe.mapped_tables UNION ALL SELECT 0")
	s.exec("INSERT INTO troupe.relay_slot_samples SELECT shard, 1, now(), 's', 0 FROM troupe.relay_leases")
	const failure = "INSERT INTO troupe.mapped_failures (table_name, id, event_id, topic, status, attempts, max_attempts, last_error, row) " +
		"SELECT 'public.' || name, gen_random_uuid(), '', 't', 'parked', 1, 1, 'e', '[]' FROM unnest("
	s.exec(failure + "ARRAY['a', 'b']) name")
	const shard = "(SELECT shard FROM troupe.mapped_tables WHERE name = 'public.b')"
	for sql, refused := range map[string]struct{ outbox, a bool }{
		"UPDATE troupe.relay_leases SET term = 1000 WHERE shard = 0":                                                                    {false, true},
		"INSERT INTO troupe.relay_leases (shard) VALUES (1)":                                                                            {false, true},
		"INSERT INTO troupe.relay_leases (shard) VALUES (-1000)":                                                                        {true, true},
		"UPDATE troupe.relay_leases SET expires_at = now() + interval '1 hour' WHERE shard = " + shard:                                  {true, true},
		"UPDATE troupe.relay_leases SET shard = -1001 WHERE shard = 0":                                                                  {true, true},
		"UPDATE troupe.relay_slot_samples SET retained = 1 WHERE shard = 0":                                                             {false, true},
		"UPDATE troupe.mapped_tables SET lsn = '0/1', slot = 'mine' WHERE name = 'public.b'":                                            {true, true},
		"UPDATE troupe.mapped_tables SET name = 'public.b' WHERE name = 'public.a'":                                                     {true, true},
		"INSERT INTO troupe.mapped_tables (name) VALUES ('public.c')":                                                                   {true, true},
		failure + "ARRAY['b']) name":                                                                                                    {true, true},
		"UPDATE troupe.mapped_failures SET table_name = 'public.b', row = '[1]' WHERE table_name = 'public.a'":                          {true, true},
		"UPDATE troupe.mapped_failures SET row = '[1]' WHERE table_name = 'public.b'":                                                   {true, true},
		"DELETE FROM troupe.mapped_failures WHERE table_name = 'public.b'":                                                              {true, true},
		"UPDATE troupe.relay_leases SET term = term + 1 WHERE shard = (SELECT shard FROM troupe.mapped_tables WHERE name = 'public.a')": {true, false},
		"UPDATE troupe.mapped_tables SET lsn = '0/1' WHERE name = 'public.a'":                                                           {true, false},
		failure + "ARRAY['a']) name":                                                                                                    {true, false},
		"UPDATE troupe.mapped_failures SET attempts = 2 WHERE table_name = 'public.a'":                                                  {true, false},
	} {
		try := func(role grantstest.Role, refused bool) {
			t.Helper()
			_, err := role.Pool().Exec(t.Context(), sql)
			var answer *pgconn.PgError
			if refused {
				require.ErrorAs(t, err, &answer, sql)
				require.Equal(t, "42501", answer.Code, sql)
				return
			}
			require.NoError(t, err, sql)
		}
		try(ofOutbox, refused.outbox)
		try(ofA, refused.a)
	}
	// A table cannot have the lease of troupe.outbox: to pause the table's relay would pause all.
	_, err := ofA.Pool().Exec(t.Context(), "INSERT INTO troupe.mapped_tables (name, shard) OVERRIDING SYSTEM VALUE VALUES ('public.d', 0)")
	require.ErrorContains(t, err, "mapped_tables_shard_check")
	// A function of the role's own does not decide.
	pool := ofA.Pool()
	s.exec("CREATE SCHEMA own AUTHORIZATION " + ofA.Name)
	_, err = pool.Exec(t.Context(), "CREATE FUNCTION own.pg_has_role(oid, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'; "+
		"SET search_path = own, pg_catalog; UPDATE troupe.relay_leases SET term = 1000 WHERE shard = 0")
	require.ErrorContains(t, err, "may not change records of the relay of another outbox in troupe.relay_leases")

	// Nor does a temporary table of its own: that it owns troupe.relay_leases, and that it may read public.b.
	conn, err := ofA.Pool().Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "CREATE TEMP TABLE pg_class AS SELECT c.oid, c.relname, c.relnamespace, r.oid AS relowner "+
		"FROM pg_catalog.pg_class c, pg_catalog.pg_roles r WHERE r.rolname = current_user")
	require.NoError(t, err)
	for _, sql := range []string{
		"UPDATE troupe.relay_leases SET term = 1000 WHERE shard = 0",
		"UPDATE troupe.mapped_tables SET lsn = '0/1' WHERE name = 'public.b'",
		"DELETE FROM troupe.mapped_failures WHERE table_name = 'public.b'",
	} {
		_, err = conn.Exec(t.Context(), sql)
		require.ErrorContains(t, err, "may not change records of the relay of another outbox", sql)
	}
}

// A relay refuses a slot of another outbox. So no relay may name the slot of another outbox as its own, also while nothing streams it, or write a
// time that programs cannot read.
func TestARelayNamesNoSlotOfAnotherOutboxAsItsOwn(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, nil)
	outbox, ofA := grantstest.New(t, s.pool, grants.Relay), grantstest.New(t, s.pool, grants.MappedRelay)
	ofOutbox := outbox.Pool()
	s.exec("CREATE TABLE public.a (id int); CREATE TABLE public.b (id int); CREATE TABLE public.e (id int); GRANT SELECT ON public.a, public.e TO " + ofA.Name)
	s.exec("INSERT INTO troupe.mapped_tables (name, slot, source) VALUES ('public.a', 'a', 'wal'), ('public.b', 'b', 'wal'), ('public.gone', 'gone', 'wal')")
	s.exec("INSERT INTO troupe.relay_state (slot, source, system_id, timeline, updated_at) VALUES " +
		"('outbox', 'wal', '1', 1, now()), ('former', 'wal', '1', 1, now() - interval '1 day')")
	const state = "INSERT INTO troupe.relay_state (slot, source, system_id, timeline, updated_at) VALUES "
	for _, c := range []struct {
		role *pgxpool.Pool
		code string // "": it is allowed
		sql  string
	}{
		{ofA.Pool(), "42501", "UPDATE troupe.mapped_tables SET slot = 'outbox', updated_at = now() WHERE name = 'public.a'"},
		{ofA.Pool(), "42501", "UPDATE troupe.mapped_tables SET slot = 'b' WHERE name = 'public.a'"},
		{ofA.Pool(), "42501", "INSERT INTO troupe.mapped_tables (name, slot) VALUES ('public.e', 'b')"},
		{ofA.Pool(), "23514", "UPDATE troupe.mapped_tables SET updated_at = 'infinity' WHERE name = 'public.a'"},
		{ofA.Pool(), "", "UPDATE troupe.mapped_tables SET slot = 'a', updated_at = now() WHERE name = 'public.a'"},
		{ofA.Pool(), "", "UPDATE troupe.mapped_tables SET slot = 'former' WHERE name = 'public.a'"},
		{ofA.Pool(), "", "UPDATE troupe.mapped_tables SET slot = 'gone' WHERE name = 'public.a'"},
		{ofA.Pool(), "", "UPDATE troupe.mapped_tables SET slot = 'a' WHERE name = 'public.a'"},
		{ofOutbox, "42501", state + "('b', 'wal', '1', 1, now())"},
		{ofOutbox, "42501", "UPDATE troupe.relay_state SET slot = 'b' WHERE slot = 'former'"},
		{ofOutbox, "23514", "UPDATE troupe.relay_state SET updated_at = 'infinity' WHERE slot = 'outbox'"},
		{ofOutbox, "", state + "('b', 'poll', '1', 1, now() - interval '1 day')"},
		{ofOutbox, "42501", "UPDATE troupe.relay_state SET source = 'wal', updated_at = now() + interval '1 day' WHERE slot = 'b'"},
		{ofOutbox, "", state + "('gone', 'wal', '1', 1, now())"},
		{ofOutbox, "", "UPDATE troupe.relay_state SET updated_at = now() WHERE slot = 'outbox'"},
		// With the rights of an older version relays store their states as before.
		{s.pool, "", "REVOKE SELECT (slot, source, updated_at) ON troupe.relay_state FROM " + ofA.Name},
		{ofA.Pool(), "", "UPDATE troupe.mapped_tables SET slot = 'former' WHERE name = 'public.a'"},
		{ofA.Pool(), "42501", "UPDATE troupe.mapped_tables SET slot = 'b' WHERE name = 'public.a'"},
		{s.pool, "", "REVOKE SELECT (name, slot, updated_at) ON troupe.mapped_tables FROM " + outbox.Name},
		{ofOutbox, "", "UPDATE troupe.relay_state SET updated_at = now() WHERE slot = 'outbox'"},
	} {
		_, err := c.role.Exec(t.Context(), c.sql)
		if c.code == "" {
			require.NoError(t, err, c.sql)
			continue
		}
		var answer *pgconn.PgError
		require.ErrorAs(t, err, &answer, c.sql)
		require.Equal(t, c.code, answer.Code, c.sql)
	}
}

// A relay registers no table that every role may read, or may create: lists of outboxes and of their failed rows have an end, and many such tables
// would hide the ones of another relay.
func TestARelayRegistersNoTableThatEveryRoleMayRead(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, nil)
	role := grantstest.New(t, s.pool, grants.MappedRelay)
	s.exec("CREATE VIEW public.view AS SELECT 1 AS id; CREATE TABLE public.a (id int); GRANT SELECT ON public.view, public.a TO " + role.Name)
	conn, err := role.Pool().Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "CREATE TEMP TABLE own (id int)")
	require.NoError(t, err)
	for _, name := range []string{
		"'pg_catalog.pg_class'", "'information_schema.columns'", "'troupe.migrations'", "'public.view'",
		"(SELECT nspname || '.own' FROM pg_namespace WHERE oid = pg_my_temp_schema())",
	} {
		_, err = conn.Exec(t.Context(), "INSERT INTO troupe.mapped_tables (name) VALUES ("+name+")")
		require.ErrorContains(t, err, "may not change records of the relay of another outbox in troupe.mapped_tables", name)
	}
	_, err = conn.Exec(t.Context(), "INSERT INTO troupe.mapped_tables (name) VALUES ('public.a')")
	require.NoError(t, err)
}
