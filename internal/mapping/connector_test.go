package mapping_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/mapping"
)

const secret = "hunter2"

// shop is a connector as a service's repository contains it.
const shop = `{
  "name": "shop-outbox",
  "config": {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "tasks.max": 1,
    "database.hostname": "db.shop.internal", "database.port": "5433", "database.user": "debezium", "database.password": "hunter2",
    "database.dbname": "shop", "database.sslmode": "verify-full", "database.sslrootcert": "/etc/ssl/db.pem", "database.sslpassword": "hunter2",
    "topic.prefix": "shop",
    "plugin.name": "pgoutput", "slot.name": "shop_outbox", "publication.name": "shop_outbox", "publication.autocreate.mode": "filtered",
    "table.include.list": "public\\.outbox_events",
    "heartbeat.interval.ms": 10000, "heartbeat.action.query": "UPDATE heartbeat SET at = now()",
    "snapshot.mode": "no_data", "tombstones.on.delete": false, "decimal.handling.mode": "string",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": false,
    "exactly.once.support": "required",
    "producer.override.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"u\" password=\"hunter2\";",
    "errors.tolerance": "all",
    "no.such.option": "hunter2",
    "transforms": "outbox",
    "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
    "transforms.outbox.predicate": "isOutbox",
    "predicates": "isOutbox", "predicates.isOutbox.pattern": ".*",
    "transforms.outbox.table.field.event.key": "aggregate_id",
    "transforms.outbox.table.field.timestamp": "created_at",
    "transforms.outbox.table.expand.json.payload": "true",
    "transforms.outbox.table.fields.additional.placement": "event_type:header:eventType,p:partition",
    "transforms.outbox.table.fields.additional.error.on.missing": "false",
    "transforms.outbox.debezium.op.invalid.behavior": "fatal",
    "transforms.outbox.route.by.field": "aggregate_type",
    "transforms.outbox.route.topic.replacement": "${routedByValue}.events",
    "transforms.outbox.tracing.operation.name": "x"
  }
}`

func notes(c mapping.Connector) map[string]mapping.Weight {
	m := make(map[string]mapping.Weight)
	for _, n := range c.Notes {
		m[n.Option] = max(m[n.Option], n.Weight)
	}
	return m
}

func TestAConnectorBecomesAConfiguration(t *testing.T) {
	t.Parallel()
	c, err := mapping.FromConnector([]byte(shop))
	require.NoError(t, err)
	require.Equal(t, "shop-outbox", c.Name)
	require.Equal(t, "postgres://debezium@db.shop.internal:5433/shop?sslmode=verify-full", c.Database.URL())
	require.Equal(t, map[string]string{"sslrootcert": "/etc/ssl/db.pem"}, c.Database.Files)
	require.Equal(t, []string{"public.outbox_events"}, c.Tables)
	require.Equal(t, "shop_outbox", c.Slot)
	require.Equal(t, "shop_outbox", c.Publication)
	require.True(t, c.ExactlyOnce)
	require.Equal(t, mapping.Config{
		Key: "aggregate_id", ExpandJSON: true, Additional: "event_type:header:eventType,p:partition", Missing: mapping.Ignore,
		OnUpdate: mapping.Fatal, RouteBy: "aggregate_type", RouteReplacement: "${routedByValue}.events",
		Headers: mapping.EventRouter, PayloadFormat: mapping.JSON,
	}, c.Mapping)
	require.Equal(t, map[string]mapping.Weight{
		"database.password": mapping.Moot, "database.sslpassword": mapping.Differs, "errors.tolerance": mapping.Differs,
		"extended.headers.enabled": mapping.Moot, "heartbeat.action.query": mapping.Moot, "heartbeat.interval.ms": mapping.Moot, "no.such.option": mapping.Differs,
		"predicates": mapping.Moot, "predicates.isOutbox.pattern": mapping.Moot, "producer.override.sasl.jaas.config": mapping.Differs,
		"publication.autocreate.mode": mapping.Moot, "snapshot.mode": mapping.Moot, "tasks.max": mapping.Moot, "tombstones.on.delete": mapping.Moot,
		"topic.prefix": mapping.Moot, "transforms.outbox.predicate": mapping.Moot, "transforms.outbox.table.expand.json.payload": mapping.Differs,
		"transforms.outbox.table.field.timestamp": mapping.Moot, "transforms.outbox.table.op.invalid.behavior": mapping.Moot,
		"transforms.outbox.tracing.operation.name": mapping.Moot,
	}, notes(c))

	all, err := json.Marshal(c)
	require.NoError(t, err)
	require.NotContains(t, string(all), secret)

	var whole struct{ Config json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(shop), &whole))
	bare, err := mapping.FromConnector(whole.Config)
	require.NoError(t, err)
	c.Name = ""
	require.Equal(t, c, bare, "the map under config alone says the same")
}

