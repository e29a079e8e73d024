package doctor_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	operators "github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/doctor"
	"github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/registry"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func examine(t *testing.T, cfg doctor.Config) *doctor.Report {
	t.Helper()
	cfg.Limit = 2 * time.Minute // for a busy machine
	r, err := doctor.Examine(t.Context(), cfg)
	require.NoError(t, err)
	for _, f := range r.Findings {
		if f.Level == doctor.Warning || f.Level == doctor.Failure {
			require.NotEmpty(t, f.Remedy, "%+v", f)
		}
		require.NotContains(t, f.Found+f.Remedy, "%!", "%+v", f)
		require.NotContains(t, f.Found+f.Remedy, "s3cr3t", "%+v", f)
	}
	return r
}

// of returns the findings of a name.
func of(r *doctor.Report, name string) (all []doctor.Finding) {
	for _, f := range r.Findings {
		if f.Name == name {
			all = append(all, f)
		}
	}
	return all
}

// require1 returns the only finding of a name.
func require1(t *testing.T, r *doctor.Report, name string) doctor.Finding {
	t.Helper()
	all := of(r, name)
	require.Len(t, all, 1, "%s: %+v", name, r.Findings)
	return all[0]
}

func config(pool *pgxpool.Pool) *pgx.ConnConfig { return pool.Config().ConnConfig }

func exec(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	_, err := pool.Exec(t.Context(), sql)
	require.NoError(t, err, sql)
}

func TestAHealthySetupHasNoFindings(t *testing.T) {
	t.Parallel()
	registry, err := registry.New(testkit.Registry(t))
	require.NoError(t, err)
	pool := testkit.Database(t)
	r := examine(t, doctor.Config{Database: config(pool), Brokers: testkit.Kafka(t), Registry: registry})
	require.True(t, r.OK(), "%+v", r.Findings)
	for _, name := range []string{"database", "server", "connections", "clock", "migrations", "source", "headroom", "kafka", "topics", "registry"} {
		require.Equal(t, doctor.OK, require1(t, r, name).Level, "%+v", r.Findings)
	}
	for _, f := range of(r, "privileges") {
		require.Equal(t, doctor.OK, f.Level, "%+v", f)
	}
	require.Len(t, of(r, "privileges"), 2, "relay and participant")
	require.Equal(t, doctor.Warning, require1(t, r, "durability").Level, "the tests' server does not sync")
}

func TestNothingToLookAtIsAMistake(t *testing.T) {
	t.Parallel()
	for text, cfg := range map[string]doctor.Config{
		"nothing to look at":      {},
		`part "dancer"`:           {Brokers: []string{"a:1"}, Parts: []doctor.Part{"dancer"}},
		`flow "Order"`:            {Brokers: []string{"a:1"}, Flow: "Order"},
		"a flow or a hop without": {Database: &pgx.ConnConfig{}, Flow: "order"},
		"is negative":             {Brokers: []string{"a:1"}, Limit: -1},
	} {
		_, err := doctor.Examine(t.Context(), cfg)
		require.ErrorContains(t, err, text)
	}
}

func TestADatabaseThatCannotBeReachedIsToldByItsCause(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	role := roleOf(t, pool, "nologin")
	exec(t, pool, "ALTER ROLE "+role+" PASSWORD 's3cr3t'")
	for name, c := range map[string]struct {
		change func(*pgx.ConnConfig)
		remedy string
	}{
		"nobody listens": {func(c *pgx.ConnConfig) { c.Host, c.Port = "127.0.0.1", 1 }, "that the server is up"},
		"no database":    {func(c *pgx.ConnConfig) { c.Database = "nobodys" }, "CREATE DATABASE"},
		"no right":       {func(c *pgx.ConnConfig) { c.User, c.Password = role, "s3cr3t" }, "LOGIN"},
		"wrong password": {func(c *pgx.ConnConfig) { c.Password = "s3cr3t" }, "the password is wrong: correct it where this program reads it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c0 := config(pool).Copy()
			c0.Fallbacks = nil
			c.change(c0)
			r := examine(t, doctor.Config{Database: c0})
			require.False(t, r.OK())
			require.Len(t, r.Findings, 1)
			require.Equal(t, doctor.Failure, r.Findings[0].Level)
			require.Contains(t, r.Findings[0].Remedy, c.remedy)
		})
	}
}

