package migrations_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestManyServicesMayMigrateAtOnce(t *testing.T) {
	ctx, url := t.Context(), testkit.EmptyDatabase(t)
	before, err := migrations.Get(ctx, url)
	require.NoError(t, err)
	require.Zero(t, before.Current)
	require.True(t, before.Pending())

	var g errgroup.Group
	for range 4 {
		g.Go(func() error { return migrations.Up(ctx, url) })
	}
	require.NoError(t, g.Wait())

	after, err := migrations.Get(ctx, url)
	require.NoError(t, err)
	require.Equal(t, before.Latest, after.Current)
	require.False(t, after.Pending())
	require.NoError(t, migrations.Up(ctx, url), "a second time changes nothing")
}

// A service's role has no right to create tables; its program calls Up all the same.
func TestARoleWithFewRightsMayCallUpWhereThereIsNothingToDo(t *testing.T) {
	ctx, url := t.Context(), testkit.EmptyDatabase(t)
	require.NoError(t, migrations.Up(ctx, url))
	config := fewRights(t, url)
	err := migrations.UpConfig(ctx, config)
	require.ErrorContains(t, err, "permission denied")
	require.ErrorContains(t, err, "let the role that owns the schema troupe migrate beforehand")
	require.ErrorContains(t, err, "GRANT SELECT ON troupe.migrations TO")
	exec(t, url, "GRANT SELECT ON troupe.migrations TO "+config.RuntimeParams["role"])
	require.NoError(t, migrations.UpConfig(ctx, config))
}

// TestAProgramOfAnEarlierVersionStartsOnNewerTables is a rollback: the program calls Up at its start, as its owner or as a role
// that may only read the version.
func TestAProgramOfAnEarlierVersionStartsOnNewerTables(t *testing.T) {
	ctx, url := t.Context(), testkit.EmptyDatabase(t)
	require.NoError(t, migrations.Up(ctx, url))
	exec(t, url, "INSERT INTO troupe.migrations (version_id, is_applied) VALUES (9999, true)")
	require.NoError(t, migrations.Up(ctx, url))
	require.NoError(t, migrations.UpConfig(ctx, fewRights(t, url, "GRANT SELECT ON troupe.migrations TO")))
	s, err := migrations.Get(ctx, url)
	require.NoError(t, err)
	require.EqualValues(t, 9999, s.Current)
	require.Less(t, s.Latest, s.Current)
	require.False(t, s.Pending())
}

// fewRights returns a connection as a role that may use the schema troupe, and what the further statements grant to it.
func fewRights(t *testing.T, url string, grants ...string) *pgx.ConnConfig {
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	role := "few_" + config.Database
	exec(t, url, "CREATE ROLE "+role+"; GRANT USAGE ON SCHEMA troupe TO "+role)
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), url)
		require.NoError(t, err)
		defer conn.Close(context.Background())
		_, err = conn.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		require.NoError(t, err)
	})
	for _, grant := range grants {
		exec(t, url, grant+" "+role)
	}
	config.RuntimeParams["role"] = role
	return config
}

func TestIdsOfTheDatabaseAreVersion7AndGrow(t *testing.T) {
	url := testkit.EmptyDatabase(t)
	require.NoError(t, migrations.Up(t.Context(), url))
	conn := connect(t, url)
	var version, variant int
	var fresh, grows bool
	require.NoError(t, conn.QueryRow(t.Context(), `
		WITH a AS MATERIALIZED (SELECT troupe.uuidv7() AS id, clock_timestamp() AS at, pg_sleep(0.002)),
		     b AS MATERIALIZED (SELECT troupe.uuidv7() AS id FROM a)
		SELECT get_byte(uuid_send(a.id), 6) >> 4, get_byte(uuid_send(a.id), 8) >> 6, b.id > a.id,
		       abs(('x' || left(replace(a.id::text, '-', ''), 12))::bit(48)::bigint - extract(epoch FROM a.at) * 1000) < 1000
		FROM a, b`).Scan(&version, &variant, &grows, &fresh))
	require.Equal(t, 7, version)
	require.Equal(t, 0b10, variant)
	require.True(t, grows)
	require.True(t, fresh)
}

