package mapping_test

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/mapping"
)

// A cell is a column with its value in a row, as Postgres prints it.
type cell struct {
	name     string
	oid      uint32
	modifier int32
	text     string
	null     bool
}

func text(name, value string) cell  { return cell{name, pgtype.TextOID, -1, value, false} }
func jsonb(name, value string) cell { return cell{name, pgtype.JSONBOID, -1, value, false} }
func bytea(name, value string) cell {
	return cell{name, pgtype.ByteaOID, -1, fmt.Sprintf(`\x%x`, value), false}
}
func number(name, value string) cell { return cell{name, pgtype.Int4OID, -1, value, false} }
func truth(name, value string) cell  { return cell{name, pgtype.BoolOID, -1, value, false} }
func null(c cell) cell               { c.null = true; return c }

func stamp(name, value string, precision int32) cell {
	return cell{name, pgtype.TimestampOID, precision, value, false}
}

// values returns cells as the server sends them.
func values(t testing.TB, cells []cell, binary bool) ([]mapping.Column, []mapping.Value) {
	types := pgtype.NewMap()
	columns, row := make([]mapping.Column, len(cells)), make([]mapping.Value, len(cells))
	for i, c := range cells {
		columns[i] = mapping.Column{Name: c.name, Type: c.oid, Modifier: c.modifier}
		switch {
		case c.null:
		case !binary:
			row[i].Data = []byte(c.text)
		default:
			kind, known := types.TypeForOID(c.oid)
			require.True(t, known)
			value, err := kind.Codec.DecodeValue(types, c.oid, pgtype.TextFormatCode, []byte(c.text))
			require.NoError(t, err)
			if c.oid == pgtype.JSONBOID {
				value = []byte(c.text)
			}
			data, err := types.Encode(c.oid, pgtype.BinaryFormatCode, value, make([]byte, 0, 16))
			require.NoError(t, err)
			row[i] = mapping.Value{Data: data, Binary: true}
		}
	}
	return columns, row
}

func route(t testing.TB, options map[string]string, cells []cell, binary bool) (mapping.Message, error) {
	cfg, err := mapping.FromOptions(options)
	require.NoError(t, err)
	m, err := mapping.New(cfg)
	require.NoError(t, err)
	columns, row := values(t, cells, binary)
	table, err := m.Bind(columns)
	require.NoError(t, err)
	return table.Message(row)
}

// headers returns the headers on the wire, as name=value.
func headers(m mapping.Message) (list []string) {
	for _, h := range m.Headers() {
		if h.Value == nil {
			list = append(list, h.Key)
			continue
		}
		list = append(list, h.Key+"="+string(h.Value))
	}
	return list
}

