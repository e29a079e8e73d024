//go:build unix

package sidecar_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/testkit"
)

// connectorOf returns the configuration of a Debezium connector for two tables of the database.
func connectorOf(conn *pgx.Conn, slot, flow string) string {
	c := conn.Config()
	text, _ := json.Marshal(map[string]string{
		"name": "shop", "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput",
		"database.hostname": "127.0.0.1", "database.port": fmt.Sprint(c.Port), "database.user": c.User,
		"database.password": "not shown", "database.dbname": c.Database, "topic.prefix": "shop",
		"slot.name": slot, "publication.name": "dbz", "table.include.list": "public.outbox,public.events",
		"value.converter": "org.apache.kafka.connect.storage.StringConverter", "key.converter": "org.apache.kafka.connect.storage.StringConverter",
		"transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.route.topic.replacement":           flow + ".${routedByValue}.events",
		"transforms.outbox.table.expand.json.payload":         "true",
		"transforms.outbox.table.fields.additional.placement": "type:header:eventType",
	})
	return string(text)
}

// TestTheMoveFromDebezium: the relay runs with the output of check unchanged, continues the connector's slot, and the commands
// show and retry a row that cannot be published.
func TestTheMoveFromDebezium(t *testing.T) {
	t.Parallel()
	environ, conn, _ := site(t)
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := conn.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	flow := testkit.Flow(t)
	topic, later := flow+".order.events", flow+".later.events"
	client, err := kafka.NewClient(testkit.Kafka(t))
	require.NoError(t, err)
	defer client.Close()
	testkit.Topics(t, client, 2, topic)

	const columns = "(id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255), type varchar(255), payload jsonb)"
	slot := "dbz_" + strings.ReplaceAll(flow, "-", "_")
	exec("CREATE TABLE public.outbox " + columns)
	exec("CREATE TABLE public.events " + columns)
	exec("CREATE PUBLICATION dbz FOR TABLE public.outbox, public.events")
	exec("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot)
	insert := func(table, kind, key, payload string) {
		t.Helper()
		exec("INSERT INTO "+table+" VALUES (troupe.uuidv7(), $1, $2, 'Placed', $3)", kind, key, payload)
		exec("DELETE FROM " + table)
	}
	insert("public.outbox", "order", "k", `{"n": 0, "none": null}`) // after the connector's last LSN

	r := checkConnector(t, connectorOf(conn, slot, flow))
	require.Equal(t, 0, r.code, r.stderr)
	_, copying, found := strings.Cut(r.stderr, "before the relay starts, copy this one: ")
	require.True(t, found, r.stderr)
	copying, _, _ = strings.Cut(copying, "\n")
	exec(copying)
	insert("public.events", "order", "e", `{"from": "events"}`)
	path := filepath.Join(t.TempDir(), "relay.yaml")
	require.NoError(t, os.WriteFile(path, []byte(r.stdout), 0o600))
	more := []string{environ[1], "OUTBOX_RELAY_DATABASE_PASSWORD=" + conn.Config().Password, "OUTBOX_RELAY_UNKNOWN_TOPIC=100ms"}

	p := start(t, more, "--config", path)
	p.waitReady(http.StatusOK)
	consumer := testkit.Consume(t, testkit.Kafka(t), topic)
	of := func(key string, n int) *kgo.Record {
		var all []*kgo.Record
		testkit.Wait(t, fmt.Sprintf("%d records of key %s", n, key), func() (bool, error) {
			all = nil
			for _, r := range consumer.Records() {
				if string(r.Key) == key {
					all = append(all, r)
				}
			}
			return len(all) >= n, nil
		})
		return all[n-1]
	}
	first := of("k", 1)
	require.Equal(t, `{"n":0}`, string(first.Value))
	require.Len(t, first.Headers, 2)
	require.Equal(t, "Placed", headerOf(first, "eventType"))
	require.Equal(t, `{"from":"events"}`, string(of("e", 1).Value), "of the other table")

	insert("public.outbox", "later", "k", `{"n": 1}`)
	insert("public.outbox", "order", "k", `{"n": 2}`)
	command := func(args ...string) result {
		return run(t, more, append(args, "--config", path, "--outbox", "shop")...)
	}
	var page struct {
		Rows []struct{ ID, EventID, Topic, Key string }
	}
	testkit.Wait(t, "the parked row", func() (bool, error) {
		r := command("parked", "list", "--output", "json")
		if r.code != 0 {
			return false, fmt.Errorf("exit status %d: %s", r.code, r.stderr)
		}
		return strings.Contains(r.stdout, later), json.Unmarshal([]byte(r.stdout), &page)
	})
	require.Len(t, page.Rows, 1)
	require.Equal(t, "k", page.Rows[0].Key)
	r = command("parked", "show", page.Rows[0].ID)
	require.Equal(t, 0, r.code, r.stderr)
	require.Contains(t, r.stdout, `{"n":1}`)
	require.Contains(t, r.stdout, `"eventType":"Placed"`)
	r = command("check")
	require.Equal(t, 1, r.code, r.stdout+r.stderr)
	require.Contains(t, r.stdout, "public.outbox fits its mapping")
	require.Contains(t, r.stdout, "dbz holds public.outbox")
	require.Contains(t, r.stdout, "0 retrying, 1 parked, 1 of the same keys behind them: the slot has passed them")
	require.Contains(t, r.stdout, later+": does not exist, and rows of the table go there")
	r = command("status")
	require.Equal(t, 0, r.code, r.stderr)
	require.Contains(t, r.stdout, "0 retrying, 1 parked, 1 of the same keys behind them")
	require.Contains(t, r.stdout, "term 1")
	_, body, err := p.get("/metrics")
	require.NoError(t, err)
	require.NotContains(t, body, `outbox_relay_headroom_positions{outbox="shop"}`)

	testkit.Topics(t, client, 1, later)
	r = command("parked", "retry", page.Rows[0].ID, "--actor", "ann")
	require.Equal(t, 0, r.code, r.stderr)
	require.Equal(t, `{"n":1}`, string(testkit.Consume(t, testkit.Kafka(t), later).WaitN(1)[0].Value))
	require.Equal(t, `{"n":2}`, string(of("k", 2).Value), "what waited behind it")

	insert("public.outbox", "gone", "g", `{"n": 3}`)
	testkit.Wait(t, "the next parked row", func() (bool, error) {
		r := command("parked", "list", "--output", "json")
		return strings.Contains(r.stdout, flow+".gone.events"), json.Unmarshal([]byte(r.stdout), &page)
	})
	r = command("parked", "discard", page.Rows[0].ID, "--topic", "another", "--dry-run")
	require.Equal(t, 1, r.code, "it has no row of that topic")
	require.Contains(t, r.stdout, "0 rows: discard would be")
	r = command("parked", "discard", page.Rows[0].ID, "--actor", "ann", "--reason", "a test")
	require.Equal(t, 0, r.code, r.stderr)
	var table string
	require.NoError(t, conn.QueryRow(t.Context(),
		"SELECT table_name FROM troupe.outbox_repairs WHERE action = 'discard' AND mapped_row IS NOT NULL").Scan(&table))
	require.Equal(t, "public.outbox", table)
	require.Equal(t, 0, p.terminate())
}

func headerOf(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// A registry turns the payloads of the named topics into Avro.
func TestARegistryIsASetting(t *testing.T) {
	t.Parallel()
	environ, conn, topic := site(t)
	registry, err := schemas.NewRegistry(testkit.Registry(t))
	require.NoError(t, err)
	_, err = registry.Register(t.Context(), topic+"-value", `{"type":"record","name":"T","fields":[{"name":"n","type":"long"}]}`)
	require.NoError(t, err)
	p := start(t, append(environ, "OUTBOX_RELAY_REGISTRY="+testkit.Registry(t)), "--avro-topics", "*.commands,other")
	p.waitReady(http.StatusOK)
	_, err = conn.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'k', 'T', '{"n": 21}')`, topic)
	require.NoError(t, err)
	got := testkit.Consume(t, testkit.Kafka(t), topic).WaitN(1)[0]
	require.Equal(t, byte(0), got.Value[0])
	require.Equal(t, byte(42), got.Value[5])
	require.Equal(t, "application/avro", headerOf(got, "content-type"))
	require.Equal(t, 0, p.terminate())

	r := run(t, append(environ, "OUTBOX_RELAY_REGISTRY=nonsense"), "run")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stderr, "registry (from OUTBOX_RELAY_REGISTRY)")
	require.NotContains(t, r.stderr, "nonsense")
}

func TestPollOfATableOfOthersIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "relay.yaml")
	require.NoError(t, os.WriteFile(path, []byte("admin: "+anyPort+"\nbrokers: [a:1]\ndatabase-url: postgres://h/d\nsource: poll\n"+
		"outboxes: [{name: a, mapping: {table: public.outbox}}]\n"), 0o600))
	r := run(t, nil, "run", "--config", path)
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stderr, "source poll is for troupe.outbox alone")
}