func TestTheDocumentedConnectorIsNoOutbox(t *testing.T) {
	t.Parallel()
	c, err := mapping.FromConnector([]byte(`{"name": "fulfillment-connector", "config": {
		"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "database.hostname": "192.168.99.100",
		"database.port": "5432", "database.user": "postgres", "database.password": "postgres", "database.dbname" : "postgres",
		"topic.prefix": "fulfillment", "table.include.list": "public.inventory"}}`))
	require.NoError(t, err)
	require.Equal(t, mapping.Stops, notes(c)["transforms"])
	require.Equal(t, "postgres://postgres@192.168.99.100:5432/postgres?sslmode=prefer", c.Database.URL())
}

// connector returns a small connector with some options changed; "-" removes an option.
func connector(t *testing.T, pairs ...string) mapping.Connector {
	options := map[string]string{
		"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput",
		"table.include.list": "public.outbox", "key.converter": "org.apache.kafka.connect.storage.StringConverter",
		"value.converter": "io.debezium.converters.BinaryDataConverter", "extended.headers.enabled": "false",
		"transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
	}
	for i := 0; i < len(pairs); i += 2 {
		options[pairs[i]] = pairs[i+1]
		if pairs[i+1] == "-" {
			delete(options, pairs[i])
		}
	}
	text, err := json.Marshal(options)
	require.NoError(t, err)
	c, err := mapping.FromConnector(text)
	require.NoError(t, err)
	return c
}

