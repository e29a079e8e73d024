//go:build unix

package sidecar_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// marked is part of every secret in this file.
const marked = "s3cr3t"

// An error about a secret, or a setting near one, names the setting and its source, never the value.
func TestNoSecretInAnyError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	good := []string{"DATABASE_URL=" + nowhere, "KAFKA_BROKERS=127.0.0.1:1"}
	with := func(more ...string) []string { return append(append([]string{}, good...), more...) }
	both := file("both", marked)
	for _, c := range []struct {
		name    string
		environ []string
		file    string
		args    []string
		want    string
	}{
		{"a URL in a file that is none", []string{good[1], "DATABASE_URL_FILE=" + file("url", "postgres://u:"+marked+"@h:port/d")}, "", nil,
			"database-url (from DATABASE_URL_FILE): not a connection string"},
		{"both in the environment", with("DATABASE_URL_FILE=" + both), "", nil, "database-url (from DATABASE_URL) and database-url-file (from DATABASE_URL_FILE)"},
		{"both as flags", nil, "", []string{"--database-url", nowhere, "--database-url-file", both}, "set one of them"},
		{"no file", with("OUTBOX_RELAY_KAFKA_PASSWORD_FILE=" + dir + "/none"), "", nil, "kafka-password-file (from OUTBOX_RELAY_KAFKA_PASSWORD_FILE): open"},
		{"a folder", with("OUTBOX_RELAY_KAFKA_TOKEN_FILE=" + dir), "", nil, "kafka-token-file"},
		{"an empty file", with("OUTBOX_RELAY_DATABASE_PASSWORD_FILE=" + file("empty", "\n")), "", nil, "is empty"},
		{"a file that is too large", with("OUTBOX_RELAY_ADMIN_TOKEN_FILE=" + file("large", strings.Repeat(marked, 20_000))), "", nil, "this is no secret"},
		{"a token that is too short", with("OUTBOX_RELAY_ADMIN_TOKEN=" + marked), "", nil, "admin-token (from OUTBOX_RELAY_ADMIN_TOKEN)"},
		{"no webhook", with("ALERT_URL_FILE=" + file("hook", "chat.example/"+marked)), "", nil, "alert-url (from ALERT_URL_FILE)"},
		{"a mechanism without a user", with("OUTBOX_RELAY_KAFKA_SASL=plain", "OUTBOX_RELAY_KAFKA_PASSWORD="+marked), "", nil, "kafka-user is not set"},
		{"a mechanism without a password", with("OUTBOX_RELAY_KAFKA_SASL=plain", "OUTBOX_RELAY_KAFKA_USER=u"), "", nil,
			"set OUTBOX_RELAY_KAFKA_PASSWORD, OUTBOX_RELAY_KAFKA_PASSWORD_FILE, OUTBOX_RELAY_KAFKA_PASSWORD_COMMAND, or --kafka-password-file"},
		{"a mechanism without a token", with("OUTBOX_RELAY_KAFKA_SASL=oauthbearer"), "", nil, "kafka-token is not set"},
		{"a mechanism that is none", with("OUTBOX_RELAY_KAFKA_SASL=gssapi", "OUTBOX_RELAY_KAFKA_PASSWORD="+marked), "", nil, "kafka-sasl (from OUTBOX_RELAY_KAFKA_SASL)"},
		{"a secret as a flag", good, "", []string{"--kafka-password", marked}, "unknown flag: --kafka-password"},
		{"a list in the file", good, "kafka-password: [" + marked + "]", nil, "kafka-password: want text in quotes"},
		{"settings below one in the file", good, "kafka-password: {" + marked + ": 1}", nil, "kafka-password: want a value"},
		{"a number in the file", good, "kafka-password: 0123", nil, "want text in quotes"},
		{"a file that is no YAML", good, "kafka-password: '" + marked, nil, "config "},
		{"a tab in the file", good, "kafka-password: a\n\tb: " + marked + "\n", nil, "config "},
		{"one key twice", good, "kafka-password: " + marked + "\nkafka-password: " + marked, nil, "cannot be read"},
		{"an alias that is none", good, "kafka-password: *" + marked, nil, "config "},
		{"a tag that is none", good, "kafka-password: !!int " + marked, nil, "config "},
		{"no map", good, marked, nil, "config "},
		{"an entry's URL", good[1:], "outboxes: [{name: shop, database-url: 'postgres://u:" + marked + "@h:port/d'}]", nil,
			", outbox shop): not a connection string"},
		{"a pool that is too small", []string{good[1]}, "outboxes: [{name: shop, database-url: '" + nowhere + "?pool_max_conns=1'}]", nil, "pool of 1"},
		{"an entry's certificate", good[1:], "outboxes: [{name: shop, database-url: '" + nowhere + "', database-tls-cert: /none}]", nil,
			"database-tls-cert and database-tls-key: set both or none"},
		{"a CA that is none", with("OUTBOX_RELAY_DATABASE_TLS_CA=" + file("ca", "none")), "", nil, "database-tls-ca (from OUTBOX_RELAY_DATABASE_TLS_CA)"},
		{"a socket", append([]string{"DATABASE_URL=postgres://u:" + marked + "@/d?host=/tmp", "OUTBOX_RELAY_DATABASE_TLS_SERVER_NAME=db"}, good[1]), "", nil,
			"names a socket, which has no TLS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			environ := append([]string{"OUTBOX_RELAY_ADMIN=127.0.0.1:0"}, c.environ...)
			if c.file != "" {
				environ = append([]string{"OUTBOX_RELAY_CONFIG=" + configFile(t, c.file)}, environ...)
			}
			for _, command := range []string{"run", "check"} {
				r := run(t, environ, append([]string{command}, c.args...)...)
				if command == "check" && r.code != 2 {
					continue // it reads fewer settings
				}
				require.Equal(t, 2, r.code, r.stderr)
				require.Contains(t, r.stderr, c.want)
				require.NotContains(t, r.stderr+r.stdout, marked)
			}
		})
	}
}