func TestMigrationsAreComparedWithTheProgram(t *testing.T) {
	t.Parallel()
	empty, err := pgx.ParseConfig(testkit.EmptyDatabase(t))
	require.NoError(t, err)
	f := require1(t, examine(t, doctor.Config{Database: empty}), "migrations")
	require.Equal(t, doctor.Failure, f.Level)
	require.Equal(t, "outbox-relay migrate", f.Remedy)

	pool := testkit.Database(t)
	exec(t, pool, "DELETE FROM troupe.migrations WHERE version_id = (SELECT max(version_id) FROM troupe.migrations); DROP TABLE troupe.subject_keys")
	f = require1(t, examine(t, doctor.Config{Database: config(pool)}), "migrations")
	require.Equal(t, doctor.Failure, f.Level)
	exec(t, pool, "INSERT INTO troupe.migrations (version_id, is_applied) VALUES (9999, true)")
	f = require1(t, examine(t, doctor.Config{Database: config(pool)}), "migrations")
	require.Equal(t, doctor.Warning, f.Level)
	require.Contains(t, f.Found, "9999")
}

func TestAClockThatIsOffIsFound(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	for off, word := range map[time.Duration]string{time.Hour: "behind", -time.Hour: "ahead of"} {
		r := examine(t, doctor.Config{Database: config(pool), Now: func() time.Time { return time.Now().Add(off) }})
		f := require1(t, r, "clock")
		require.Equal(t, doctor.Warning, f.Level)
		require.Contains(t, f.Found, word)
		require.True(t, r.OK(), "a warning")
	}
}

func TestASlotThatNobodyReadsIsFound(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	name := strings.ReplaceAll(config(pool).Database, "-", "_")
	exec(t, pool, "SELECT pg_create_logical_replication_slot('"+name+"', 'pgoutput')")
	drop := "SELECT pg_drop_replication_slot('" + name + "');"
	var found bool
	for _, f := range of(examine(t, doctor.Config{Database: config(pool)}), "slots") {
		if strings.Contains(f.Found, "slot "+name+" has no reader") {
			found = true
			require.Equal(t, doctor.Warning, f.Level)
			_, statement, _ := strings.Cut(f.Remedy, ": ")
			require.Equal(t, drop, statement)
		}
	}
	exec(t, pool, drop)
	require.True(t, found)
}

func TestASchemaInWhichEveryRoleMayCreateIsFound(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	exec(t, pool, "REVOKE CREATE ON SCHEMA public FROM PUBLIC") // Postgres 14 grants it
	require.Empty(t, of(examine(t, doctor.Config{Database: config(pool)}), "public"))
	exec(t, pool, "GRANT CREATE ON SCHEMA public TO PUBLIC")
	f := require1(t, examine(t, doctor.Config{Database: config(pool)}), "public")
	require.Equal(t, doctor.Warning, f.Level)
	require.Contains(t, f.Remedy, "REVOKE CREATE ON SCHEMA public FROM PUBLIC;")
}

func TestADatabaseThatIsNotInUTF8IsFound(t *testing.T) {
	t.Parallel()
	server, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "CREATE DATABASE bytes ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	for database, warned := range map[string]bool{"bytes": true, "postgres": false} {
		cfg, err := pgx.ParseConfig(server.URL(database))
		require.NoError(t, err)
		found := of(examine(t, doctor.Config{Database: cfg}), "encoding")
		if !warned {
			require.Empty(t, found)
			continue
		}
		require.Len(t, found, 1)
		require.Equal(t, doctor.Warning, found[0].Level)
		require.Contains(t, found[0].Found, "SQL_ASCII")
	}
}

