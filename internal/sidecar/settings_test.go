//go:build unix

package sidecar_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const nowhere = "postgres://shop:s3cr3t@127.0.0.1:1/shop"

func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "relay.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Nothing is started, the status is 2, and the message names the setting, its source and the expected value.
func TestBadSettingsAreRefusedBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	good := []string{"DATABASE_URL=" + nowhere, "KAFKA_BROKERS=127.0.0.1:1"}
	for _, c := range []struct {
		name    string
		environ []string
		args    []string
		want    []string
	}{
		{"no command", nil, nil, []string{"no command"}},
		{"an unknown command", nil, []string{"fly"}, []string{`unknown command "fly"`}},
		{"an unknown flag", nil, []string{"run", "--fast"}, []string{"unknown flag: --fast", "run --help"}},
		{"an argument", good, []string{"run", "now"}, []string{"takes no arguments", "now"}},
		{"no database", nil, []string{"run"}, []string{"database-url is not set", "DATABASE_URL", "postgres://"}},
		{"no brokers", good[:1], []string{"run"}, []string{"brokers is not set", "KAFKA_BROKERS"}},
		{"an unreadable URL", []string{"DATABASE_URL=postgres://u:s3cr3t@h:port/d", good[1]}, []string{"run"},
			[]string{"database-url (from DATABASE_URL)", "postgres://user:password@host"}},
		{"a broker without a port", []string{good[0], "KAFKA_BROKERS=a:1,b"}, []string{"run"}, []string{"brokers (from KAFKA_BROKERS)", "host:port"}},
		{"no time", append(good, "OUTBOX_RELAY_LEASE=soon"), []string{"run"}, []string{"lease (from OUTBOX_RELAY_LEASE)", `"soon"`, "5s"}},
		{"a lease that is too short", good, []string{"run", "--lease", "10ms"}, []string{"lease 10ms: want 500ms"}},
		{"no number", good, []string{"run", "--batch", "many"}, []string{"batch (from --batch)", "1 to 10000"}},
		{"no level", good, []string{"run", "--log-level", "loud"}, []string{"log-level (from --log-level)", "debug or info"}},
		{"no address", good, []string{"run", "--admin", "8089"}, []string{"admin (from --admin)", "127.0.0.1:8089"}},
		{"exactly-once", good, []string{"run", "--delivery", "exactly-once", "--source", "poll"}, []string{"delivery", "needs the wal source"}},
		{"a delivery that is none", good, []string{"run", "--delivery", "maybe"}, []string{"delivery (from --delivery)", "at-least-once"}},
		{"no file", good, []string{"run", "--config", "/none.yaml"}, []string{"config /none.yaml"}},
		{"a pool that is too small", []string{"DATABASE_URL=" + nowhere + "?pool_max_conns=2", good[1]}, []string{"run"}, []string{"pool of 2 connections"}},
		{"no webhook", append(good, "ALERT_URL=chat.example/s3cr3t"), []string{"run"}, []string{"alert-url (from ALERT_URL)", "https://"}},
		{"an output that is none", good, []string{"status", "--output", "xml"}, []string{"output (from --output)", "text or json"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// Two of these errors are found only after the program has opened the admin port. Port 0, since another test may use
			// the default one.
			r := run(t, append([]string{"OUTBOX_RELAY_ADMIN=127.0.0.1:0"}, c.environ...), c.args...)
			require.Equal(t, 2, r.code, r.stderr)
			for _, want := range c.want {
				require.Contains(t, r.stderr, want)
			}
			require.NotContains(t, r.stderr+r.stdout, "s3cr3t")
			require.NotContains(t, r.stderr, `"level"`, "nothing ran that could log")
		})
	}
}

func TestUnknownKeysInTheFileAreRefusedByName(t *testing.T) {
	t.Parallel()
	path := configFile(t, "database-url: "+nowhere+"\nbrokers: [127.0.0.1:1]\nleese: 5s\n")
	r := run(t, nil, "run", "--config", path)
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stderr, `unknown key "leese"`)
	require.Contains(t, r.stderr, "lease")
	require.Contains(t, r.stderr, path)
}

// Each layer sets a value that is bad in its own way, and the message shows which one applied.
func TestAFlagWinsOverTheEnvironmentAndThatOverTheFile(t *testing.T) {
	t.Parallel()
	path := configFile(t, "database-url: "+nowhere+"\nbrokers: [127.0.0.1:1, 127.0.0.1:2]\nbatch: 20000\n")
	for _, c := range []struct {
		name    string
		environ []string
		args    []string
		want    string
	}{
		{"the file", nil, nil, `batch (from ` + path + `): "20000"`},
		{"the environment", []string{"OUTBOX_RELAY_BATCH=30000"}, nil, `batch (from OUTBOX_RELAY_BATCH): "30000"`},
		{"an empty variable is none", []string{"OUTBOX_RELAY_BATCH="}, nil, `"20000"`},
		{"the flag", []string{"OUTBOX_RELAY_BATCH=30000"}, []string{"--batch", "40000"}, `batch (from --batch): "40000"`},
		{"a variable that is not ours", []string{"OUTBOX_RELAY_PORT_8089_TCP=x"}, nil, `"20000"`},
	} {
		r := run(t, append(c.environ, "OUTBOX_RELAY_CONFIG="+path), append([]string{"run"}, c.args...)...)
		require.Equal(t, 2, r.code, c.name)
		require.Contains(t, r.stderr, c.want, c.name)
	}
}

func TestVersionNamesTheBuild(t *testing.T) {
	t.Parallel()
	r := run(t, nil, "version")
	require.Equal(t, 0, r.code, r.stderr)
	require.Regexp(t, `^outbox-relay \S+.* \(go1\.\S+, \w+/\w+\)\n$`, r.stdout)
}

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	t.Parallel()
	environ := []string{"DATABASE_URL=" + nowhere, "KAFKA_BROKERS=127.0.0.1:1"}
	for _, command := range []string{"run", "migrate", "status", "check", "healthcheck", "version"} {
		r := run(t, environ, command, "--help")
		require.Equal(t, 0, r.code)
		require.Contains(t, r.stdout, "Examples:\n  ", command)
		require.NotContains(t, r.stdout, "s3cr3t", "the environment's values are no defaults")
	}
	r := run(t, environ, "--help")
	require.Equal(t, 0, r.code)
	require.Contains(t, r.stdout, "Examples:")
}