// The test sets every secret, makes everything fail that can, and requests every endpoint.
func TestNoSecretInAnyLogOrAnswer(t *testing.T) {
	t.Parallel()
	environ, conn, topic := site(t)
	insert(t, conn, topic, "k")
	_, err := conn.Exec(t.Context(), "ALTER ROLE CURRENT_USER SET log_statement TO DEFAULT")
	require.NoError(t, err)
	elsewhere, err := url.Parse(variable(environ, "DATABASE_URL"))
	require.NoError(t, err)
	elsewhere.Path += "_2" // an outbox of its own; the password is refused before the database is looked for
	path := configFile(t, "")
	write := func(more string) {
		require.NoError(t, os.WriteFile(path, []byte(`
log-level: debug
admin: `+anyPort+`
admin-token: "`+token+`"
brokers: `+variable(environ, "KAFKA_BROKERS")+`
alert-url: http://127.0.0.1:1/hooks/`+marked+`
outboxes:
  - {name: refused, database-url: "`+elsewhere.String()+`", database-password: "`+marked+`-wrong"}
  - {name: away, database-url: "`+nowhere+`", kafka-sasl: oauthbearer, kafka-token: `+marked+`}
  - {name: unwelcome, database-url: "`+variable(environ, "DATABASE_URL")+`", kafka-sasl: plain, kafka-user: relay, kafka-password: `+marked+`}
`+more), 0o600))
	}
	write("")
	p := launch(t, nil, "run", "--config", path)
	testkit.Wait(t, "all to fail", func() (bool, error) {
		logs := p.logs()
		return strings.Contains(logs, "28P01") && strings.Contains(logs, "connection refused") && strings.Contains(logs, "publish: failed"), nil
	})
	write("  - {name: more, database-url: 'postgres://u:" + marked + "@h:port/d'}\n")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	testkit.Wait(t, "the refusal", func() (bool, error) { return strings.Contains(p.logs(), "reload: refused"), nil })
	write("  - {name: more, database-url: '" + nowhere + "2'}\n")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	testkit.Wait(t, "the reload", func() (bool, error) { return strings.Contains(p.logs(), "reload: done"), nil })
	for _, path := range []string{"/readyz", "/status", "/metrics", "/parked?outbox=away", "/parked?outbox=refused"} {
		for _, given := range []string{"", token, marked} {
			code, text := p.ask(http.MethodGet, path, given, "")
			require.NotZero(t, code)
			require.NotContains(t, text, marked, path)
		}
	}
	for _, path := range []string{"/pause", "/resume", "/replay?outbox=unwelcome", "/parked/" + someID + "/retry?outbox=away"} {
		_, text := p.ask(http.MethodPost, path, token, `{"actor": "ann", "from_position": 1}`)
		require.NotContains(t, text, marked, path)
	}
	for _, command := range [][]string{{"status"}, {"check"}, {"parked", "list"}, {"migrate"}} {
		for _, outbox := range []string{"refused", "away", "unwelcome"} {
			r := run(t, nil, append(command, "--config", path, "--outbox", outbox)...)
			require.NotContains(t, r.stdout+r.stderr, marked, "%s %s", command, outbox)
		}
	}
	require.Equal(t, 0, p.terminate())
	require.NotContains(t, p.logs(), marked)
	require.NotContains(t, p.logs(), token)
}
