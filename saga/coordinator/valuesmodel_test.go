package coordinator_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/big"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"pgregory.net/rapid"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/testkit"
)

// A modelValue is a field of an event with all forms in which it may come, and the oracle of its value.
type modelValue struct {
	schema string   // Avro's
	avro   string   // the value in Avro's JSON encoding
	json   []string // the value in the JSON of services without a schema
	is     any      // as expressions see it; of a number in JSON the type may be another one
	typed  saga.Type
}

// latin returns the JSON text of bytes in Avro's encoding.
func latin(b []byte) string {
	text := `"`
	for _, c := range b {
		text += fmt.Sprintf(`\u%04x`, c)
	}
	return text + `"`
}

// twosComplement returns n in as few bytes as hold it.
func twosComplement(n *big.Int) []byte {
	for size := 1; ; size++ {
		half := new(big.Int).Lsh(big.NewInt(1), uint(8*size-1))
		if n.Cmp(half) >= 0 || n.Cmp(new(big.Int).Neg(half)) < 0 {
			continue
		}
		m := new(big.Int).Mod(n, new(big.Int).Lsh(big.NewInt(1), uint(8*size)))
		return m.FillBytes(make([]byte, size))
	}
}

// formsOf returns notations of a number that is not whole by its digits.
func formsOf(plain string) []string {
	all := []string{plain}
	if strings.Contains(plain, ".") {
		all = append(all, plain+"0")
	}
	return append(all, plain+"e0")
}

// drawDecimal draws a decimal in bytes or fixed.
func drawDecimal(t *rapid.T, fixed bool) modelValue {
	scale := rapid.IntRange(0, 6).Draw(t, "scale")
	unscaled := rapid.OneOf(
		rapid.Int64Range(-3, 3), rapid.Int64Range(-100_000, 100_000), rapid.Int64Range(-1<<50, 1<<50), rapid.Just[int64](math.MaxInt64),
	).Draw(t, "unscaled")
	n := big.NewInt(unscaled)
	b := twosComplement(n)
	v := modelValue{schema: `{"type":"bytes","logicalType":"decimal","precision":30,"scale":` + strconv.Itoa(scale) + `}`, typed: saga.Double}
	if fixed {
		v.schema = `{"type":"fixed","size":12,"logicalType":"decimal","precision":28,"scale":` + strconv.Itoa(scale) + `}`
		m := new(big.Int).Mod(n, new(big.Int).Lsh(big.NewInt(1), 96))
		b = m.FillBytes(make([]byte, 12))
	}
	plain := new(big.Rat).SetFrac(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)).FloatString(scale)
	f, err := strconv.ParseFloat(plain, 64)
	require.NoError(t, err)
	exact := strings.TrimRight(strconv.FormatFloat(f, 'f', -1, 64), "0") == strings.TrimRight(plain, "0")
	if scale > 0 {
		exact = strconv.FormatFloat(f, 'f', scale, 64) == plain && len(strings.Trim(plain, "-0.")) <= 17
	}
	switch {
	case scale == 0:
		v.is, v.typed = unscaled, saga.Int
	case exact:
		v.is = f
	default:
		v.typed, v.is = saga.Any, json.Number(strings.TrimRight(strings.TrimRight(plain, "0"), "."))
	}
	v.avro, v.json = latin(b), formsOf(plain)
	return v
}

