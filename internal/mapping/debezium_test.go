package mapping_test

import (
	"encoding/json"
	"maps"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/mapping"
)

// A recording holds Debezium's messages for the rows of a table, in text, under each of the cases.
type recording struct {
	Columns []mapping.Column
	Rows    [][]*string
	Cases   []recordedCase
}

type recordedCase struct {
	Name     string            `json:"name"`
	Debezium map[string]string `json:"debezium"`
	Key      string            `json:"key"`   // text: StringConverter; json: JsonConverter
	Value    string            `json:"value"` // the same
	Results  []struct {
		Topic     string
		Key       []byte
		Payload   []byte
		Headers   []string
		Partition *int32
		Timestamp *int64
		Error     string
	} `json:"results"`
}

const (
	everyHeader = "a:header,b:header,c:header,d:header,e:header,g:header,h:header,i:header,j:header,k:header,l:header,m:header,n:header," +
		"q:header,s:header,v:header,w:header,bytes:header"
	everyMember = "a:envelope,b:envelope,c:envelope,d:envelope,f:envelope,g:envelope,h:envelope,i:envelope,j:envelope,k:envelope,l:envelope," +
		"m:envelope,n:envelope,q:envelope,s:envelope,v:envelope,w:envelope:W,bytes:envelope"
)

func recorded(name, key, value string, pairs ...string) recordedCase {
	o := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		o[pairs[i]] = pairs[i+1]
	}
	return recordedCase{Name: name, Debezium: o, Key: key, Value: value}
}

var recordedCases = []recordedCase{
	recorded("defaults", "text", "text"),
	recorded("defaults by JsonConverter", "json", "json"),
	recorded("expanded", "text", "json", "table.expand.json.payload", "true"),
	recorded("expanded, everything kept", "text", "json", "table.expand.json.payload", "true",
		"table.json.payload.null.behavior", "optional_bytes", "table.json.payload.empty.array.behavior", "optional_string"),
	recorded("expanded in an envelope", "text", "json", "table.expand.json.payload", "true", "table.fields.additional.placement", "type:envelope"),
	recorded("text", "text", "text", "table.field.event.payload", "words"),
	recorded("text by JsonConverter", "text", "json", "table.field.event.payload", "words"),
	recorded("text expanded", "text", "json", "table.field.event.payload", "words", "table.expand.json.payload", "true"),
	recorded("bytes", "text", "text", "table.field.event.payload", "bytes"),
	recorded("bytes by JsonConverter", "text", "json", "table.field.event.payload", "bytes"),
	recorded("bytes in an envelope", "text", "json", "table.field.event.payload", "bytes", "table.fields.additional.placement", "type:envelope"),
	recorded("every type as header", "text", "text", "table.fields.additional.placement", everyHeader),
	recorded("every type in the envelope", "text", "json", "table.fields.additional.placement", everyMember),
	recorded("partition", "text", "text", "table.fields.additional.placement", "x:partition"),
	recorded("timestamp", "text", "text", "table.field.event.timestamp", "j"),
	recorded("timestamp of milliseconds", "text", "text", "table.field.event.timestamp", "k"),
	recorded("tombstones", "text", "json", "route.tombstone.on.empty.payload", "true"),
	recorded("tombstones of text", "text", "text", "table.field.event.payload", "words", "route.tombstone.on.empty.payload", "true"),
	recorded("tombstones of text in an envelope", "text", "json", "table.field.event.payload", "words", "route.tombstone.on.empty.payload", "true",
		"table.fields.additional.placement", "type:envelope,type:header:eventType"),
	recorded("tombstones of bytes", "text", "text", "table.field.event.payload", "bytes", "route.tombstone.on.empty.payload", "true"),
	recorded("route", "text", "text", "route.topic.regex", `([a-z]+)-?(\d+|b)`, "route.topic.replacement", "t.$1.$2"),
	recorded("route by the first match", "text", "text", "route.topic.regex", `a|a-b`, "route.topic.replacement", "<$0>"),
	recorded("integer key", "text", "text", "table.field.event.key", "b"),
	recorded("integer key by JsonConverter", "json", "text", "table.field.event.key", "b"),
	recorded("bytes as key", "text", "text", "table.field.event.key", "bytes"),
	recorded("timestamp as key", "text", "text", "table.field.event.key", "i"),
	recorded("missing", "text", "json", "table.fields.additional.placement", "nope:envelope,nope:header,type:envelope", "table.field.additional.missing", "ignore"),
	recorded("schema version", "text", "json", "table.field.event.schema.version", "x", "table.fields.additional.placement", "type:envelope"),
}