// TestARowWhoseTopicIsNotUTF8HidesNoOtherTopic checks a database whose text has no encoding, with one such row and one of a topic
// that does not exist.
func TestARowWhoseTopicIsNotUTF8HidesNoOtherTopic(t *testing.T) {
	t.Parallel()
	server, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "CREATE DATABASE bytes ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	require.NoError(t, migrations.Up(t.Context(), server.URL("bytes")))
	pool, err := pgxpool.New(t.Context(), server.URL("bytes"))
	require.NoError(t, err)
	defer pool.Close()
	exec(t, pool, `INSERT INTO troupe.outbox (topic, key, type, payload)
		VALUES (convert_from('\xe9'::bytea, 'SQL_ASCII'), 'k', 'Thing', '{}'), ('missing.one.commands', 'k', 'Thing', '{}')`)
	cfg := config(pool)
	for _, encoding := range []string{"SQL_ASCII", "UTF8"} {
		cfg.RuntimeParams["client_encoding"] = encoding
		found := of(examine(t, doctor.Config{Database: cfg, Brokers: testkit.Kafka(t)}), "topics")
		require.NotEmpty(t, found)
		require.Equal(t, doctor.Failure, found[0].Level)
		require.Contains(t, found[0].Found, "missing.one.commands", encoding)
	}
}