// drawModelValue draws one field.
func drawModelValue(t *rapid.T) modelValue {
	kind := rapid.SampledFrom([]string{
		"decimal", "fixed decimal", "bytes", "fixed", "duration", "uuid", "fixed uuid", "enum", "string", "boolean", "int", "long", "float",
		"double", "date", "time-millis", "time-micros", "timestamp-millis", "timestamp-micros", "map", "array", "record",
	}).Draw(t, "kind")
	text := func(s string) string {
		b, err := json.Marshal(s)
		require.NoError(t, err)
		return string(b)
	}
	someBytes := func(n int) []byte { return rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "bytes") }
	wholeOf := func(schema string, n int64) modelValue {
		plain := strconv.FormatInt(n, 10)
		return modelValue{schema, plain, []string{plain}, n, saga.Int}
	}
	switch kind {
	case "decimal", "fixed decimal":
		return drawDecimal(t, kind != "decimal")
	case "bytes":
		b := someBytes(rapid.IntRange(0, 5).Draw(t, "length"))
		return modelValue{`"bytes"`, latin(b), []string{latin(b)}, latinText(b), saga.String}
	case "fixed":
		b := someBytes(3)
		return modelValue{`{"type":"fixed","size":3}`, latin(b), []string{latin(b)}, latinText(b), saga.String}
	case "duration":
		b := someBytes(12)
		return modelValue{`{"type":"fixed","size":12,"logicalType":"duration"}`, latin(b), []string{latin(b)}, latinText(b), saga.String}
	case "uuid", "fixed uuid":
		b := someBytes(16)
		id := fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
		if kind == "uuid" {
			return modelValue{`{"type":"string","logicalType":"uuid"}`, text(id), []string{text(id)}, id, saga.String}
		}
		return modelValue{`{"type":"fixed","size":16,"logicalType":"uuid"}`, latin(b), []string{text(id)}, id, saga.String}
	case "enum":
		s := rapid.SampledFrom([]string{"NEW", "PAID"}).Draw(t, "symbol")
		return modelValue{`{"type":"enum","symbols":["NEW","PAID"]}`, text(s), []string{text(s)}, s, saga.String}
	case "string":
		s := rapid.SampledFrom([]string{"", "p-1", "10", "null", "é\u2028", "a\x00b", "\x00", "\uFDD00", "\uFDD0", "\uFDD01\x00", `\u0000`}).Draw(t, "text")
		return modelValue{`"string"`, text(s), []string{text(s)}, s, saga.String}
	case "boolean":
		b := rapid.Bool().Draw(t, "bool")
		return modelValue{`"boolean"`, strconv.FormatBool(b), []string{strconv.FormatBool(b)}, b, saga.Bool}
	case "time-millis", "time-micros":
		if kind == "time-millis" {
			return wholeOf(`{"type":"int","logicalType":"time-millis"}`, rapid.Int64Range(0, 86_399_999).Draw(t, "n"))
		}
		return wholeOf(`{"type":"long","logicalType":"time-micros"}`, rapid.Int64Range(0, 86_399_999_999).Draw(t, "n"))
	case "int", "date":
		n := rapid.Int64Range(math.MinInt32, math.MaxInt32).Draw(t, "n")
		if kind == "int" {
			return wholeOf(`"int"`, n)
		}
		return wholeOf(`{"type":"int","logicalType":"`+kind+`"}`, n)
	case "long", "timestamp-millis", "timestamp-micros":
		n := rapid.OneOf(rapid.Int64Range(-3, 3), rapid.Int64(), rapid.Just[int64](math.MaxInt64), rapid.Just[int64](math.MinInt64), rapid.Just[int64](1<<53+1)).Draw(t, "n")
		if kind == "long" {
			return wholeOf(`"long"`, n)
		}
		return wholeOf(`{"type":"long","logicalType":"`+kind+`"}`, n)
	case "float", "double":
		f := rapid.OneOf(rapid.SampledFrom([]float64{0, 1, -1, 10, 0.5, 10.5, 1e6, 1e18, 1e21, -2.5e-7, 0.1, 1 << 53}), rapid.Float64Range(-1e9, 1e9)).Draw(t, "f")
		schema := `"double"`
		if kind == "float" {
			f, schema = float64(float32(math.Round(f*2)/2)), `"float"`
			f = math.Min(math.Max(f, -4e6), 4e6)
		}
		plain := strconv.FormatFloat(f+0, 'f', -1, 64)
		forms := []string{plain, strconv.FormatFloat(f+0, 'e', -1, 64)}
		if !strings.Contains(plain, ".") {
			forms = append(forms, plain+".0", plain+".000")
		}
		return modelValue{schema, plain, forms, f + 0, saga.Double}
	}
	inner := drawModelValue(t)
	key := rapid.SampledFrom([]string{"a", "b", "x\x00y", "\uFDD00"}).Draw(t, "key")
	wrap := func(is any) modelValue { return modelValue{is: is, typed: saga.Any} }
	var v modelValue
	var before, after string
	switch kind {
	case "map":
		v, before, after = wrap(map[string]any{key: inner.is}), `{`+text(key)+`: `, `}`
		v.schema = `{"type":"map","values":` + inner.schema + `}`
	case "array":
		v, before, after = wrap([]any{inner.is, inner.is}), `[`, `]`
		v.schema = `{"type":"array","items":` + inner.schema + `}`
		before += inner.avro + ", "
	default:
		v, before, after = wrap(map[string]any{"y": inner.is}), `{"y": `, `}`
		v.schema = `{"type":"record","fields":[{"name":"y","type":` + inner.schema + `}]}`
	}
	v.avro = before + inner.avro + after
	for _, form := range inner.json {
		if kind == "array" {
			before = `[` + form + `, `
		}
		v.json = append(v.json, before+form+after)
	}
	return v
}

