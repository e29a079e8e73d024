package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/troupe-go/troupe/testkit"
)

type examined struct {
	OK       bool `json:"ok" yaml:"ok"`
	Findings []struct {
		Name   string `json:"name" yaml:"name"`
		Level  string `json:"level" yaml:"level"`
		Found  string `json:"found" yaml:"found"`
		Remedy string `json:"remedy" yaml:"remedy"`
	} `json:"findings" yaml:"findings"`
}

func TestDoctorSaysWhatIsWellAndWhatIsNot(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	env := []string{
		"DATABASE_URL=" + testkit.DatabaseURL(t, pool), "KAFKA_BROKERS=" + strings.Join(testkit.Kafka(t), ","), "SCHEMA_REGISTRY_URL=" + testkit.Registry(t),
	}
	o := finish(t, command(t, env, "doctor", "--timeout", "2m"))
	require.Equal(t, 0, o.status, o.stdout+o.stderr)
	require.Contains(t, o.stdout, "ok       migrations   version ")
	require.Contains(t, o.stdout, "ok       kafka        1 broker, seen from ")
	require.Contains(t, o.stdout, "ok       registry     http://")
	require.Contains(t, o.stdout, "\n0 failures, ")
	require.NotContains(t, o.stdout, "\x1b", "no colours in a pipe")
	require.Empty(t, o.stderr)

	_, err := pool.Exec(t.Context(), "ALTER SEQUENCE troupe.outbox_position_seq CACHE 20")
	require.NoError(t, err)
	var fromJSON, fromYAML examined
	o = finish(t, command(t, env, "doctor", "--timeout", "2m", "--hop", testkit.Flow(t)+".payment", "--output", "json"))
	require.Equal(t, 1, o.status, o.stderr)
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &fromJSON), o.stdout)
	require.False(t, fromJSON.OK)
	found := false
	for _, f := range fromJSON.Findings {
		found = found || f.Name == "sequence" && f.Level == "failure" && f.Remedy == "ALTER SEQUENCE troupe.outbox_position_seq CACHE 1"
	}
	require.True(t, found, o.stdout)
	o = finish(t, command(t, env, "doctor", "--timeout", "2m", "-o", "yaml", "--as", "relay"))
	require.Equal(t, 1, o.status, o.stderr)
	require.NoError(t, yaml.Unmarshal([]byte(o.stdout), &fromYAML), o.stdout)
	require.False(t, fromYAML.OK)
	require.True(t, strings.HasPrefix(o.stdout, "ok: false\nfindings:\n  - name: database\n    level: ok\n"), o.stdout)
}

// The relay's file has the addresses, secrets included, and a server that is not named is not checked.
func TestDoctorTakesTheRelaysSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, secret := filepath.Join(dir, "relay.yaml"), filepath.Join(dir, "url")
	require.NoError(t, os.WriteFile(secret, []byte(testkit.DatabaseURL(t, testkit.Database(t))+"\n"), 0o600))
	require.NoError(t, os.WriteFile(path, []byte("outboxes: [{name: shop, database-url-file: "+secret+"}, {name: other}]\n"), 0o600))
	nothing := []string{"DATABASE_URL=", "KAFKA_BROKERS="}
	o := finish(t, command(t, nothing, "doctor", "--timeout", "2m", "--config", path, "--outbox", "shop", "--output", "json"))
	require.Equal(t, 0, o.status, o.stdout+o.stderr)
	require.NotContains(t, o.stdout, `"kafka"`)

	for args, want := range map[string]string{
		"doctor":                                    "nothing to look at",
		"doctor --config " + path:                   "--outbox",
		"doctor --brokers nowhere":                  "host:port",
		"doctor --brokers a:1 --as dancer":          `part "dancer"`,
		"doctor --hop order":                        "want flow.hop",
		"doctor --hop order.payment":                "without brokers",
		"doctor --brokers a:1 --flow A":             `flow "A"`,
		"doctor --registry nowhere":                 "--registry",
		"doctor --brokers a:1 --output xml":         "want table, json, yaml",
		"doctor --brokers a:1 --timeout -1s":        "is negative",
		"doctor --database-url postgres://h:port/d": "not shown",
	} {
		o := finish(t, command(t, nothing, strings.Fields(args)...))
		require.Equal(t, 2, o.status, "%s: %+v", args, o)
		require.Contains(t, o.stderr, want, args)
		require.Empty(t, o.stdout, args)
	}
}