// differs lists the messages of Debezium that the mapping does not produce, each with a reason.
var differs = map[string]string{
	"expanded, everything kept, row 2": "Debezium 3.6 does not know table.json.payload.empty.array.behavior, a later one does",
	"expanded, row 6":                  someMembers,
	"expanded, everything kept, row 6": someMembers,
	"expanded in an envelope, row 6":   someMembers,
	"expanded, row 7":                  mixedArray,
	"expanded, everything kept, row 7": mixedArray,
	"expanded in an envelope, row 7":   mixedArray,
	"text expanded, row 6":             "a payload that is an array stops Debezium with a DataException",
	"text expanded, row 7":             "a number beyond 64 bits stops Debezium with a DataException",
}

const (
	someMembers = "Debezium adds null for members that only other items of the array have"
	mixedArray  = "Debezium leaves a payload as text in which an array has items of several types"
)

// TestDebeziumItself compares the mapping with the messages of Debezium 3.6: its Postgres connector, its EventRouter and
// Kafka Connect's converters, run by TestRecord.
func TestDebeziumItself(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/debezium.json")
	require.NoError(t, err)
	var golden recording
	require.NoError(t, json.Unmarshal(text, &golden))
	require.Len(t, golden.Cases, len(recordedCases))
	used := make(map[string]bool)
	for _, c := range golden.Cases {
		options := maps.Clone(c.Debezium)
		options["headers"], options["key.format"], options["payload.format"] = mapping.EventRouter, c.Key, c.Value
		cfg, err := mapping.FromOptions(options)
		require.NoError(t, err)
		m, err := mapping.New(cfg)
		require.NoError(t, err)
		table, err := m.Bind(golden.Columns)
		require.NoError(t, err)
		for n, row := range golden.Rows {
			name := c.Name + ", row " + strconv.Itoa(n+1)
			t.Run(name, func(t *testing.T) {
				values := make([]mapping.Value, len(row))
				for i, text := range row {
					if text != nil {
						values[i].Data = []byte(*text)
					}
				}
				got, err := table.Message(values)
				require.NoError(t, err)
				want := c.Results[n]
				if reason, here := differs[name]; here {
					used[name] = true
					require.NotEqual(t, shown(want.Payload), shown(got.Payload), "no difference any more: %s", reason)
					return
				}
				require.Empty(t, want.Error)
				require.Equal(t, want.Topic, got.Topic)
				require.Equal(t, shown(want.Key), shown(got.Key))
				if c.Value == "json" && want.Payload != nil && got.Payload != nil {
					require.JSONEq(t, string(want.Payload), string(got.Payload))
				} else {
					require.Equal(t, shown(want.Payload), shown(got.Payload))
				}
				require.Equal(t, want.Headers, headers(got))
				if want.Partition == nil {
					require.Equal(t, mapping.ByKey, got.Partition)
				} else {
					require.Equal(t, *want.Partition, got.Partition)
				}
				if want.Timestamp != nil && !got.Timestamp.IsZero() {
					require.Equal(t, *want.Timestamp, got.Timestamp.UnixMilli())
				}
			})
		}
	}
	for name := range differs {
		require.True(t, used[name], "%s: not among the answers", name)
	}
}