// order returns the row of Debezium's documentation.
const (
	orderJSON = `{"id": 1, "lineItems": [{"id": 1, "item": "Debezium in Action", "status": "ENTERED", "quantity": 2, "totalPrice": 39.98}, ` +
		`{"id": 2, "item": "Debezium for Dummies", "status": "ENTERED", "quantity": 1, "totalPrice": 29.99}], ` +
		`"orderDate": "2019-01-31T12:13:01", "customerId": 123}`
	orderCompact = `{"id":1,"lineItems":[{"id":1,"item":"Debezium in Action","status":"ENTERED","quantity":2,"totalPrice":39.98},` +
		`{"id":2,"item":"Debezium for Dummies","status":"ENTERED","quantity":1,"totalPrice":29.99}],` +
		`"orderDate":"2019-01-31T12:13:01","customerId":123}`
	orderQuoted = `"{\"id\": 1, \"lineItems\": [{\"id\": 1, \"item\": \"Debezium in Action\", \"status\": \"ENTERED\", \"quantity\": 2, \"totalPrice\": 39.98}, ` +
		`{\"id\": 2, \"item\": \"Debezium for Dummies\", \"status\": \"ENTERED\", \"quantity\": 1, \"totalPrice\": 29.99}], ` +
		`\"orderDate\": \"2019-01-31T12:13:01\", \"customerId\": 123}"`
	orderID = "406c07f3-26f0-4eea-a50c-109940064b8f"
	userID  = "da8d6de6-3b77-45ff-8f44-57db55a7a06c"
	trace   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

func order(more ...cell) []cell {
	return append([]cell{
		{"id", pgtype.UUIDOID, -1, orderID, false}, text("aggregatetype", "order"), text("aggregateid", "1"),
		text("type", "OrderCreated"), jsonb("payload", orderJSON),
	}, more...)
}

// user returns the row of Debezium's EventRouterTest, with another payload.
func user(payload cell, more ...cell) []cell {
	return append([]cell{
		text("id", userID), text("aggregatetype", "User"), text("aggregateid", "10711fa5"), text("type", "UserCreated"),
		payload, null(truth("is_deleted", "")),
	}, more...)
}

// everything returns the columns that OutboxEventRouterIT adds to the table.
func everything() []cell {
	return []cell{number("version", "1"), truth("somebooltype", "t"), stamp("createdat", "2019-03-24 20:52:59", -1), truth("is_deleted", "f")}
}

const everywhere = "version:envelope:eventVersion,aggregatetype:envelope:aggregateType,somebooltype:envelope:someBoolType," +
	"somebooltype:header,is_deleted:envelope:deleted"

func updated(payload cell) []cell {
	return append([]cell{
		{"id", pgtype.UUIDOID, -1, userID, false}, text("aggregatetype", "UserEmail"), text("aggregateid", "7bdf2e9e"),
		text("type", "UserUpdated"), payload,
	}, everything()...)
}

// typed returns the row of canInfluenceTableColumnTypes.
func typed() []cell {
	return []cell{number("event_id", "2"), number("payload_id", "1232"), text("my_route_field", "routename"),
		bytea("event_type", "CoolSchemaCreated"), bytea("payload_body", "{}"), truth("some_boolean", "t"), number("p", "123")}
}

func typedOptions(more ...string) map[string]string {
	o := map[string]string{"table.field.event.id": "event_id", "table.field.event.key": "payload_id",
		"table.field.event.type": "event_type", "table.field.event.payload": "payload_body", "route.by.field": "my_route_field"}
	for i := 0; i < len(more); i += 2 {
		o[more[i]] = more[i+1]
	}
	return o
}

// nothing is a payload that is SQL's null, and a null in Kafka.
const nothing = "<null>"

// TestEventRouter compares the mapping with the examples of Debezium's documentation and the results of its EventRouterTest
// and OutboxEventRouterIT. If a result there is a structure of Kafka Connect, the expected value here is its form under
// JsonConverter with schemas.enable=false; keys and other payloads are StringConverter's.
func TestEventRouter(t *testing.T) {
	t.Parallel()
	o := func(pairs ...string) map[string]string {
		m := make(map[string]string)
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	for name, row := range map[string]struct {
		options   map[string]string
		row       []cell
		topic     string
		key       string
		headers   []string
		payload   string
		partition int32
		timestamp string
	}{
		"documentation: the example's message": {o(), order(), "outbox.event.order", "1",
			[]string{"id=" + orderID}, orderJSON, mapping.ByKey, ""},
		"documentation: the payload as an escaped string, by JsonConverter": {o("payload.format", "json"), order(),
			"outbox.event.order", "1", []string{"id=" + orderID}, orderQuoted, mapping.ByKey, ""},
		"documentation: the payload expanded": {o("table.expand.json.payload", "true", "payload.format", "json"), order(),
			"outbox.event.order", "1", []string{"id=" + orderID}, orderCompact, mapping.ByKey, ""},
		"documentation: Avro by BinaryDataConverter": {o(), user(bytea("payload", "\x00\x00\x00\x00\x07\xff\xfe")),
			"outbox.event.User", "10711fa5", []string{"id=" + userID}, "\x00\x00\x00\x00\x07\xff\xfe", mapping.ByKey, ""},
		"documentation: a column as header": {o("table.fields.additional.placement", "eventType:header:type"),
			order(text("eventType", "order-created")), "outbox.event.order", "1",
			[]string{"id=" + orderID, "type=order-created"}, orderJSON, mapping.ByKey, ""},
		"documentation: a column in the envelope": {o("table.fields.additional.placement", "eventType:envelope:type"),
			order(text("eventType", "order-created")), "outbox.event.order", "1", []string{"id=" + orderID},
			`{"payload":` + orderQuoted + `,"type":"order-created"}`, mapping.ByKey, ""},
		"documentation: a column as partition": {o("table.fields.additional.placement", "partitionColumn:partition"),
			order(number("partitionColumn", "7")), "outbox.event.order", "1", []string{"id=" + orderID}, orderJSON, 7, ""},
		"documentation: an alias of a partition has no effect": {o("table.fields.additional.placement", "partitionColumn:partition:x"),
			order(number("partitionColumn", "0")), "outbox.event.order", "1", []string{"id=" + orderID}, orderJSON, 0, ""},
		"documentation: id:header,my-field:envelope:my-alias": {
			o("table.fields.additional.placement", "id:header,my-field:envelope:my-alias"), order(text("my-field", "x")),
			"outbox.event.order", "1", []string{"id=" + orderID, "id=" + orderID},
			`{"payload":` + orderQuoted + `,"my-alias":"x"}`, mapping.ByKey, ""},

		"canExtractTableFields, canSetDefaultMessageKey": {o(), user(text("payload", "{}")), "outbox.event.User", "10711fa5",
			[]string{"id=" + userID}, "{}", mapping.ByKey, ""},
		"canSetMessageKey": {o("table.field.event.key", "type"), user(text("payload", "{}")), "outbox.event.User", "UserCreated",
			[]string{"id=" + userID}, "{}", mapping.ByKey, ""},
		"canSetTimestampByUserDefinedConfiguration": {o("table.field.event.timestamp", "event_timestamp"),
			user(text("payload", "{}"), stamp("event_timestamp", "2420-09-06 05:17:05.338", 3)), "outbox.event.User", "10711fa5",
			[]string{"id=" + userID}, "{}", mapping.ByKey, "2420-09-06T05:17:05.338Z"}, // 14222264625338
		"shouldConvertMicrosecondsTimestampToMilliseconds": {o("table.field.event.timestamp", "createdat"),
			updated(jsonb("payload", `{"email": "gh@mefi.in"}`)), "outbox.event.UserEmail", "7bdf2e9e", []string{"id=" + userID},
			`{"email": "gh@mefi.in"}`, mapping.ByKey, "2019-03-24T20:52:59Z"}, // 1553460779000
		"a timestamp that is null leaves the default": {o("table.field.event.timestamp", "at"),
			user(text("payload", "{}"), null(stamp("at", "", -1))), "outbox.event.User", "10711fa5", []string{"id=" + userID}, "{}", mapping.ByKey, ""},
		"canConfigureEveryTableField": {typedOptions("route.by.field", "payload_id"), []cell{
			text("event_id", userID), text("payload_id", "10711fa5"), text("event_type", "UserCreated"), text("payload_body", "{}")},
			"outbox.event.10711fa5", "10711fa5", []string{"id=" + userID}, "{}", mapping.ByKey, ""},
		"canInfluenceTableColumnTypes": {typedOptions("table.fields.additional.placement", "some_boolean:envelope:bool"), typed(),
			"outbox.event.routename", "1232", []string{"id=2"}, `{"payload":"e30=","bool":true}`, mapping.ByKey, ""},
		"canSetPartitionWithAdditionalFields": {typedOptions("table.fields.additional.placement", "p:partition"), typed(),
			"outbox.event.routename", "1232", []string{"id=2"}, "{}", 123, ""},
		"a partition that is null is chosen by the key": {o("table.fields.additional.placement", "p:partition"),
			user(text("payload", "{}"), null(number("p", ""))), "outbox.event.User", "10711fa5", []string{"id=" + userID}, "{}", mapping.ByKey, ""},
		"shouldNotSetSchemaVersionByDefault": {o("table.field.event.schema.version", "version"),
			user(text("payload", "{}"), number("version", "3")), "outbox.event.User", "10711fa5", []string{"id=" + userID}, "{}", mapping.ByKey, ""},
		"canSetPayloadTypeIntoTheEnvelope": {o("table.fields.additional.placement", "type:envelope"), user(text("payload", "{}")),
			"outbox.event.User", "10711fa5", []string{"id=" + userID}, `{"payload":"{}","type":"UserCreated"}`, mapping.ByKey, ""},
		"canSetPayloadTypeIntoTheEnvelopeWithAlias": {o("table.fields.additional.placement", "type:envelope:aggregateType"),
			user(text("payload", "{}")), "outbox.event.User", "10711fa5", []string{"id=" + userID},
			`{"payload":"{}","aggregateType":"UserCreated"}`, mapping.ByKey, ""},
		"canSetMultipleFieldsIntoTheEnvelope": {o("table.fields.additional.placement",
			"type:envelope:payloadType, aggregateid:envelope:payloadId,type:header:payloadType"), user(text("payload", "{}")),
			"outbox.event.User", "10711fa5", []string{"id=" + userID, "payloadType=UserCreated"},
			`{"payload":"{}","payloadType":"UserCreated","payloadId":"10711fa5"}`, mapping.ByKey, ""},
		"canPassBinaryKey": {o(), []cell{text("id", userID), text("aggregatetype", "User"), bytea("aggregateid", "\xffkey"), text("type", "T"), text("payload", "{}")},
			"outbox.event.User", "\xffkey", []string{"id=" + userID}, "{}", mapping.ByKey, ""},
		"canPassIntKey": {o(), []cell{text("id", userID), text("aggregatetype", "User"), number("aggregateid", "54321"), text("type", "T"), text("payload", "{}")},
			"outbox.event.User", "54321", []string{"id=" + userID}, "{}", mapping.ByKey, ""},
		"a key that is null": {o(), []cell{text("id", userID), text("aggregatetype", "User"), null(text("aggregateid", "")), text("type", "T"), text("payload", "{}")},
			"outbox.event.User", nothing, []string{"id=" + userID}, "{}", mapping.ByKey, ""},
		"a key by JsonConverter is in quotes": {o("key.format", "json"), user(text("payload", "{}")), "outbox.event.User", `"10711fa5"`,
			[]string{"id=" + userID}, "{}", mapping.ByKey, ""},
		"canPassBinaryMessage": {o(), user(bytea("payload", "a binary message")), "outbox.event.User", "10711fa5",
			[]string{"id=" + userID}, "a binary message", mapping.ByKey, ""},
		"canMarkAnEventAsDeleted: a payload": {o("table.fields.additional.placement", "deleted:envelope", "route.tombstone.on.empty.payload", "true"),
			user(text("payload", "{}"), truth("deleted", "t")), "outbox.event.User", "10711fa5", []string{"id=" + userID},
			`{"payload":"{}","deleted":true}`, mapping.ByKey, ""},
		"canMarkAnEventAsDeleted: none": {o("table.fields.additional.placement", "deleted:envelope", "route.tombstone.on.empty.payload", "true"),
			user(text("payload", ""), truth("deleted", "t")), "outbox.event.User", "10711fa5", []string{"id=" + userID}, nothing, mapping.ByKey, ""},
		"noTombstoneIfNotConfigured": {o("table.fields.additional.placement", "deleted:envelope"),
			user(text("payload", ""), truth("deleted", "t")), "outbox.event.User", "10711fa5", []string{"id=" + userID},
			`{"payload":"","deleted":true}`, mapping.ByKey, ""},
		"an empty payload, no tombstone configured": {o(), user(text("payload", "")), "outbox.event.User", "10711fa5",
			[]string{"id=" + userID}, "", mapping.ByKey, ""},
		"a payload of spaces is empty": {o("route.tombstone.on.empty.payload", "true"), user(text("payload", " \n")), "outbox.event.User", "10711fa5",
			[]string{"id=" + userID}, nothing, mapping.ByKey, ""},
		"a null payload by StringConverter is null either way": {o(), user(null(text("payload", ""))), "outbox.event.User", "10711fa5",
			[]string{"id=" + userID}, nothing, mapping.ByKey, ""},
		"a null payload by JsonConverter is the word": {o("payload.format", "json"), user(null(text("payload", ""))), "outbox.event.User", "10711fa5",
			[]string{"id=" + userID}, "null", mapping.ByKey, ""},

		"shouldSendEventTypeAsHeader": {o("table.fields.additional.placement", "type:header:eventType"),
			user(jsonb("payload", `{"email": "gh@mefi.in"}`)), "outbox.event.User", "10711fa5",
			[]string{"id=" + userID, "eventType=UserCreated"}, `{"email": "gh@mefi.in"}`, mapping.ByKey, ""},
		"shouldSupportAllFeatures": {o("table.field.event.schema.version", "version", "table.field.event.timestamp", "createdat",
			"table.fields.additional.placement", everywhere), updated(jsonb("payload", `{"email": "gh@mefi.in"}`)),
			"outbox.event.UserEmail", "7bdf2e9e", []string{"id=" + userID, "somebooltype=true"},
			`{"payload":"{\"email\": \"gh@mefi.in\"}","eventVersion":1,"aggregateType":"UserEmail","someBoolType":true,"deleted":false}`,
			mapping.ByKey, "2019-03-24T20:52:59Z"},
		"shouldNotProduceTombstoneEventForNullPayload": {o("table.field.event.schema.version", "version", "table.field.event.timestamp", "createdat",
			"table.fields.additional.placement", everywhere), updated(null(jsonb("payload", ""))),
			"outbox.event.UserEmail", "7bdf2e9e", []string{"id=" + userID, "somebooltype=true"},
			`{"payload":null,"eventVersion":1,"aggregateType":"UserEmail","someBoolType":true,"deleted":false}`,
			mapping.ByKey, "2019-03-24T20:52:59Z"},
		"shouldProduceTombstoneEventForNullPayload": {o("table.field.event.schema.version", "version", "table.field.event.timestamp", "createdat",
			"route.tombstone.on.empty.payload", "true", "table.fields.additional.placement", everywhere), updated(null(jsonb("payload", ""))),
			"outbox.event.UserEmail", "7bdf2e9e", []string{"id=" + userID, "somebooltype=true"}, nothing, mapping.ByKey, "2019-03-24T20:52:59Z"},

		"canExpandJsonPayloadIfConfigured": {o("table.expand.json.payload", "true"),
			user(text("payload", `{"fullName": "John Doe", "enabled": true, "rating": 4.9, "age": 42, "pets": ["dog", "cat"], "petObjects": [{"type": "dog"}, {"type": "cat"}]}`)),
			"outbox.event.User", "10711fa5", []string{"id=" + userID},
			`{"fullName":"John Doe","enabled":true,"rating":4.9,"age":42,"pets":["dog","cat"],"petObjects":[{"type":"dog"},{"type":"cat"}]}`, mapping.ByKey, ""},
		"a member that is null is left out": {o("table.expand.json.payload", "true"),
			user(text("payload", `{"a": null, "b": "null", "c": {"d": null, "e": 1, "f": null}, "g": []}`)), "outbox.event.User", "10711fa5",
			[]string{"id=" + userID}, `{"b":"null","c":{"e":1}}`, mapping.ByKey, ""},
		"optional_bytes and optional_string keep them": {o("table.expand.json.payload", "true", "table.json.payload.null.behavior", "optional_bytes",
			"table.json.payload.empty.array.behavior", "optional_string"), user(text("payload", `{"a": null, "g": [ ]}`)), "outbox.event.User", "10711fa5",
			[]string{"id=" + userID}, `{"a":null,"g":[]}`, mapping.ByKey, ""},
		"only empty arrays are kept": {o("table.expand.json.payload", "true", "table.json.payload.empty.array.behavior", "optional_string"),
			user(text("payload", `{"a": null, "g": [ ]}`)), "outbox.event.User", "10711fa5", []string{"id=" + userID}, `{"g":[]}`, mapping.ByKey, ""},
		"only nulls are kept": {o("table.expand.json.payload", "true", "table.json.payload.null.behavior", "optional_bytes"),
			user(text("payload", `{"a": null, "g": [ ]}`)), "outbox.event.User", "10711fa5", []string{"id=" + userID}, `{"a":null}`, mapping.ByKey, ""},
		"shouldExpandJSONPayloadWithEmptyArrayAndRemoveThatArray": {o("table.expand.json.payload", "true"),
			user(text("payload", `{"fullName": "John Doe", "petObjects": [{"type": "dog", "colors": []}]}`)), "outbox.event.User", "10711fa5",
			[]string{"id=" + userID}, `{"fullName":"John Doe","petObjects":[{"type":"dog"}]}`, mapping.ByKey, ""},
		"canExpandJsonPayloadWithAdditionalFieldInEnvelope": {o("table.expand.json.payload", "true", "table.fields.additional.placement", "type:envelope"),
			user(text("payload", `{"fullName": "John Doe"}`)), "outbox.event.User", "10711fa5", []string{"id=" + userID},
			`{"payload":{"fullName":"John Doe"},"type":"UserCreated"}`, mapping.ByKey, ""},
		"canExpandJsonArrayWithFirstElementNull": {o("table.expand.json.payload", "true"),
			user(text("payload", `{"fullName": "John Doe", "numbers": [null, 2, 3]}`)), "outbox.event.User", "10711fa5", []string{"id=" + userID},
			`{"fullName":"John Doe","numbers":[null,2,3]}`, mapping.ByKey, ""},
		"shouldNotExpandJSONPayloadIfNotConfigured": {o(), user(text("payload", `{"fullName": "John Doe", "rating": 4.9, "age": 42}`)),
			"outbox.event.User", "10711fa5", []string{"id=" + userID}, `{"fullName": "John Doe", "rating": 4.9, "age": 42}`, mapping.ByKey, ""},
		"invalid JSON is not expanded": {o("table.expand.json.payload", "true"), user(text("payload", `{"fullName": "John`)),
			"outbox.event.User", "10711fa5", []string{"id=" + userID}, `{"fullName": "John`, mapping.ByKey, ""},
		"canSetFieldIntoTheEnvelopeWithMissingField": {o("table.field.additional.missing", "ignore",
			"table.fields.additional.placement", "nonExistingField:envelope:alias"), user(text("payload", "{}")), "outbox.event.User", "10711fa5",
			[]string{"id=" + userID}, `{"payload":"{}"}`, mapping.ByKey, ""},
		"the same by the option of 3.1": {o("table.fields.additional.error.on.missing", "false",
			"table.fields.additional.placement", "nonExistingField:header:alias"), user(text("payload", "{}")), "outbox.event.User", "10711fa5",
			[]string{"id=" + userID}, `{}`, mapping.ByKey, ""},

		"a topic by another expression": {o("route.topic.regex", `(.*)-(\d+)`, "route.topic.replacement", "$1.v$2", "route.by.field", "type"),
			[]cell{text("id", userID), text("aggregateid", "k"), text("type", "invoice-12"), text("payload", "{}")}, "invoice.v12", "k",
			[]string{"id=" + userID}, "{}", mapping.ByKey, ""},
		"a topic that the expression does not match is the value": {o("route.topic.regex", `order`, "route.topic.replacement", "x"), user(text("payload", "{}")), "User", "10711fa5",
			[]string{"id=" + userID}, "{}", mapping.ByKey, ""},
		"a header that is null": {o("table.fields.additional.placement", "note:header"), user(text("payload", "{}"), null(text("note", ""))),
			"outbox.event.User", "10711fa5", []string{"id=" + userID, "note"}, "{}", mapping.ByKey, ""},
		"trace context goes before the id": {o(), user(text("payload", "{}"),
			text("tracingspancontext", "#Sat Nov 21 10:00:00 UTC 2026\ntraceparent="+trace+"\ntracestate=a\\=b,c\\:d\n")),
			"outbox.event.User", "10711fa5", []string{"traceparent=" + trace, "tracestate=a=b,c:d", "id=" + userID}, "{}", mapping.ByKey, ""},
		"a trace context that is none": {o("tracing.span.context.field", "span"), user(text("payload", "{}"), text("span", "traceparent=1-2-3\ntracestate=x")),
			"outbox.event.User", "10711fa5", []string{"id=" + userID}, "{}", mapping.ByKey, ""},
	} {
		for _, format := range []string{"text", "binary"} {
			t.Run(name+"/"+format, func(t *testing.T) {
				options := map[string]string{"headers": mapping.EventRouter}
				for k, v := range row.options {
					options[k] = v
				}
				m, err := route(t, options, row.row, format == "binary")
				require.NoError(t, err)
				require.Equal(t, row.topic, m.Topic)
				require.Equal(t, row.key, shown(m.Key))
				require.Equal(t, row.headers, headers(m))
				require.Equal(t, row.payload, shown(m.Payload))
				require.Equal(t, row.partition, m.Partition)
				at := ""
				if !m.Timestamp.IsZero() {
					at = m.Timestamp.Format(time.RFC3339Nano)
				}
				require.Equal(t, row.timestamp, at)
			})
		}
	}
}

func shown(b []byte) string {
	if b == nil {
		return nothing
	}
	return string(b)
}

func TestCloudEventsAreTheDefault(t *testing.T) {
	t.Parallel()
	m, err := route(t, map[string]string{
		"service": "shop", "table.field.event.timestamp": "createdat", "table.field.event.schema.version": "version",
		"table.fields.additional.placement": "flow:header:ce_correlationid,somebooltype:header:vip",
		"table.field.position":              "position", "table.field.xid": "xid",
	}, append(updated(jsonb("payload", `{}`)), text("flow", "f-1"), text("tracingspancontext", "traceparent: "+trace),
		cell{"position", pgtype.Int8OID, -1, "42", false}, cell{"xid", pgtype.XID8OID, -1, "4294967299", false}), true)
	require.NoError(t, err)
	require.Equal(t, []string{
		"ce_specversion=1.0", "ce_id=" + userID, "ce_source=shop", "ce_type=UserUpdated", "ce_subject=7bdf2e9e",
		"content-type=application/json", "ce_correlationid=f-1", "traceparent=" + trace, "ce_time=2019-03-24T20:52:59Z",
		"vip=true", "ce_schemaversion=1",
	}, headers(m))
	require.Equal(t, int64(42), m.Position)
	require.Equal(t, uint64(1<<32+3), m.XID)

	m, err = route(t, nil, user(bytea("payload", "x")), false)
	require.NoError(t, err)
	require.Equal(t, userID, m.CorrelationID, "a flow begins with its own id")
	require.Equal(t, "application/octet-stream", m.ContentType)
	m, err = route(t, map[string]string{"content.type": envelope.Avro}, user(bytea("payload", "x")), false)
	require.NoError(t, err)
	require.Equal(t, envelope.Avro, m.ContentType)
	m, err = route(t, nil, user(null(text("payload", ""))), false)
	require.NoError(t, err)
	require.Empty(t, m.ContentType, "a tombstone has none")
}

func TestARowThatCannotBeMappedIsKnownAllTheSame(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		cells []cell
		says  string
	}{
		"no id":              {[]cell{null(text("id", "")), text("aggregatetype", "a"), text("type", "t"), text("payload", "")}, "column id: is null, but an event needs an id"},
		"no topic":           {[]cell{text("id", "1"), null(text("aggregatetype", "")), text("type", "t"), text("payload", "")}, "column aggregatetype: is null"},
		"no type":            {[]cell{text("id", "1"), text("aggregatetype", "a"), text("type", ""), text("payload", "")}, "column type: is empty"},
		"a long id":          {[]cell{text("id", strings.Repeat("x", 2000)), text("aggregatetype", "a"), text("type", ""), text("payload", "")}, "the limit is 1024"},
		"a partition":        {[]cell{text("id", "1"), text("aggregatetype", "a"), text("type", "t"), text("payload", ""), number("p", "-1")}, "column p: is -1"},
		"an infinite time":   {[]cell{text("id", "1"), text("aggregatetype", "a"), text("type", "t"), text("payload", ""), stamp("at", "infinity", -1)}, "column at: is infinity"},
		"too many headers":   {[]cell{text("id", "1"), text("aggregatetype", "a"), text("type", "t"), text("payload", ""), text("h", strings.Repeat("x", 70_000))}, "65536"},
		"a bytea not in hex": {[]cell{text("id", "1"), text("aggregatetype", "a"), text("type", "t"), {"payload", pgtype.ByteaOID, -1, `\001`, false}}, "bytea_output"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := route(t, map[string]string{
				"table.fields.additional.placement": "p:partition,h:header", "table.field.additional.missing": "ignore",
				"table.field.position": "n", "table.field.event.timestamp": "at",
			}, append([]cell{number("n", "7"), text("aggregateid", "k")}, fillIn(row.cells)...), false)
			require.ErrorIs(t, err, mapping.ErrRow)
			require.ErrorContains(t, err, row.says)
			require.Equal(t, int64(7), m.Position)
			require.Equal(t, "k", string(m.Key))
		})
	}
}

