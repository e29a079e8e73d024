//go:build unix

package sidecar_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

type findings struct {
	OK       bool
	Findings []struct{ Name, Level, Found, Remedy string }
}

func check(t *testing.T, environ []string) (f findings, code int) {
	t.Helper()
	r := run(t, environ, "check", "--output", "json")
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &f), r.stdout+r.stderr)
	for _, one := range f.Findings {
		if one.Level == "failure" || one.Level == "warning" {
			require.NotEmpty(t, one.Remedy, one.Name)
		}
	}
	return f, r.code
}

func (f findings) level(name string) string {
	for _, one := range f.Findings {
		if one.Name == name && one.Level != "ok" {
			return one.Level
		}
	}
	return "ok"
}

func TestCheckSaysWhatWouldGoWrong(t *testing.T) {
	t.Parallel()
	environ, conn, topic := site(t)
	f, code := check(t, environ)
	require.True(t, f.OK)
	require.Equal(t, 0, code)
	require.Equal(t, "ok", f.level("source"))
	require.Equal(t, "ok", f.level("slots"))

	insert(t, conn, topic, "k")
	f, code = check(t, environ)
	require.Equal(t, 0, code)
	require.Equal(t, "ok", f.level("topics"))

	insert(t, conn, topic+"-none", "k")
	_, err := conn.Exec(t.Context(), `INSERT INTO troupe.outbox_failures (position, id, topic, status, attempts, max_attempts, last_error)
		SELECT position, id, topic, 'parked', 1, 1, 'e' FROM troupe.outbox LIMIT 1`)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "SELECT setval('troupe.outbox_position_seq', 19999990)")
	require.NoError(t, err)
	f, code = check(t, environ)
	require.False(t, f.OK)
	require.Equal(t, 1, code)
	require.Equal(t, "failure", f.level("topics"))
	require.Equal(t, "warning", f.level("parked"))
	require.Equal(t, "warning", f.level("headroom"))

	_, err = conn.Exec(t.Context(), "ALTER SEQUENCE troupe.outbox_position_seq CACHE 20")
	require.NoError(t, err)
	f, _ = check(t, environ)
	require.Equal(t, "failure", f.level("sequence"))
}

func TestCheckOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	f, code := check(t, []string{"DATABASE_URL=" + nowhere, "KAFKA_BROKERS=127.0.0.1:1"})
	require.Equal(t, 1, code)
	require.Equal(t, "failure", f.level("database"))
	require.Equal(t, "failure", f.level("kafka"))

	f, code = check(t, []string{"DATABASE_URL=" + testkit.EmptyDatabase(t), "KAFKA_BROKERS=127.0.0.1:1"})
	require.Equal(t, 1, code)
	require.Equal(t, "ok", f.level("database"))
	require.Equal(t, "failure", f.level("migrations"))
}

func TestStatusTellsWhoLeadsAndWhatWaits(t *testing.T) {
	t.Parallel()
	environ, conn, topic := site(t)
	insert(t, conn, topic, "k")
	read := func() (s struct {
		Migrations struct{ Current, Latest int }
		Lease      *struct {
			Holder string
			Term   int
			Held   bool
		}
		Outbox struct{ Pending int }
	}) {
		r := run(t, environ, "status", "--output", "json")
		require.Equal(t, 0, r.code, r.stderr)
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &s))
		return s
	}
	s := read()
	require.Nil(t, s.Lease)
	require.Equal(t, 1, s.Outbox.Pending)
	require.Equal(t, s.Migrations.Latest, s.Migrations.Current)

	p := start(t, environ)
	testkit.Wait(t, "a leader and no row", func() (bool, error) {
		s = read()
		return s.Lease != nil && s.Lease.Held && s.Outbox.Pending == 0, nil
	})
	require.Equal(t, 1, s.Lease.Term)
	require.Equal(t, 0, p.terminate())
	require.False(t, read().Lease.Held)

	r := run(t, environ, "status")
	require.Equal(t, 0, r.code)
	require.Contains(t, r.stdout, "none; the last was "+s.Lease.Holder)

	r = run(t, []string{"DATABASE_URL=" + nowhere}, "status")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "refused")
	require.NotContains(t, r.stderr, "s3cr3t")
}