func TestEachConnectorOptionIsTranslatedOrReported(t *testing.T) {
	t.Parallel()
	c := connector(t)
	require.Equal(t, map[string]mapping.Weight{"extended.headers.enabled": mapping.Moot}, notes(c))
	require.Equal(t, "debezium", c.Slot)
	require.Equal(t, "dbz_publication", c.Publication)
	require.Equal(t, mapping.Config{Headers: mapping.EventRouter}, c.Mapping)

	for name, row := range map[string]struct {
		option, value string
		weight        mapping.Weight
		at            string // name of the note's option, if it differs
		says          string
	}{
		"another database":             {"connector.class", "io.debezium.connector.mysql.MySqlConnector", mapping.Stops, "", "Postgres"},
		"the default plugin":           {"plugin.name", "-", mapping.Differs, "", "decoderbufs"},
		"a slot that goes":             {"slot.drop.on.stop", "true", mapping.Differs, "", "before the move"},
		"no table":                     {"table.include.list", "-", mapping.Stops, "", "name it"},
		"tables by expression":         {"table.include.list", `public\.outbox.*`, mapping.Differs, "", "expression"},
		"two tables":                   {"table.include.list", "a.outbox,b.outbox", mapping.Differs, "", "slot of its own"},
		"a table of 1.x":               {"table.whitelist", "x.y", mapping.Differs, "table.include.list", "slot of its own"},
		"the worker's converter":       {"value.converter", "-", mapping.Differs, "", "worker"},
		"another converter":            {"value.converter", "x.ProtobufConverter", mapping.Differs, "", "not known"},
		"schemas in the payloads":      {"value.converter", "org.apache.kafka.connect.json.JsonConverter", mapping.Differs, "value.converter.schemas.enable", "contain their schema"},
		"Avro keys":                    {"key.converter", "io.confluent.connect.avro.AvroConverter", mapping.Differs, "", "partition"},
		"headers in JSON":              {"header.converter", "org.apache.kafka.connect.json.JsonConverter", mapping.Differs, "", "plain text"},
		"a converter for other things": {"value.converter.delegate.converter.type", "x", mapping.Moot, "", "heartbeats"},
		"a second transform":           {"transforms", "outbox,route", mapping.Differs, "transforms.route", "not done"},
		"a Java expression":            {"transforms.outbox.route.topic.regex", "(?=a).*", mapping.Stops, "transforms.outbox", "RE2"},
		"an option of ours there":      {"transforms.outbox.headers", "x", mapping.Moot, "", "no such option"},
		"a value from a provider":      {"slot.name", "${file:/x:slot}", mapping.Differs, "", "config provider"},
		"a heartbeat that is none":     {"heartbeat.interval.ms", "10s", mapping.Differs, "", "milliseconds"},
		"doubles":                      {"decimal.handling.mode", "double", mapping.Differs, "", "text"},
		"masked columns":               {"column.mask.with.5.chars", "a.b.c", mapping.Differs, "", "mask them"},
		"topics that are made":         {"topic.creation.default.partitions", "3", mapping.Differs, "", "create them"},
	} {
		t.Run(name, func(t *testing.T) {
			c := connector(t, row.option, row.value)
			at := row.option
			if row.at != "" {
				at = row.at
			}
			if row.option == "table.whitelist" {
				c = connector(t, row.option, "x.y,x.z", "table.include.list", "-")
				require.Equal(t, []string{"x.y", "x.z"}, c.Tables)
			}
			for _, n := range c.Notes {
				if n.Option == at && n.Weight == row.weight && strings.Contains(n.Text, row.says) {
					return
				}
			}
			require.Fail(t, "no such note", "%+v", c.Notes)
		})
	}
	for option, value := range map[string]string{"decimal.handling.mode": "string", "errors.tolerance": "none", "time.precision.mode": "adaptive"} {
		require.NotContains(t, notes(connector(t, option, value)), option)
	}

	c = connector(t, "value.converter", "io.confluent.connect.avro.AvroConverter", "value.converter.schema.registry.url", "https://u:hunter2@registry:8081,https://other",
		"value.converter.basic.auth.user.info", "u:hunter2")
	require.Equal(t, "https://registry:8081", c.Registry)
	require.Equal(t, "io.confluent.kafka.serializers.subject.TopicNameStrategy", c.Strategy)
}

func TestInvalidConnectorJSONIsRefused(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		``: "byte 0", `{"a":`: "not JSON", `[]`: "want {", `null`: "want {", `{"config": 1}`: "config", `{"a": {"b": 1}}`: `option "a"`,
		strings.Repeat(" ", 1<<20+1): "the limit",
	} {
		_, err := mapping.FromConnector([]byte(text))
		require.ErrorContains(t, err, says, text[:min(len(text), 20)])
	}
}

// FuzzFromConnector: any text is read or refused, no password is returned, and a mapping without a note of weight Stops
// works.
func FuzzFromConnector(f *testing.F) {
	f.Add([]byte(shop))
	f.Add([]byte(`{"config":{"transforms":"a","transforms.a.type":"io.debezium.transforms.outbox.EventRouter","transforms.a.route.topic.regex":"("}}`))
	f.Add([]byte(`{"a":null,"b":1.5e3,"c":true}`))
	f.Add([]byte(`{"value.converter":"x.AvroConverter","value.converter.schema.registry.url":"http://u:hunter2@r"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := mapping.FromConnector(text)
		if err != nil {
			return
		}
		stops := false
		for _, n := range c.Notes {
			stops = stops || n.Weight == mapping.Stops
			require.NotEmpty(t, n.Text)
		}
		if _, err := mapping.New(c.Mapping); !stops {
			require.NoError(t, err)
		}
		var config struct{ Config map[string]any }
		if json.Unmarshal(text, &config) == nil {
			if p, ok := config.Config["database.password"].(string); ok && strings.HasPrefix(p, secret) && strings.Count(string(text), p) == 1 {
				all, err := json.Marshal(c)
				require.NoError(t, err)
				require.NotContains(t, string(all), p)
			}
		}
	})
}
