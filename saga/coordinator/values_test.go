package coordinator_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/testkit"
)

// valued is a field of an event with the type that it has in a schema, and the forms that its value may have in JSON.
type valued struct {
	schema string   // "": Avro has no type for it
	forms  []string // the first one is Avro's form too
	set    saga.Type
	to     string // an expression over event.x
	want   any
	parks  bool
}

var valueCases = []valued{
	{`"double"`, []string{"10.5"}, saga.Double, "event.x * 1.1", 11.55, false},
	{`"double"`, []string{"10", "10.0", "1e1", "10.00"}, saga.Double, "event.x * 1.1", 11.0, false},
	{`"double"`, []string{"0", "0.0", "-0.0", "0e3"}, saga.Double, "1.0 + event.x", 1.0, false},
	{`"double"`, []string{"1000000", "1e6", "1000000.0"}, saga.Double, "event.x + 0.25", 1000000.25, false},
	{`"double"`, []string{"1e21", "1000000000000000000000.0"}, saga.Double, "event.x", 1e21, false},
	{`"double"`, []string{"1e18", "1000000000000000000", "1000000000000000000.0"}, saga.Double, "event.x", 1e18, false},
	{`"double"`, []string{"1.5e-7", "0.00000015"}, saga.Double, "event.x", 1.5e-7, false},
	{`"double"`, []string{"10", "10.0"}, saga.Int, "event.x", int64(10), false},
	{`"double"`, []string{"10.5"}, saga.Int, "event.x", nil, true},
	{`"double"`, []string{"10", "10.0"}, saga.Bool, "event.x < 10.5 && event.x == 10.0", true, false},
	{`"double"`, []string{"10", "10.0"}, saga.String, "string(event.x)", "10", false},
	{`["null","double"]`, []string{"10", "10.0"}, saga.Double, "event.x / 4.0", 2.5, false},
	{`["null","double"]`, []string{"null"}, saga.Double, "event.x", nil, true},
	{`["null","double"]`, []string{"null"}, saga.Double, "event.x == null ? 1.5 : event.x", 1.5, false},
	{`"float"`, []string{"0.1"}, saga.Double, "event.x", 0.1, false},
	{`"float"`, []string{"8", "8.0"}, saga.Double, "event.x * 0.5", 4.0, false},
	{`"int"`, []string{"7"}, saga.Int, "event.x + 1", int64(8), false},
	{`"int"`, []string{"7"}, saga.Int, "event.x / 2", int64(3), false},
	{`"int"`, []string{"7"}, saga.Double, "event.x * 0.5", 3.5, false},
	{`"long"`, []string{"9223372036854775807"}, saga.Int, "event.x", int64(9223372036854775807), false},
	{`"long"`, []string{"9007199254740993"}, saga.Int, "event.x", int64(9007199254740993), false},
	{`["null","long"]`, []string{"-3"}, saga.Int, "event.x", int64(-3), false},
	{`["long","null"]`, []string{"null"}, saga.Bool, "event.x == null", true, false},
	{`["null","long","string"]`, []string{"12"}, saga.Int, "event.x", int64(12), false},
	{`["null","long","string"]`, []string{`"12"`}, saga.String, "event.x", "12", false},
	{`{"type":"long","logicalType":"timestamp-millis"}`, []string{"1700000000123"}, saga.Int, "event.x", int64(1700000000123), false},
	{`["null",{"type":"long","logicalType":"timestamp-micros"}]`, []string{"1700000000123456"}, saga.Int, "event.x", int64(1700000000123456), false},
	{`{"type":"int","logicalType":"date"}`, []string{"20000"}, saga.Int, "event.x", int64(20000), false},
	{`"long"`, []string{"9007199254740993"}, saga.Double, "event.x", nil, true},
	{`"long"`, []string{"9007199254740992"}, saga.Double, "event.x", 9007199254740992.0, false},
	{`"long"`, []string{"9007199254740993"}, saga.Bool, "event.x == 9007199254740992.0 || event.x < 9007199254740992.5", false, false},
	{`"double"`, []string{"9.223372036854775808e18", "9223372036854775808.0", "9223372036854775808"}, saga.Int, "event.x", nil, true},
	{"", []string{"9007199254740993", "9007199254740993.0", "9.007199254740993e15"}, saga.Int, "event.x", int64(9007199254740993), false},
	{"", manyDigits, saga.Any, "event.x", json.Number("12345678901234567890"), false},
	{"", manyDigits, saga.Any, "[event.x]", []any{json.Number("12345678901234567890")}, false},
	{"", manyDigits, saga.String, "string(event.x)", "12345678901234567890", false},
	{"", manyDigits, saga.Bool, "event.x > 9223372036854775807 && event.x < 1e20 && event.x == 12345678901234567890u", true, false},
	{"", manyDigits, saga.Bool, "event.x == 1.2345678901234567e19", false, false},
	{"", manyDigits, saga.Double, "event.x", nil, true},
	{"", manyDigits, saga.Int, "event.x", nil, true},
	{"", manyDigits, saga.String, "event.x", nil, true},
	{"", manyDigits, saga.Any, "event.x + 1", nil, true},
	{"", []string{"-12345678901234567890123", "-1.2345678901234567890123e22"}, saga.Any, "event.x", json.Number("-12345678901234567890123"), false},
	{"", []string{"12345678901234567.89", "12345678901234567.8900"}, saga.Any, "event.x", json.Number("12345678901234567.89"), false},
	{"", []string{"12345678901234567.89"}, saga.Double, "event.x", nil, true},
	{"", []string{"1e400"}, saga.Any, "event.x > 1.0", true, false},
	{`"string"`, []string{`"12345678901234567890"`}, saga.String, "event.x", "12345678901234567890", false},
	{`"string"`, []string{`"p-1"`}, saga.String, "event.x", "p-1", false},
	{`"string"`, []string{`"10.0"`}, saga.String, "event.x", "10.0", false},
	{`"string"`, []string{`"10"`}, saga.Int, "event.x", nil, true},
	{`["null","string"]`, []string{`"p-1"`}, saga.String, "event.x", "p-1", false},
	{`["null","string"]`, []string{"null"}, saga.String, "event.x", nil, true},
	{`["null","string"]`, []string{"null"}, saga.String, "has(event.x) && event.x != null ? event.x : 'none'", "none", false},
	{`["null","string"]`, []string{`"p"`}, saga.String, "event.x + '-1'", "p-1", false},
	{`{"type":"enum","name":"E","symbols":["A","B"]}`, []string{`"B"`}, saga.String, "event.x", "B", false},
	{`["null",{"type":"enum","name":"E","symbols":["A","B"]}]`, []string{`"B"`}, saga.String, "event.x", "B", false},
	{`"boolean"`, []string{"true"}, saga.Bool, "event.x", true, false},
	{`["null","boolean"]`, []string{"false"}, saga.Bool, "!event.x", true, false},
	{`"bytes"`, []string{`"a\u00ff"`}, saga.String, "event.x", "a\u00ff", false},
	{`{"type":"array","items":"double"}`, []string{"[1, 2.5]", "[1.0, 2.5]"}, saga.Double, "event.x[0] * 0.5 + event.x[1]", 3.0, false},
	{`{"type":"array","items":["null","string"]}`, []string{`[null, "a"]`}, saga.String, "event.x[1]", "a", false},
	{`{"type":"map","values":"double"}`, []string{`{"b": 1, "a": 2}`, `{"b": 1.0, "a": 2.0}`}, saga.Double, "event.x[event.x.map(k, k)[0]] * 0.5", 1.0, false},
	{`{"type":"map","values":["null","long"]}`, []string{`{"b": 1, "a": null}`}, saga.Int, "event.x.b", int64(1), false},
	{`{"type":"record","name":"R","fields":[{"name":"y","type":["null","double"]}]}`, []string{`{"y": 3}`, `{"y": 3.0}`}, saga.Double, "event.x.y * 1.5", 4.5, false},
	{`["null",{"type":"record","name":"n.R","fields":[{"name":"y","type":["null","n.R"]},{"name":"z","type":"double"}]}]`,
		[]string{`{"n.R": {"y": {"n.R": {"y": null, "z": 3}}, "z": 1}}`}, saga.Double, "event.x.y.z * 1.5", 4.5, false},
}