// The grants in the package comment of outbox are enough to write, and not enough to forge.
func TestAServiceWithTheDocumentedGrantsCanWriteAndCannotForge(t *testing.T) {
	ctx, url := t.Context(), testkit.EmptyDatabase(t)
	require.NoError(t, migrations.Up(ctx, url))
	conn := connect(t, url)
	for _, sql := range []string{
		"BEGIN",
		"CREATE ROLE troupe_test_service",
		"GRANT USAGE ON SCHEMA troupe TO troupe_test_service",
		"GRANT INSERT (id, topic, key, key_bytes, type, headers, raw_headers, payload, created_at) ON troupe.outbox TO troupe_test_service",
		"SET LOCAL ROLE troupe_test_service",
		"INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ('order.payment.commands', 'o-1', 'ChargePayment', '{}')",
	} {
		_, err := conn.Exec(ctx, sql)
		require.NoError(t, err, sql)
	}
	for _, sql := range []string{
		"INSERT INTO troupe.outbox (topic, type, xid) VALUES ('t', 'T', '3')",
		"INSERT INTO troupe.outbox (topic, type, position) OVERRIDING SYSTEM VALUE VALUES ('t', 'T', 3)",
		"SELECT nextval('troupe.outbox_position_seq')",
		"DELETE FROM troupe.outbox",
	} {
		_, err := conn.Exec(ctx, "SAVEPOINT s")
		require.NoError(t, err)
		_, err = conn.Exec(ctx, sql)
		require.ErrorContains(t, err, "permission denied", sql)
		_, err = conn.Exec(ctx, "ROLLBACK TO s")
		require.NoError(t, err)
	}
	_, err := conn.Exec(ctx, "ROLLBACK")
	require.NoError(t, err)
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, url, sql string) {
	t.Helper()
	_, err := connect(t, url).Exec(t.Context(), sql)
	require.NoError(t, err)
}

// TestARowOfMoreThanEightMebibytesIsRefusedByEachTableThatTheOutboxIsWrittenFrom: a relay, and a participant with local work, reads
// whole rows, and one deadline that the outbox refuses would keep the others of its group from being fired.
func TestARowOfMoreThanEightMebibytesIsRefusedByEachTableThatTheOutboxIsWrittenFrom(t *testing.T) {
	pool := testkit.Database(t)
	for _, topic := range []string{"sent", "local"} {
		if topic == "local" {
			_, err := pool.Exec(t.Context(), "SELECT troupe.make_local('local', 'shop')")
			require.NoError(t, err)
		}
		const insert = "INSERT INTO troupe.outbox (topic, type, payload) VALUES ($1, 'Thing', convert_to(repeat('x', $2), 'UTF8'))"
		_, err := pool.Exec(t.Context(), insert, topic, 8<<20-100)
		require.NoError(t, err)
		_, err = pool.Exec(t.Context(), insert, topic, 8<<20)
		require.ErrorContains(t, err, map[string]string{"sent": "outbox_size", "local": "local_work_size"}[topic])
	}
	_, err := pool.Exec(t.Context(), `
		INSERT INTO troupe.deadlines (consumer_group, scope, name, id, due_at, type, headers, payload)
		VALUES ('shop', 'o-1', 'pay', gen_random_uuid(), now(), 'Pay', '{}', convert_to(repeat('x', 8 * 1024 * 1024), 'UTF8'))`)
	require.ErrorContains(t, err, "deadlines_size")
}

