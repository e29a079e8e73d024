//go:build unix

package sidecar_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/mapping"
	"github.com/troupe-go/troupe/testkit"
)

// connectorSecret is the password in every setting of the connector that may hold one.
const connectorSecret = "hunter2"

func checkConnector(t *testing.T, connector string, args ...string) result {
	path := filepath.Join(t.TempDir(), "connector.json")
	require.NoError(t, os.WriteFile(path, []byte(connector), 0o600))
	r := run(t, nil, append([]string{"check", "--debezium", path}, args...)...)
	require.NotContains(t, r.stdout+r.stderr, connectorSecret)
	return r
}

func TestCheckReadsADebeziumConnector(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/connector.json")
	require.NoError(t, err)
	r := checkConnector(t, string(text))
	require.Equal(t, 0, r.code, r.stderr)
	want, err := os.ReadFile("testdata/connector.yaml")
	require.NoError(t, err)
	require.Equal(t, string(want), r.stdout)
	findings, err := os.ReadFile("testdata/connector.findings")
	require.NoError(t, err)
	require.Equal(t, string(findings), r.stderr)

	page, err := os.ReadFile("../../docs/from-debezium.md")
	require.NoError(t, err)
	for line := range strings.Lines(r.stdout) {
		require.Contains(t, string(page), "\n   "+line, "the page shows another output")
	}
	for n, line := range strings.Split(r.stderr, "\n") {
		if n < 14 {
			require.Contains(t, string(page), "\n   "+line+"\n", "the page shows another output")
		}
	}

	var j struct {
		OK       bool
		Outboxes []struct{ Settings, Mapping map[string]string }
		Findings []struct{ Name, Level, Found string }
	}
	r = checkConnector(t, string(text), "--output", "json")
	require.Equal(t, 0, r.code)
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &j))
	require.True(t, j.OK)
	require.Equal(t, "shop_outbox", j.Outboxes[0].Settings["slot"])
	require.NotEmpty(t, j.Findings)
}

// TestCheckPrintsYAMLOfTheSameMapping holds for any values of the connector.
func TestCheckPrintsYAMLOfTheSameMapping(t *testing.T) {
	t.Parallel()
	for _, odd := range []string{"plain", "true", "no", "12", "a: b", "a#b", `q"uo\te`, "${routedByValue}.events", "é\u0085\u2028", "- x", "~", "x:", " lead"} {
		options := map[string]string{
			"name": odd, "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput",
			"table.include.list": "public.outbox,public.other", "database.hostname": "h", "database.dbname": "d", "slot.name": "s" + odd,
			"transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
			"transforms.outbox.table.field.event.key": odd, "transforms.outbox.table.expand.json.payload": "true",
		}
		text, err := json.Marshal(options)
		require.NoError(t, err)
		r := checkConnector(t, string(text))
		require.Equal(t, 0, r.code, r.stderr)
		var file map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(r.stdout), &file), r.stdout)
		entries := file["outboxes"].([]any)
		require.Len(t, entries, 2)
		for i, e := range entries {
			columns := make(map[string]string)
			for k, v := range e.(map[string]any)["mapping"].(map[string]any) {
				columns[k] = fmt.Sprint(v)
			}
			delete(columns, "table")
			cfg, err := mapping.FromOptions(columns)
			require.NoError(t, err)
			c, err := mapping.FromConnector(text)
			require.NoError(t, err)
			require.Equal(t, c.Mapping, cfg, r.stdout)
			require.Equal(t, c.SlotOf(i), e.(map[string]any)["slot"])
		}
	}
}

// TestCheckOfAConnectorLooksForTheTopics names brokers that have no topic of the rows, and then one.
func TestCheckOfAConnectorLooksForTheTopics(t *testing.T) {
	t.Parallel()
	environ, _, _ := site(t)
	flow := testkit.Flow(t)
	path := filepath.Join(t.TempDir(), "connector.json")
	require.NoError(t, os.WriteFile(path, []byte(`{
		"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput", "slot.name": "shop",
		"table.include.list": "public.outbox", "database.hostname": "h", "database.dbname": "d",
		"transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.route.topic.replacement": "`+flow+`.${routedByValue}.events"}`), 0o600))
	check := func() result { return run(t, environ, "check", "--debezium", path) }
	r := check()
	require.Equal(t, 1, r.code, r.stderr)
	require.Contains(t, r.stderr, "there is no such topic")

	client, err := kafka.NewClient(testkit.Kafka(t))
	require.NoError(t, err)
	defer client.Close()
	testkit.Topics(t, client, 1, flow+".order.events", flow+".order.commands")
	r = check()
	require.Equal(t, 0, r.code, r.stderr)
	require.Contains(t, r.stderr, "there are "+flow+".order.events: create the missing ones")
}

func TestCheckOfWhatIsNoConnector(t *testing.T) {
	t.Parallel()
	r := checkConnector(t, `{"connector.class": "io.debezium.connector.mysql.MySqlConnector", "database.password": "hunter2"}`)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "failure  connector.class")
	r = checkConnector(t, `{"database.password": "hunter2", `)
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stderr, "not JSON")
	r = checkConnector(t, `{}`, "--output", "xml")
	require.Equal(t, 2, r.code)
	r = run(t, nil, "check", "--debezium", "/nowhere/connector.json")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stderr, "debezium /nowhere/connector.json: no such file")
}