// manyDigits has forms of numbers that neither an int64 nor a float64 can hold.
var manyDigits = []string{"12345678901234567890", "12345678901234567890.0", "1.2345678901234567890e19", "1234567890123456789e1"}

// A value that comes in by Avro or by any form of JSON, through the stored state and through the log, gives the same state
// and decision.
func TestAValueHasOneFormWhicheverWayItComes(t *testing.T) {
	t.Parallel()
	server := srfake.New()
	t.Cleanup(server.Close)
	registry, err := schemas.NewRegistry(server.URL())
	require.NoError(t, err)
	codec, err := schemas.New(t.Context(), schemas.Config{Registry: registry})
	require.NoError(t, err)
	pool := testkit.Database(t)
	jsonb := func(v any) []byte { // as Postgres returns it
		text, err := json.Marshal(v)
		require.NoError(t, err)
		var stored string
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT $1::jsonb::text", string(text)).Scan(&stored))
		return []byte(stored)
	}
	for i, c := range valueCases {
		name := fmt.Sprintf("Answer%d", i)
		d, err := saga.Parse([]byte(strings.NewReplacer("EVENT", name, "TYPE", string(c.set), "EXPR", c.to).Replace(`{"saga":"v","version":1,"key":"id",
 "data":{"id":"string","typed":"TYPE","whole":"any"},
 "steps":[
  {"name":"a","command":{"hop":"a","type":"Ask"},"success":[{"event":"EVENT","set":{"typed":"EXPR","whole":"event.x"}}],"failure":[{"event":"No"}],"timeout":"10m","irreversible":"r"},
  {"name":"b","needs":["a"],"command":{"hop":"b","type":"Tell","input":{"typed":"data.typed","whole":"data.whole"}},"success":[{"event":"Told"}],"timeout":"10m","irreversible":"r"}]}`)))
		require.NoError(t, err, c.to)
		took := func(fields map[string]any, from string) saga.State {
			m, err := decisions.NewMemory(time.Unix(0, 0), d)
			require.NoError(t, err)
			id, err := m.Start("v", map[string]any{"id": "1"})
			require.NoError(t, err)
			require.NoError(t, m.Take(decisions.Message{
				ID: "m", Hop: "a", Type: name, Key: "1", Outcome: "success", SagaID: id, SagaStep: "a", SagaOperation: "forward", Fields: fields,
			}))
			log := m.Log(id)
			var s saga.State
			var fx saga.Effects
			for _, e := range log {
				s, fx = saga.Decide(d, s, e.Event, e.At)
			}
			if c.parks {
				require.Equal(t, saga.Parked, s.Status, from)
			} else {
				require.Equal(t, saga.Running, s.Status, "%s: %s", from, s.Reason)
				require.Equal(t, c.want, s.Data["typed"], from)
				require.Equal(t, c.want, fx.Commands[0].Fields["typed"], from)
			}
			stored, err := d.ReadState(jsonb(s))
			require.NoError(t, err)
			require.Equal(t, s, stored, "the stored state, %s", from)
			var again saga.State
			var followed saga.Effects
			for _, e := range log {
				event, err := saga.ReadEvent(jsonb(e.Event))
				require.NoError(t, err)
				again, followed = saga.Decide(d, again, event, e.At)
			}
			require.Equal(t, s, again, "the log's replay, %s", from)
			require.Equal(t, fx, followed, "what follows in the replay, %s", from)
			return s
		}
		if c.schema == "" {
			for _, form := range c.forms {
				fields, err := saga.ReadFields([]byte(`{"x": ` + form + `}`))
				require.NoError(t, err)
				took(fields, fmt.Sprintf("%s as JSON, %s", form, c.to))
			}
			continue
		}
		_, err = registry.Register(t.Context(), name, `{"type":"record","name":"`+name+`","fields":[{"name":"x","type":`+c.schema+`}]}`)
		require.NoError(t, err, c.schema)
		payload, err := codec.FromJSON(t.Context(), name, []byte(`{"x": `+c.forms[0]+`}`))
		require.NoError(t, err, c.schema)
		_, value, err := codec.Values(t.Context(), payload.Payload)
		require.NoError(t, err, c.schema)
		avro := took(value.(map[string]any), fmt.Sprintf("%s as Avro %s, %s", c.forms[0], c.schema, c.to))
		if strings.Contains(c.forms[0], "n.R") {
			continue // only Avro names the branches of a union
		}
		for _, form := range c.forms {
			fields, err := saga.ReadFields([]byte(`{"x": ` + form + `}`))
			require.NoError(t, err)
			plain := took(fields, fmt.Sprintf("%s as JSON, %s", form, c.to))
			require.Equal(t, avro.Status, plain.Status, form)
			require.Equal(t, avro.Data["typed"], plain.Data["typed"], form)
		}
	}
}

func TestAFieldThatIsMissingIsNotOneThatIsNull(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"v","version":1,"key":"id","data":{"id":"string","note":"string"},
 "steps":[{"name":"a","command":{"hop":"a","type":"Ask"},"success":[{"event":"Told","set":{"note":"has(event.note) && event.note != null ? event.note : ''"}}],"failure":[{"event":"No"}],"timeout":"10m","irreversible":"r"}]}`))
	require.NoError(t, err)
	for _, text := range []string{`{}`, `{"note": null}`, `{"note": ""}`} {
		m, err := decisions.NewMemory(time.Unix(0, 0), d)
		require.NoError(t, err)
		id, err := m.Start("v", map[string]any{"id": "1"})
		require.NoError(t, err)
		fields, err := saga.ReadFields([]byte(text))
		require.NoError(t, err)
		require.NoError(t, m.Take(decisions.Message{
			ID: "m", Hop: "a", Type: "Told", Key: "1", Outcome: "success", SagaID: id, SagaStep: "a", SagaOperation: "forward", Fields: fields,
		}))
		require.Equal(t, saga.Completed, m.Sagas()[0].Status, text)
		require.Equal(t, "", m.Sagas()[0].Data["note"], text)
	}
}