// TestAnotherToolRunsTheStatements runs the printed statements, and the files themselves as psql would.
func TestAnotherToolRunsTheStatements(t *testing.T) {
	t.Parallel()
	sources, err := filepath.Glob("sql/*.sql")
	require.NoError(t, err)
	statements := func(files []string) (sql string) {
		for _, path := range files {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			sql += string(text)
		}
		return sql
	}
	printed, err := migrations.SQL(0)
	require.NoError(t, err)
	last := len(sources) - 1
	rest, err := migrations.SQL(int64(last))
	require.NoError(t, err)
	require.Less(t, len(rest), len(printed))
	for name, c := range map[string]struct {
		sql        string
		current    int
		unrecorded bool
	}{
		"printed":             {printed, last + 1, false},
		"the files":           {statements(sources), last + 1, true},
		"all files but one":   {statements(sources[:last]), last, true},
		"files, then printed": {statements(sources[:last]) + rest, last + 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, url := t.Context(), testkit.EmptyDatabase(t)
			exec(t, url, c.sql)
			s, err := migrations.Get(ctx, url)
			require.NoError(t, err)
			require.Equal(t, migrations.Status{Current: int64(c.current), Latest: int64(last + 1), Unrecorded: c.unrecorded}, s)
			for range 2 {
				require.NoError(t, migrations.Up(ctx, url))
			}
			s, err = migrations.Get(ctx, url)
			require.NoError(t, err)
			require.Equal(t, migrations.Status{Current: int64(last + 1), Latest: int64(last + 1)}, s)
		})
	}
	newer, err := migrations.SQL(int64(last + 1))
	require.NoError(t, err)
	require.Empty(t, newer)
}

// TestTablesOfNoVersionAreNamed checks a database in which another tool stopped half-way, and one that lacks a table.
func TestTablesOfNoVersionAreNamed(t *testing.T) {
	t.Parallel()
	printed, err := migrations.SQL(0)
	require.NoError(t, err)
	for name, c := range map[string]struct{ sql, missing string }{
		"a table":    {"DROP TABLE troupe.held; DROP TABLE troupe.migrations", "troupe.held is missing"},
		"a function": {"DROP FUNCTION troupe.end_local; DELETE FROM troupe.migrations", "troupe.end_local is missing"},
		"a version":  {"DROP TABLE troupe.deadlines; DROP TABLE troupe.migrations", "there is version 7, and not all before it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := testkit.EmptyDatabase(t)
			exec(t, url, printed+c.sql)
			_, err := migrations.Get(t.Context(), url)
			require.ErrorIs(t, err, migrations.ErrPartial)
			require.ErrorContains(t, err, c.missing)
			require.ErrorIs(t, migrations.Up(t.Context(), url), migrations.ErrPartial)
		})
	}
}

// A role that may only connect can take each advisory lock. A migration does not wait for it, and names its session.
func TestAStrangerWhoHoldsTheLockOfMigrationsIsNamed(t *testing.T) {
	ctx, url := t.Context(), testkit.EmptyDatabase(t)
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	role := "stranger_" + config.Database
	exec(t, url, "CREATE ROLE "+role+" LOGIN PASSWORD 'of-a-test'")
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), url)
		require.NoError(t, err)
		defer conn.Close(context.Background())
		_, err = conn.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		require.NoError(t, err)
	})
	config.User, config.Password = role, "of-a-test"
	stranger, err := pgx.ConnectConfig(ctx, config)
	require.NoError(t, err)
	defer stranger.Close(context.Background())
	_, err = stranger.Exec(ctx, "SELECT pg_advisory_lock(x'74726f757065'::bigint), pg_advisory_lock(4097083626)")
	require.NoError(t, err)
	err = migrations.Up(ctx, url)
	require.ErrorContains(t, err, role)
	require.ErrorContains(t, err, fmt.Sprintf("pg_terminate_backend(%d)", stranger.PgConn().PID()))
	_, err = stranger.Exec(ctx, "SELECT pg_advisory_unlock_all()")
	require.NoError(t, err)
	require.NoError(t, migrations.Up(ctx, url))
}

// TestAPreparedTransactionThatHoldsTheLockOfMigrationsIsNamed: no session holds such a lock.
func TestAPreparedTransactionThatHoldsTheLockOfMigrationsIsNamed(t *testing.T) {
	server, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{Settings: map[string]string{"max_prepared_transactions": "5"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	url := server.URL("")
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	var number string
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT pg_current_xact_id()::xid::text FROM pg_advisory_xact_lock(4097083626)").Scan(&number))
	_, err = tx.Exec(t.Context(), "PREPARE TRANSACTION 'p'")
	require.NoError(t, err)
	require.ErrorContains(t, migrations.Up(t.Context(), url), "prepared transaction "+number+" of role")
	_, err = conn.Exec(t.Context(), "ROLLBACK PREPARED 'p'")
	require.NoError(t, err)
	require.NoError(t, migrations.Up(t.Context(), url))
}