func TestAServerThatTakesTheRelayForAStandbyIsFound(t *testing.T) {
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
	require.Empty(t, of(examine(t, doctor.Config{Database: config(pool)}), "standbys"))
	exec(t, pool, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	exec(t, pool, "SELECT pg_reload_conf()")
	testkit.Wait(t, "the setting", func() (bool, error) {
		var names string
		err := pool.QueryRow(t.Context(), "SELECT current_setting('synchronous_standby_names')").Scan(&names)
		return names == "*", err
	})
	require.Equal(t, doctor.Warning, require1(t, examine(t, doctor.Config{Database: config(pool)}), "standbys").Level)
}

func TestFailedRowsAreFound(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	topic := testkit.Flow(t) + ".x.commands"
	exec(t, pool, "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ('"+topic+"', 'k', 'T', '{}')")
	exec(t, pool, `INSERT INTO troupe.outbox_failures (position, id, topic, status, attempts, max_attempts, last_error)
		SELECT position, id, topic, 'parked', 1, 1, 'e' FROM troupe.outbox`)
	r := examine(t, doctor.Config{Database: config(pool), Brokers: testkit.Kafka(t)})
	require.Contains(t, require1(t, r, "parked").Found, "1 rows wait for a person")
	f := require1(t, r, "topics")
	require.Equal(t, doctor.Failure, f.Level)
	require.Equal(t, topic+": does not exist, and rows wait for it", f.Found)
}

// TestRowsThatNoRelayPublishesAreFound: a relay that was never started, or has ended, is named with the age of the oldest row.
func TestRowsThatNoRelayPublishesAreFound(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	publishing := func() doctor.Finding {
		return require1(t, examine(t, doctor.Config{Database: config(pool)}), "publishing")
	}
	f := publishing()
	require.Equal(t, doctor.OK, f.Level, "%+v", f)
	require.Equal(t, "no relay has run for this database; no row waits", f.Found)

	exec(t, pool, "INSERT INTO troupe.outbox (topic, key, type, payload, created_at) VALUES ('a.b.commands', 'k', 'T', '{}', now() - interval '3 hours')")
	f = publishing()
	require.Equal(t, doctor.Warning, f.Level, "%+v", f)
	require.Regexp(t, `^no relay has run for this database; rows that wait: 1, the oldest for 3h\d+m\d+s$`, f.Found)
	require.Contains(t, f.Remedy, "outbox-relay run")

	exec(t, pool, "INSERT INTO troupe.relay_leases (shard, holder, term, expires_at) VALUES (0, 'r-1', 3, now() - interval '10 minutes')")
	require.Regexp(t, `^no relay runs; r-1 was active until 10m\d+s ago; rows that wait: 1, `, publishing().Found)
	exec(t, pool, "UPDATE troupe.relay_leases SET term = 0") // paused before any relay has run
	require.Regexp(t, `^no relay runs; rows that wait: 1, `, publishing().Found)
	exec(t, pool, "UPDATE troupe.relay_leases SET term = 3, expires_at = now() + interval '1 hour'")
	require.Equal(t, "by r-1, term 3", publishing().Found)
}

// TestAPausedOutboxIsFound pauses an outbox that no relay has published yet, and then one whose relay runs.
func TestAPausedOutboxIsFound(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	publishing := func() doctor.Finding {
		return require1(t, examine(t, doctor.Config{Database: config(pool)}), "publishing")
	}
	outbox := desk.Desk{DB: pool}
	require.NoError(t, outbox.Pause(t.Context(), operators.Actor{Name: "ann", Reason: "ticket 4711"}))
	f := publishing()
	require.Equal(t, doctor.Warning, f.Level, "%+v", f)
	require.Regexp(t, `^ann paused all relays of the outbox at \S+Z: ticket 4711; no relay has run for this database; no row waits$`, f.Found)
	require.Contains(t, f.Remedy, "outbox-relay resume")

	exec(t, pool, "INSERT INTO troupe.outbox (topic, key, type, payload, created_at) VALUES ('a.b.commands', 'k', 'T', '{}', now() - interval '3 hours')")
	exec(t, pool, "UPDATE troupe.relay_leases SET holder = 'r-1', term = 3, expires_at = now() + interval '10 minutes'")
	f = publishing()
	require.Equal(t, doctor.Warning, f.Level, "%+v", f)
	require.Regexp(t, `^ann paused all relays of the outbox at \S+Z: ticket 4711; rows that wait: 1, the oldest for 3h\d+m\d+s$`, f.Found)

	require.NoError(t, outbox.Resume(t.Context(), operators.Actor{Name: "ann"}))
	require.Equal(t, "by r-1, term 3", publishing().Found)
	exec(t, pool, "UPDATE troupe.relay_leases SET holder = '', term = 0, expires_at = 'epoch'")
	require.Regexp(t, `^no relay has run for this database; rows that wait: 1, `, publishing().Found)
}

// TestMessagesThatNoMemberTriesAreFound checks held messages and local work that are long overdue; others are not reported.
func TestMessagesThatNoMemberTriesAreFound(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	exec(t, pool, `INSERT INTO troupe.held (consumer_group, topic, topic_id, partition, "offset", hold_key, headers, message_time, max_attempts, attempts,
			next_try, error_class, last_error, first_failed_at, last_failed_at)
		SELECT 'shop', topic, troupe.uuidv7(), 0, n, int4send(n), '', now(), 4, 1, now() + due, 'transient', 'e', now(), now()
		FROM (VALUES (1, 'gone', interval '-1 hour'), (2, 'gone', '1 hour'), (3, 'waits', '1 hour'), (4, 'waits', '-1 second')) AS v (n, topic, due)`)
	exec(t, pool, `INSERT INTO troupe.held (consumer_group, topic, topic_id, partition, "offset", hold_key, headers, message_time, max_attempts)
		SELECT 'shop', topic, troupe.uuidv7(), 1, n, 'behind', '', now(), 4 FROM (VALUES (5, 'left'), (6, 'owned')) AS v (n, topic)`)
	exec(t, pool, `INSERT INTO troupe.leases (consumer_group, topic, partition, owner, released_at)
		VALUES ('shop', 'left', 1, '', now() - interval '1 hour'), ('shop', 'owned', 1, 'm', NULL)`)
	exec(t, pool, "SELECT troupe.make_local('local', 'shop')")
	exec(t, pool, `INSERT INTO troupe.outbox (topic, key, type, created_at) VALUES ('local', 'a', 'T', now() - interval '1 hour'), ('local', 'a', 'T', now()),
		('local', 'b', 'T', now()), ('local', 'c', 'T', now()), ('local', 'd', 'T', now())`)
	_, err := pool.Exec(t.Context(), `UPDATE troupe.local_work SET status = 'in progress', locked_at = now() - interval '1 hour',
		locked_by = CASE key WHEN 'c' THEN 7 ELSE 8 END WHERE key IN ('c', 'd')`)
	require.NoError(t, err)
	runs, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer runs.Release()
	_, err = runs.Exec(t.Context(), "SELECT pg_advisory_lock(x'7472756c'::integer, 8)")
	require.NoError(t, err)
	r := examine(t, doctor.Config{Database: config(pool), Parts: []doctor.Part{doctor.Participant}})
	held := of(r, "held")
	require.Len(t, held, 2)
	require.Equal(t, doctor.Warning, held[0].Level)
	require.Contains(t, held[0].Found, "2 messages of gone are held by the group shop")
	require.Contains(t, held[1].Found, "1 messages of left are held by the group shop")
	require.Contains(t, require1(t, r, "local work").Found, "2 keys of local wait for the group shop")
}

func TestAnOverdueScheduleIsReported(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	exec(t, pool, `INSERT INTO troupe.schedules (name, cron, zone, saga, topic, type, next_at, paused_at, error, requested_at) VALUES
		('a-failing', '@daily', 'UTC', 'billing', NULL, NULL, now() - interval '6 minutes', NULL, 'no variable of', NULL),
		('b-saga', '@daily', 'UTC', 'billing', NULL, NULL, now() - interval '5 minutes', NULL, NULL, NULL),
		('c-message', '@daily', 'UTC', NULL, 't', 'T', now() - interval '4 minutes', NULL, NULL, NULL),
		('d-paused', '@daily', 'UTC', NULL, 't', 'T', now() - interval '1 hour', now(), NULL, NULL),
		('e-requested', '@daily', 'UTC', NULL, 't', 'T', now() + interval '1 hour', now(), NULL, now() - interval '3 minutes'),
		('f-on-time', '@daily', 'UTC', NULL, 't', 'T', now() + interval '1 hour', NULL, NULL, NULL)`)
	all := of(examine(t, doctor.Config{Database: config(pool), Parts: []doctor.Part{doctor.Participant}}), "schedule")
	require.Len(t, all, 4)
	require.Contains(t, all[0].Found, "cannot be run: no variable of")
	require.Contains(t, all[1].Found, "no coordinator that knows the saga type billing runs it")
	require.Contains(t, all[2].Found, "c-message has been overdue")
	require.Contains(t, all[3].Found, "e-requested has been overdue")
	role := grantstest.New(t, pool, grants.LocalWork)
	exec(t, pool, "DELETE FROM troupe.schedules")
	exec(t, pool, "REVOKE ALL ON troupe.schedules FROM PUBLIC")
	require.Empty(t, of(examine(t, doctor.Config{Database: config(role.Pool()), Parts: []doctor.Part{doctor.LocalWork}}), "schedule"))
}

func TestExpectationsThatAreNotMetAreReported(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	examined := func(p *pgxpool.Pool) []doctor.Finding {
		return of(examine(t, doctor.Config{Database: config(p), Parts: []doctor.Part{doctor.Participant}}), "expectation")
	}
	insert := `INSERT INTO troupe.expectations (consumer_group, name, key, after_at, due_at, alert_id, met_at, missed_at, alert_at, forget_at) VALUES `
	exec(t, pool, insert+`
		('shop', 'waiting', 'a', now(), now() + interval '1 hour', troupe.uuidv7(), NULL, NULL, NULL, NULL),
		('shop', 'met', 'a', now() - interval '1 hour', now() - interval '50 minutes', troupe.uuidv7(), now() - interval '55 minutes', NULL, NULL, now()),
		('shop', 'late', 'a', now() - interval '1 hour', now() - interval '50 minutes', troupe.uuidv7(), now(), now() - interval '50 minutes', NULL, now()),
		('shop', 'new', 'a', now() - interval '1 hour', now() - interval '1 minute', troupe.uuidv7(), NULL, NULL, NULL, NULL)`)
	require.Empty(t, examined(pool))
	exec(t, pool, insert+`
		('shop', 'alerted', 'a', now() - interval '2 hours', now() - interval '1 hour', troupe.uuidv7(), NULL, now() - interval '11 minutes', now() + interval '1 minute', NULL),
		('shop', 'missing', 'a', now() - interval '2 hours', now() - interval '1 hour', troupe.uuidv7(), NULL, now() - interval '1 minute', now(), NULL),
		('shop', 'missing', 'b', now() - interval '2 hours', now() - interval '1 hour', troupe.uuidv7(), NULL, now() - interval '1 hour', NULL, NULL),
		('shop', 'unrecorded', 'a', now() - interval '2 hours', now() - interval '1 hour', troupe.uuidv7(), NULL, NULL, NULL, NULL)`)
	all := examined(pool)
	require.Len(t, all, 4)
	require.Contains(t, all[0].Found, "the expected event of alerted of the group shop is missing for 1 key;")
	require.Contains(t, all[1].Found, "of alerted of the group shop, 1 alert has waited")
	require.Contains(t, all[2].Found, "the expected event of missing of the group shop is missing for 2 keys;")
	require.Contains(t, all[3].Found, "the time of unrecorded of the group shop is over for 1 key, and no member has recorded it;")
	role := grantstest.New(t, pool, grants.LocalWork)
	exec(t, pool, "REVOKE ALL ON troupe.expectations FROM PUBLIC")
	require.Empty(t, examined(role.Pool()))
}

func TestWorkThatWaitsForAPersonIsReported(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	names := func(p *pgxpool.Pool) (found []string) {
		r := examine(t, doctor.Config{Database: config(p), Parts: []doctor.Part{doctor.Participant}})
		for _, f := range slices.Concat(of(r, "dead letters"), of(r, "parked sagas")) {
			require.Equal(t, doctor.Warning, f.Level)
			found = append(found, f.Found)
		}
		return found
	}
	require.Empty(t, names(pool))
	exec(t, pool, `INSERT INTO troupe.dead_letters (consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, "offset", headers, message_id,
			message_type, correlation_id, status, first_failed_at, last_failed_at)
		SELECT 'shop', 'h', 'permanent', 'e', 1, 't', troupe.uuidv7(), 0, n, '', n::text, 'T', 'c', status, now(), '2026-01-02 03:04:05+00'
		FROM (VALUES (1, 'open'), (2, 'open'), (3, 'discarded')) AS v (n, status)`)
	exec(t, pool, `INSERT INTO troupe.sagas (id, saga, key, hop, consumer_group, definition, version, status, steps, state, started_at)
		SELECT 'order/' || status, 'order', status, 'a.b', 'a.b', 'd', 1, status, '', '{}', '2026-01-02 03:04:05+00'
		FROM (VALUES ('parked'), ('running')) AS v (status)`)
	require.Equal(t, []string{"2 open dead letters; the oldest is of 2026-01-02T03:04:05Z", "1 parked saga; the oldest is of 2026-01-02T03:04:05Z"}, names(pool))
	role := grantstest.New(t, pool, grants.LocalWork)
	exec(t, pool, "REVOKE ALL ON troupe.dead_letters, troupe.sagas FROM PUBLIC")
	require.NotContains(t, strings.Join(names(role.Pool()), ""), "parked saga")
}

func TestARebuildThatWaitsIsReported(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	exec(t, pool, `INSERT INTO troupe.rebuilds (consumer_group, generation, handlers, from_time, emit, started_at, cancelled_at, finished_at) VALUES
		('waits', 1, '{waits/T}', 'epoch', false, now() - interval '6 minutes', NULL, NULL),
		('new', 1, '{new/T}', 'epoch', false, now(), NULL, NULL),
		('cancelled', 1, '{cancelled/T}', 'epoch', false, now() - interval '2 days', now() - interval '1 day', now() - interval '1 day')`)
	exec(t, pool, `INSERT INTO troupe.rebuild_partitions (rebuild, topic, partition, topic_id, handlers, from_offset)
		SELECT id, 't', 0, gen_random_uuid(), handlers, 0 FROM troupe.rebuilds`)
	examined := func(pool *pgxpool.Pool) []doctor.Finding {
		return of(examine(t, doctor.Config{Database: config(pool), Parts: []doctor.Part{doctor.Participant}}), "rebuild")
	}
	all := examined(pool)
	require.Len(t, all, 1)
	require.Contains(t, all[0].Found, "of the group waits waits in 1 partitions")
	exec(t, pool, "UPDATE troupe.rebuild_partitions SET until = 5, watermark = 4, epoch = 0, began_at = now()")
	require.Empty(t, examined(pool))
	exec(t, pool, "UPDATE troupe.rebuilds SET started_at = started_at - interval '1 day' WHERE consumer_group = 'waits'")
	all = examined(pool)
	require.Len(t, all, 1)
	require.Contains(t, all[0].Found, "of the group waits has run since")
}

func TestARegistryIsAsked(t *testing.T) {
	t.Parallel()
	gone, err := registry.New("http://127.0.0.1:1")
	require.NoError(t, err)
	r := examine(t, doctor.Config{Registry: gone})
	require.Equal(t, doctor.Failure, require1(t, r, "registry").Level)
}

func TestTheReportForPeopleAndForPrograms(t *testing.T) {
	t.Parallel()
	var r doctor.Report
	text, err := json.Marshal(&r)
	require.NoError(t, err)
	require.JSONEq(t, `{"ok": true, "findings": []}`, string(text))

	r.Ok("server", "Postgres 17")
	r.Fail("privileges", "relay: \x1b[2Jshop lacks\nrights", "GRANT a;\nGRANT b;")
	var b bytes.Buffer
	require.NoError(t, r.Text(&b, nil))
	require.Equal(t, `ok       server       Postgres 17
failure  privileges   relay: `+"\uFFFD"+`[2Jshop lacks rights
                      → GRANT a;
                        GRANT b;
`, b.String())
	b.Reset()
	require.NoError(t, r.Text(&b, func(l doctor.Level, word string) string { return "<" + strings.TrimSpace(word) + ">" }))
	require.True(t, strings.HasPrefix(b.String(), "<ok> server"))
	text, err = json.Marshal(&r)
	require.NoError(t, err)
	require.Contains(t, string(text), `"ok":false`)
}

// A relay of an earlier version, as a member of the owner, made partitions that belong to its own role.
func TestAPartitionOfAnotherOwnerIsFound(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	found := func() (all []doctor.Finding) {
		for _, f := range of(examine(t, doctor.Config{Database: config(pool)}), "partitions") {
			if strings.Contains(f.Found, "that another role than its owner") {
				all = append(all, f)
			}
		}
		return all
	}
	require.Empty(t, found())
	role := grantstest.New(t, pool)
	var partition, owner string
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT min(inhrelid::regclass::text), (SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class WHERE oid = 'troupe.outbox'::regclass)
		FROM pg_inherits WHERE inhparent = 'troupe.outbox'::regclass`).Scan(&partition, &owner))
	exec(t, pool, "ALTER TABLE "+partition+" OWNER TO "+pgx.Identifier{role.Name}.Sanitize())
	all := found()
	require.Len(t, all, 1)
	require.Equal(t, doctor.Warning, all[0].Level)
	require.Contains(t, all[0].Found, "owns: 1, of ")
	require.Contains(t, all[0].Found, role.Name)
	_, statement, _ := strings.Cut(all[0].Remedy, "both roles:")
	exec(t, pool, statement)
	require.Empty(t, found())

	exec(t, pool, `CREATE SCHEMA "Other"`)
	for n := range 12 { // with names and a schema of the operator's own
		name := fmt.Sprintf(`"Other"."Part %d"`, n)
		exec(t, pool, "CREATE TABLE "+name+" (LIKE troupe.outbox INCLUDING ALL)")
		exec(t, pool, fmt.Sprintf("ALTER TABLE troupe.outbox ATTACH PARTITION %s FOR VALUES FROM (%d) TO (%d)", name, 1<<60+n, 1<<60+n+1))
		exec(t, pool, "ALTER TABLE "+name+" OWNER TO "+pgx.Identifier{role.Name}.Sanitize())
	}
	all = found()
	require.Len(t, all, 1)
	_, statements, _ := strings.Cut(all[0].Remedy, "both roles:")
	statements, more, _ := strings.Cut(statements, "\nand ")
	require.Equal(t, "2 more: repeat the check", more)
	require.Equal(t, 10, strings.Count(statements, "ALTER TABLE"))
	exec(t, pool, statements)
	_, statements, _ = strings.Cut(found()[0].Remedy, "both roles:")
	exec(t, pool, statements)
	require.Empty(t, found())
}