// fillIn sets the required timestamp in rows that have none.
func fillIn(cells []cell) []cell {
	for _, c := range cells {
		if c.name == "at" {
			return cells
		}
	}
	return append(cells, null(stamp("at", "", -1)))
}

func TestBindNamesAllThatIsMissing(t *testing.T) {
	t.Parallel()
	m, err := mapping.New(mapping.Config{Timestamp: "at", Additional: "p:partition,x:header", XID: "xid", Position: "position"})
	require.NoError(t, err)
	_, err = m.Bind([]mapping.Column{{Name: "at", Type: pgtype.TextOID}, {Name: "p", Type: pgtype.TextOID}, {Name: "xid", Type: pgtype.Int8OID},
		{Name: "id", Type: pgtype.UUIDOID}})
	for _, says := range []string{`table.field.event.key: the table has no column "aggregateid"`, `no column "x"`, `no column "position"`,
		`column "at" is of type OID 25, want a timestamp`, `column "p" is of type OID 25, want an integer`, `want an xid8`} {
		require.ErrorContains(t, err, says)
	}
}

func TestBadOptionsAreNamed(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ option, value, says string }{
		"shouldFailOnInvalidConfigurationForTopicRegex":            {"route.topic.regex", " [[a-z]", "classes within classes"},
		"a regex of no language":                                   {"route.topic.regex", "(", "missing closing )"},
		"look-around":                                              {"route.topic.regex", "(?=a).*", "RE2"},
		"an intersection":                                          {"route.topic.regex", "[a-z&&[^b]]", "&&"},
		"a group that is not there":                                {"route.topic.replacement", "a.${b}", `no group "b"`},
		"a group's number that is not there":                       {"route.topic.replacement", "a.$2", "no group"},
		"a dollar alone":                                           {"route.topic.replacement", "a$", "no group"},
		"shouldFailOnInvalidConfigurationForAdditionalFields":      {"table.fields.additional.placement", "type", "column:placement"},
		"shouldFailOnInvalidConfigurationForAdditionalFieldsEmpty": {"table.fields.additional.placement", "", "is empty"},
		"a placement that is none":                                 {"table.fields.additional.placement", "type:footer", "header, envelope or partition"},
		"two members of a name":                                    {"table.fields.additional.placement", "a:envelope:x,b:envelope:x", "already"},
		"a member named payload":                                   {"table.fields.additional.placement", "a:envelope:payload", "already"},
		"shouldFailOnInvalidConfigurationForOperationBehavior":     {"table.op.invalid.behavior", "invalidOption", "warn or error or fatal"},
		"neither true nor false":                                   {"table.expand.json.payload", "yes", "true or false"},
		"an option that is none":                                   {"table.field.event.kay", "x", "no such option"},
		"a profile that is none":                                   {"headers", "debezium", "cloudevents or eventrouter"},
		"an older option that is neither true nor false":           {"table.fields.additional.error.on.missing", "warn", "true or false"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := mapping.FromOptions(map[string]string{row.option: row.value})
			if err == nil {
				_, err = mapping.New(cfg)
			}
			require.ErrorContains(t, err, row.option)
			require.ErrorContains(t, err, row.says)
		})
	}
	_, err := mapping.FromOptions(map[string]string{"table.op.invalid.behavior": "warn", "debezium.op.invalid.behavior": "fatal"})
	require.ErrorContains(t, err, "the same option")
}