func latinText(b []byte) string {
	text := ""
	for _, c := range b {
		text += string(rune(c))
	}
	return text
}

// named gives each named type of a schema a name of its own.
func named(schema string) string {
	parts := strings.Split(schema, `"type":`)
	for i, part := range parts[1:] {
		for _, of := range []string{`"fixed"`, `"enum"`, `"record"`} {
			if strings.HasPrefix(part, of) {
				parts[i+1] = of + fmt.Sprintf(`,"name":"N%d"`, i) + part[len(of):]
			}
		}
	}
	return strings.Join(parts, `"type":`)
}

// branchName returns the name of a schema's type in a union.
func branchName(schema string) string {
	if name, err := strconv.Unquote(schema); err == nil {
		return name
	}
	var n struct{ Type, Name, LogicalType string }
	if json.Unmarshal([]byte(schema), &n) != nil {
		panic(schema)
	}
	switch {
	case n.Name != "":
		return n.Name
	case n.LogicalType != "" && n.LogicalType != "uuid":
		return n.Type + "." + n.LogicalType
	}
	return n.Type
}

// sameValue compares values; a double may be a whole number of another type, as JSON does not tell them apart.
func sameValue(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		m, is := b.(map[string]any)
		if !is || len(a) != len(m) {
			return false
		}
		for k := range a {
			if _, has := m[k]; !has || !sameValue(a[k], m[k]) {
				return false
			}
		}
		return true
	case []any:
		l, is := b.([]any)
		if !is || len(a) != len(l) {
			return false
		}
		for i := range a {
			if !sameValue(a[i], l[i]) {
				return false
			}
		}
		return true
	}
	x, y := rational(a), rational(b)
	if x != nil && y != nil {
		return x.Cmp(y) == 0
	}
	return x == nil && y == nil && a == b
}

func rational(v any) *big.Rat {
	switch v := v.(type) {
	case int64:
		return new(big.Rat).SetInt64(v)
	case float64: // the shortest notation is what its sender wrote
		r, _ := new(big.Rat).SetString(strconv.FormatFloat(v, 'g', -1, 64))
		return r
	case json.Number:
		r, _ := new(big.Rat).SetString(v.String())
		return r
	}
	return nil
}

// A valueHistory runs an answer through a saga, its log, its stored state and its next command.
type valueHistory struct {
	registry *schemas.Registry
	codec    *schemas.Codec
	pool     *pgxpool.Pool
	number   int
}

