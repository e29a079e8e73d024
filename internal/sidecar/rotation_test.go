//go:build unix

package sidecar_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// replace writes a file as Kubernetes does: readers see the old text or the new one.
func replace(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", []byte(text+"\n"), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// A password of the database is replaced while the relay runs: it publishes again as soon as its connections are cut, by both
// sources.
func TestARelayUsesTheNewPasswordOfTheDatabase(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ setting, source string }{
		"a file":    {"OUTBOX_RELAY_DATABASE_PASSWORD_FILE=%s", "poll"},
		"a URL":     {"DATABASE_URL_FILE=%s", "poll"},
		"a command": {`OUTBOX_RELAY_DATABASE_PASSWORD_COMMAND=sh -c 'test "$PGUSER" && cat "$0"' %s`, "wal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			environ, conn, topic := site(t)
			u, err := url.Parse(variable(environ, "DATABASE_URL"))
			require.NoError(t, err)
			role := u.User.Username()
			u.User = url.User(role)
			file := filepath.Join(t.TempDir(), "secret")
			change := func(password string) {
				t.Helper()
				_, err := conn.Exec(t.Context(), "ALTER ROLE "+role+" PASSWORD '"+password+"'")
				require.NoError(t, err)
				if name == "a URL" {
					with := *u
					with.User = url.UserPassword(role, password)
					password = with.String()
				}
				replace(t, file, password)
			}
			change(marked + "-first")
			settings := []string{environ[1], "OUTBOX_RELAY_SOURCE=" + c.source, fmt.Sprintf(c.setting, file)}
			if name != "a URL" {
				settings = append(settings, "DATABASE_URL="+u.String())
			}
			p := start(t, settings)
			published := func(key string) {
				t.Helper()
				insert(t, conn, topic, key)
				testkit.Wait(t, "the row in its topic", func() (bool, error) { return isPublished(conn, c.source) })
			}
			published("a")
			change(marked + "-second")
			_, err = conn.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", role)
			require.NoError(t, err)
			published("b")
			require.Equal(t, 0, p.terminate())
			require.NotContains(t, p.logs(), marked)
		})
	}
}

// isPublished reports whether no row of the outbox waits.
func isPublished(conn *pgx.Conn, source string) (done bool, err error) {
	sql := "SELECT NOT EXISTS (SELECT FROM troupe.outbox)"
	if source == "wal" {
		sql = `SELECT NOT EXISTS (SELECT FROM troupe.outbox AS o
			WHERE NOT pg_visible_in_snapshot(o.xid, coalesce((SELECT published FROM troupe.relay_state), '1:1:')))`
	}
	err = conn.QueryRow(context.Background(), sql).Scan(&done)
	return done, err
}

// A command that fails is a finding with its cause.
func TestCheckSaysWhyACommandGivesNoPassword(t *testing.T) {
	t.Parallel()
	environ, _, _ := site(t)
	u, err := url.Parse(variable(environ, "DATABASE_URL"))
	require.NoError(t, err)
	u.User = url.User(u.User.Username())
	const expired = "db:5432/?Action=connect&X-Amz-Date=20260131T120000Z&X-Amz-Expires=900&X-Amz-Signature=" + marked
	for line, want := range map[string]string{
		`sh -c 'echo Unable to locate credentials >&2; exit 253'`: "command sh: exit status 253; its standard error: Unable to locate credentials",
		"true":                   "it ended without an error, and printed nothing on standard output",
		"no-such-program-at-all": "executable file not found",
		"echo " + marked:         "the password is wrong",
		"echo '" + expired + "'": "the token expired at 2026-01-31 12:15:00Z, and it is",
	} {
		r := run(t, []string{environ[1], "DATABASE_URL=" + u.String(), "OUTBOX_RELAY_DATABASE_PASSWORD_COMMAND=" + line}, "check")
		require.Equal(t, 1, r.code, line)
		require.Contains(t, r.stdout, want, line)
		require.NotContains(t, r.stdout+r.stderr, marked, line)
	}
	for line, want := range map[string]string{
		"echo '" + marked: "database-password-command (from OUTBOX_RELAY_DATABASE_PASSWORD_COMMAND): the command has a quote that is not closed",
		"echo " + marked:  "database-password (from OUTBOX_RELAY_DATABASE_PASSWORD) and database-password-command (from OUTBOX_RELAY_DATABASE_PASSWORD_COMMAND): set one of them",
	} {
		r := run(t, []string{environ[1], "DATABASE_URL=" + u.String(), "OUTBOX_RELAY_DATABASE_PASSWORD_COMMAND=" + line,
			map[bool]string{true: "OUTBOX_RELAY_DATABASE_PASSWORD=x", false: "X=y"}[line == "echo "+marked]}, "check")
		require.Equal(t, 2, r.code, line)
		require.Contains(t, r.stderr, want, line)
		require.NotContains(t, r.stdout+r.stderr, marked, line)
	}
}