func TestOptionsComeBack(t *testing.T) {
	t.Parallel()
	options := map[string]string{"table.field.event.key": "k", "table.expand.json.payload": "true", "table.op.invalid.behavior": "FATAL"}
	cfg, err := mapping.FromOptions(options)
	require.NoError(t, err)
	require.Equal(t, options, cfg.Options())
	m, err := mapping.New(cfg)
	require.NoError(t, err)
	require.Equal(t, mapping.Fatal, m.Config().OnUpdate)
	require.Equal(t, "outbox.event.${routedByValue}", m.Config().RouteReplacement)
}

func TestEveryFieldHasAnOptionAndSurvives(t *testing.T) {
	t.Parallel()
	var cfg mapping.Config
	v := reflect.ValueOf(&cfg).Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		require.NotEmpty(t, f.Tag.Get("yaml"), f.Name)
		require.Equal(t, f.Tag.Get("yaml")+",omitempty", f.Tag.Get("json"), f.Name)
		if v.Field(i).Kind() == reflect.Bool {
			v.Field(i).SetBool(true)
		} else {
			v.Field(i).SetString("x" + strconv.Itoa(i))
		}
	}
	got, err := mapping.FromOptions(cfg.Options())
	require.NoError(t, err)
	require.Equal(t, cfg, got)
}