// jsonb returns what Postgres returns of JSON that it stores.
func (h *valueHistory) jsonb(t *rapid.T, v any) []byte {
	text, err := json.Marshal(v)
	require.NoError(t, err)
	var stored string
	require.NoError(t, h.pool.QueryRow(t.Context(), "SELECT $1::jsonb::text", string(text)).Scan(&stored))
	return []byte(stored)
}

func (h *valueHistory) run(t *rapid.T) {
	v := drawModelValue(t)
	v.schema = named(v.schema)
	nullable := rapid.SampledFrom([]string{"", "null first", "null last"}).Draw(t, "union")
	isNull := nullable != "" && rapid.IntRange(0, 3).Draw(t, "null") == 0
	missing := rapid.IntRange(0, 9).Draw(t, "missing") == 0
	if nullable != "" {
		v.avro = `{"` + branchName(v.schema) + `": ` + v.avro + `}`
		v.schema = map[string]string{"null first": `["null",` + v.schema + `]`, "null last": `[` + v.schema + `,"null"]`}[nullable]
	}
	if isNull {
		v.avro, v.json, v.is, v.typed = "null", []string{"null"}, nil, saga.Any
	}
	h.number++
	event, command := fmt.Sprintf("Told%d", h.number), fmt.Sprintf("Copy%d", h.number)
	d, err := saga.Parse([]byte(strings.NewReplacer("TYPE", string(v.typed), "EVENT", event, "COMMAND", command).Replace(`{"saga":"v","version":1,"key":"id",
 "data":{"id":"string","typed":"TYPE","whole":"any","seen":"string"},
 "steps":[
  {"name":"a","command":{"hop":"a","type":"Ask"},"success":[
    {"event":"EVENT","when":"has(event.x) && event.x != null","set":{"typed":"event.x","whole":"event.x","seen":"'value'"}},
    {"event":"EVENT","when":"has(event.x)","set":{"whole":"event.x","seen":"'null'"}},
    {"event":"EVENT","set":{"whole":"null","seen":"'nothing'"}}],
   "failure":[{"event":"No"}],"timeout":"10m","irreversible":"r"},
  {"name":"b","needs":["a"],"command":{"hop":"b","type":"COMMAND","input":{"x":"data.whole"}},"success":[{"event":"Copied"}],"timeout":"10m","irreversible":"r"}]}`)))
	require.NoError(t, err)
	for _, name := range []string{event, command} {
		_, err := h.registry.Register(t.Context(), name, `{"type":"record","name":"`+name+`","fields":[{"name":"x","type":`+v.schema+`}]}`)
		require.NoError(t, err, v.schema)
	}
	payload, err := h.codec.FromJSON(t.Context(), event, []byte(`{"x": `+v.avro+`}`))
	require.NoError(t, err, "%s of %s", v.avro, v.schema)
	_, read, err := h.codec.Values(t.Context(), payload.Payload)
	require.NoError(t, err, v.schema)
	fields := read.(map[string]any)
	require.NoError(t, saga.Canonical(fields))
	require.Equal(t, v.is, fields["x"], "the value of %s of %s", v.avro, v.schema)
	sent := h.follow(t, d, event, v, fields, false)
	again, err := h.codec.FromValues(t.Context(), command, sent)
	require.NoError(t, err, "%s of %s", sent, v.schema)
	require.Equal(t, payload.Payload[5:], again.Payload[5:], "a copy of %s of %s", v.avro, v.schema)

	form := rapid.SampledFrom(v.json).Draw(t, "form")
	text := `{"x": ` + form + `}`
	if missing {
		text = "{}"
	}
	fields, err = saga.ReadFields([]byte(text))
	require.NoError(t, err)
	if !missing {
		require.True(t, sameValue(v.is, fields["x"]), "%s as JSON is %#v, want %#v", form, fields["x"], v.is)
	}
	sent = h.follow(t, d, event, v, fields, missing)
	again, err = h.codec.FromValues(t.Context(), command, sent)
	switch {
	case missing && nullable == "":
		require.Error(t, err)
	case !missing:
		require.NoError(t, err, "%s of %s", sent, v.schema)
		require.Equal(t, payload.Payload[5:], again.Payload[5:], "a copy of %s, which came as JSON, of %s", form, v.schema)
	}
}

// follow gives fields to a saga in an answer, compares the decision with the oracle, and returns the fields of its next command.
func (h *valueHistory) follow(t *rapid.T, d *saga.Definition, event string, v modelValue, fields map[string]any, missing bool) (command []byte) {
	m, err := decisions.NewMemory(time.Unix(0, 0), d)
	require.NoError(t, err)
	id, err := m.Start("v", map[string]any{"id": "1"})
	require.NoError(t, err)
	require.NoError(t, m.Take(decisions.Message{
		ID: "m", Hop: "a", Type: event, Key: "1", Outcome: "success", SagaID: id, SagaStep: "a", SagaOperation: "forward", Fields: fields,
	}))
	log := m.Log(id)
	var s, replayed saga.State
	var fx, again saga.Effects
	for _, e := range log {
		s, fx = saga.Decide(d, s, e.Event, e.At)
		stored, err := saga.ReadEvent(h.jsonb(t, e.Event))
		require.NoError(t, err)
		replayed, again = saga.Decide(d, replayed, stored, e.At)
	}
	require.Equal(t, saga.Running, s.Status, s.Reason)
	seen, whole := "value", v.is
	switch {
	case missing:
		seen, whole = "nothing", nil
	case v.is == nil:
		seen = "null"
	default:
		require.True(t, sameValue(v.is, s.Data["typed"]), "set stores %#v of %#v", s.Data["typed"], v.is)
		if v.typed != saga.Any {
			require.IsType(t, v.is, s.Data["typed"], "a variable of type %s", v.typed)
		}
	}
	require.Equal(t, seen, s.Data["seen"], "the condition")
	require.True(t, sameValue(whole, s.Data["whole"]), "set stores %#v of %#v", s.Data["whole"], whole)
	require.Equal(t, s, replayed, "the replay of the log")
	require.Equal(t, fx, again, "the replay's effects")
	stored, err := d.ReadState(h.jsonb(t, s))
	require.NoError(t, err)
	require.Equal(t, s, stored, "the stored state")
	command, err = json.Marshal(fx.Commands[0].Fields)
	require.NoError(t, err)
	return command
}

// valueChecks is the number of values without TROUPE_MODEL.
const valueChecks = 200

// TestAnyValueIsTheSameInEveryPlace draws values of all types, null, missing and in all notations, and follows each by Avro and
// by JSON: through a condition, a variable, the log, the stored state, and back into a command of the same type. It draws the
// same values at each run, or others for the time TROUPE_MODEL.
func TestAnyValueIsTheSameInEveryPlace(t *testing.T) {
	server := srfake.New()
	t.Cleanup(server.Close)
	registry, err := schemas.NewRegistry(server.URL())
	require.NoError(t, err)
	codec, err := schemas.New(t.Context(), schemas.Config{Registry: registry})
	require.NoError(t, err)
	h := &valueHistory{registry: registry, codec: codec, pool: testkit.Database(t)}
	flags := map[string]string{"rapid.checks": strconv.Itoa(valueChecks), "rapid.nofailfile": "true"}
	length := time.Duration(0)
	if text := os.Getenv("TROUPE_MODEL"); text != "" {
		length, err = time.ParseDuration(text)
		require.NoError(t, err)
	} else if flag.Lookup("rapid.seed").Value.String() == "0" {
		flags["rapid.seed"] = "1"
	}
	for name, value := range flags {
		was := flag.Lookup(name).Value.String()
		require.NoError(t, flag.Set(name, value))
		t.Cleanup(func() { require.NoError(t, flag.Set(name, was)) })
	}
	for end := time.Now().Add(length); ; {
		rapid.Check(t, h.run)
		if t.Failed() || !time.Now().Before(end) {
			return
		}
	}
}
