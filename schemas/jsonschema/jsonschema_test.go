package jsonschema_test

import (
	"encoding/binary"
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/schemas/jsonschema"
)

type charged struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
	Note  string `json:"note,omitempty"`
}

const chargedSchema = `{"title":"shop.Charged","type":"object","required":["id","cents"],
	"properties":{"id":{"type":"string","minLength":1},"cents":{"type":"integer","minimum":1}}}`

func newCodec(t *testing.T, server *srfake.Registry, types ...jsonschema.Type) *schemas.Codec {
	t.Helper()
	r, err := schemas.NewRegistry(server.URL())
	require.NoError(t, err)
	c, err := schemas.New(t.Context(), schemas.Config{Registry: r, Formats: []schemas.Format{jsonschema.New(types...)}})
	require.NoError(t, err)
	return c
}

func newServer(t *testing.T) *srfake.Registry {
	server := srfake.New()
	t.Cleanup(server.Close)
	return server
}

func TestAValueComesBack(t *testing.T) {
	server := newServer(t)
	codec, tool := newCodec(t, server, jsonschema.Bind[charged](chargedSchema)), newCodec(t, server)
	sent := charged{ID: "c-1", Cents: 9_007_199_254_740_993}
	e, err := codec.Encode("t", sent)
	require.NoError(t, err)
	require.Equal(t, []string{"shop.Charged", envelope.JSONSchema}, []string{e.Type, e.ContentType})
	for _, contentType := range []string{e.ContentType, "", envelope.JSON} { // other programs set the last one, or none
		var back charged
		require.NoError(t, codec.Decode(envelope.Message{ContentType: contentType, Payload: e.Payload}, &back))
		require.Equal(t, sent, back)
	}
	name, text, err := tool.ToJSON(t.Context(), e.Payload)
	require.NoError(t, err)
	require.Equal(t, "shop.Charged", name)
	again, err := tool.FromJSONLike(t.Context(), e.Payload, text)
	require.NoError(t, err)
	require.Equal(t, e.Payload, again)
	_, value, err := tool.Values(t.Context(), e.Payload)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"id": "c-1", "cents": json.Number("9007199254740993")}, value)
	text, err = json.Marshal(value)
	require.NoError(t, err)
	encoded, err := tool.FromValues(t.Context(), "shop.Charged", text)
	require.NoError(t, err)
	_, back, err := tool.Values(t.Context(), encoded.Payload)
	require.NoError(t, err)
	require.Equal(t, value, back)
}

func TestAValueThatDoesNotFitIsNamedByItsPathOnly(t *testing.T) {
	server := newServer(t)
	codec := newCodec(t, server, jsonschema.Bind[charged](chargedSchema))
	_, err := codec.Encode("t", charged{ID: "secret-id"})
	require.ErrorContains(t, err, "cents does not fit the schema's minimum")
	_, err = codec.FromJSON(t.Context(), "shop.Charged", []byte(`{"id":"","cents":"4111-1111"}`))
	require.ErrorIs(t, err, envelope.ErrPayload)
	require.ErrorContains(t, err, "cents does not fit the schema's type")
	require.ErrorContains(t, err, "id does not fit the schema's minLength")
	require.NotContains(t, err.Error(), "4111")

	e, err := codec.Encode("t", charged{ID: "c", Cents: 1})
	require.NoError(t, err)
	for _, body := range []string{`{"id":"c"}`, `{`, ``, `{"id":"c","cents":1} x`, `{"id":"c","cents":1e999}`, strings.Repeat("[", 300) + strings.Repeat("]", 300)} {
		payload := append(append([]byte{}, e.Payload[:5]...), body...)
		require.ErrorIs(t, codec.Decode(envelope.Message{Payload: payload}, &charged{}), envelope.ErrPayload, body)
		_, _, err = codec.Values(t.Context(), payload)
		require.ErrorIs(t, err, envelope.ErrPayload, body)
	}
}

func TestAnOlderReaderIgnoresFieldsOfANewerVersion(t *testing.T) {
	server := newServer(t)
	old := newCodec(t, server, jsonschema.Bind[charged](chargedSchema))
	type newer struct {
		charged
		Currency string `json:"currency"`
	}
	next := newCodec(t, server, jsonschema.Bind[newer](strings.Replace(chargedSchema, `"properties":{`, `"properties":{"currency":{"type":"string"},`, 1)))
	e, err := next.Encode("t", newer{charged{ID: "c", Cents: 2}, "EUR"})
	require.NoError(t, err)
	var got charged
	require.NoError(t, old.Decode(envelope.Message{Payload: e.Payload}, &got))
	require.Equal(t, charged{ID: "c", Cents: 2}, got)
}

func TestReferencesAreReadFromTheRegistryOnly(t *testing.T) {
	server := newServer(t)
	client, err := sr.NewClient(sr.URLs(server.URL()))
	require.NoError(t, err)
	_, err = client.CreateSchema(t.Context(), "money", sr.Schema{Type: sr.TypeJSON, Schema: `{"type":"integer","minimum":1}`})
	require.NoError(t, err)
	tool := newCodec(t, server)
	for ref, want := range map[string]string{"money.json": "", "file:///etc/passwd": "no such reference", "http://127.0.0.1:1/x": "no such reference"} {
		with, err := client.CreateSchema(t.Context(), "of "+ref, sr.Schema{
			Type: sr.TypeJSON, Schema: `{"title":"T","properties":{"m":{"$ref":"` + ref + `"}}}`,
			References: []sr.SchemaReference{{Name: "money.json", Subject: "money", Version: 1}},
		})
		require.NoError(t, err)
		payload := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(with.ID)), `{"m":0}`...)
		_, _, err = tool.Values(t.Context(), payload)
		require.ErrorIs(t, err, envelope.ErrPayload)
		if want == "" {
			want = "m does not fit the schema's minimum"
		}
		require.ErrorContains(t, err, want)
	}
}

// Alternatives within alternatives multiply: 2 to the 40th here.
func TestAlternativesHaveALimit(t *testing.T) {
	server := newServer(t)
	client, err := sr.NewClient(sr.URLs(server.URL()))
	require.NoError(t, err)
	defs := []string{`"d40":{"type":"string"}`}
	for i := range 40 {
		next := `{"$ref":"#/$defs/d` + itoa(i+1) + `"}`
		defs = append(defs, `"d`+itoa(i)+`":{"anyOf":[`+next+`,`+next+`]}`)
	}
	made, err := client.CreateSchema(t.Context(), "deep", sr.Schema{
		Type: sr.TypeJSON, Schema: `{"title":"T","$ref":"#/$defs/d0","$defs":{` + strings.Join(defs, ",") + `}}`,
	})
	require.NoError(t, err)
	_, _, err = newCodec(t, server).Values(t.Context(), append(binary.BigEndian.AppendUint32([]byte{0}, uint32(made.ID)), '1'))
	require.ErrorIs(t, err, envelope.ErrPayload)
	require.ErrorContains(t, err, "parts of the schema apply")
}

func TestNewRefusesASchemaThatIsNone(t *testing.T) {
	server := newServer(t)
	r, err := schemas.NewRegistry(server.URL())
	require.NoError(t, err)
	for text, want := range map[string]string{
		`{"type":"object"}`: "has no title", `{"title":"T","type":7}`: "no JSON Schema", `{`: "no JSON Schema", `{"title":"T","$ref":"x.json"}`: "no such reference",
	} {
		_, err := schemas.New(t.Context(), schemas.Config{Registry: r, Formats: []schemas.Format{jsonschema.New(jsonschema.Bind[charged](text))}})
		require.ErrorContains(t, err, want)
	}
}

func itoa(i int) string {
	text, _ := json.Marshal(i)
	return string(text)
}

// A compressed payload of some kilobytes may have many megabytes of empty values.
func TestAPayloadHasALimitOfValues(t *testing.T) {
	server := newServer(t)
	client, err := sr.NewClient(sr.URLs(server.URL()))
	require.NoError(t, err)
	made, err := client.CreateSchema(t.Context(), "any", sr.Schema{Type: sr.TypeJSON, Schema: `{"title":"T"}`})
	require.NoError(t, err)
	payload := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(made.ID)), "["+strings.Repeat("{},", 1<<20)+"{}]"...)
	_, _, err = newCodec(t, server).Values(t.Context(), payload)
	require.ErrorIs(t, err, envelope.ErrPayload)
	require.ErrorContains(t, err, "more than 1048576 values")
}

// valuesOf returns the error of a payload with a schema.
func valuesOf(t *testing.T, schema, text string) error {
	t.Helper()
	server := newServer(t)
	client, err := sr.NewClient(sr.URLs(server.URL()))
	require.NoError(t, err)
	made, err := client.CreateSchema(t.Context(), "any", sr.Schema{Type: sr.TypeJSON, Schema: schema})
	require.NoError(t, err)
	_, _, err = newCodec(t, server).Values(t.Context(), append(binary.BigEndian.AppendUint32([]byte{0}, uint32(made.ID)), text...))
	return err
}

// Some kilobytes, when they are compressed, became gigabytes of errors: one for each item or name, with its path.
func TestManyMistakesTakeLittleMemory(t *testing.T) {
	deep := `{"$id":"https://x.example/n","title":"T","type":"object","properties":{"c":{"$ref":"#"},"l":{"type":"array","items":{"type":"string"}},
		"m":{"additionalProperties":{"type":"string"}}, "k":{"propertyNames":{"pattern":"^x"}}}}`
	within := func(levels int, text string) string {
		return strings.Repeat(`{"c":`, levels) + text + strings.Repeat("}", levels)
	}
	var members []string
	for i := range 60_000 {
		members = append(members, `"`+itoa(i)+`":1`)
	}
	for name, text := range map[string]string{
		"items":   `{"l":[` + strings.Repeat("0,", 200_000) + `0]}`,
		"members": `{"m":{` + strings.Join(members, ",") + `}}`,
		"names":   `{"k":{` + strings.Join(members, ",") + `}}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := valuesOf(t, deep, within(190, text))
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, envelope.ErrPayload, name)
		require.ErrorContains(t, err, "does not fit the schema", name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(200<<20), name)
	}
	err := valuesOf(t, deep, within(3, `{"l":[`+strings.Repeat("0,", 1000)+`0]}`))
	require.ErrorContains(t, err, "c.c.c.l.0 does not fit the schema's type")
}

// TestASchemaThatOnlyADynamicReferenceFindsHasTheLimits: no schema refers to the one of the items, which the list finds by its dynamic anchor.
func TestASchemaThatOnlyADynamicReferenceFindsHasTheLimits(t *testing.T) {
	const list = `{"$id":"https://x.example/list","items":{"$dynamicRef":"#T"},"$defs":{"T":{"$dynamicAnchor":"T"}}}`
	schema := `{"$id":"https://x.example/n","title":"T","type":"object","properties":{"c":{"$ref":"#"},"l":{"$ref":"list"}},
		"$defs":{"of a/b":{"$dynamicAnchor":"T","items":{"type":"string"}},"list":` + list + `}}`
	require.NoError(t, valuesOf(t, schema, `{"l":[["a"]]}`))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := valuesOf(t, schema, `{"l":[[`+strings.Repeat("0,", 500_000)+`0]]}`)
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "does not fit the schema")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<20))
}

// Equal items are found by a hash that a producer cannot predict or repeat: 60,000 lists of texts had one hash, and were compared with each other for minutes.
func TestUniqueItemsOfOneHashAreNotCompared(t *testing.T) {
	const bits = 16
	var items []string
	for n := range 1 << bits {
		item := `"`
		for bit := range bits {
			if item += "x"; n&(1<<bit) == 0 {
				item += "\\u0004" // the byte by which the library separates texts
			} else {
				item += `","`
			}
		}
		items = append(items, "["+item+`"]`)
	}
	const unique = `{"title":"T","uniqueItems":true}`
	began := time.Now()
	require.NoError(t, valuesOf(t, unique, "["+strings.Join(items, ",")+"]"))
	require.Less(t, time.Since(began), 20*time.Second)
	for text, fits := range map[string]bool{
		`[1, 2, "1", [1], {"a": 1}, {"b": 1}, true, null, -1, 0.1]`: true, `[[["a"], "b"], [["a", "b"]]]`: true, `[1, 1.0]`: false,
		`[{"a": 1, "b": [1e2]}, {"b": [100], "a": 1}]`: false, `[null, null]`: false, `[0, -0]`: false,
	} {
		if err := valuesOf(t, unique, text); fits {
			require.NoError(t, err, text)
		} else {
			require.ErrorContains(t, err, "uniqueItems", text)
		}
	}
}

// The keywords that the package checks itself hold at each place of a schema, in each version of JSON Schema.
func TestItemsAndNamesAreCheckedInEachVersion(t *testing.T) {
	for _, c := range []struct{ schema, good, bad string }{
		{`{"$schema":"http://json-schema.org/draft-04/schema#","items":{"type":"string"}}`, `["a"]`, `[1]`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"string"}],"additionalItems":{"type":"null"}}`, `["a",null]`, `["a","b"]`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"string"}],"additionalItems":false}`, `["a"]`, `["a",1]`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"string"}]}`, `["a",2]`, `[1]`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","propertyNames":{"maxLength":1}}`, `{"a":1}`, `{"ab":1}`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"a":{"items":{"type":"null"}}},"dependencies":{"x":{"properties":{"y":{"$ref":"#/definitions/a"}}}}}`, `{"x":1,"y":[null]}`, `{"x":1,"y":[1]}`},
		{`{"$schema":"https://json-schema.org/draft/2019-09/schema","items":{"type":"string"},"unevaluatedItems":false}`, `["a"]`, `[1]`},
		{`{"prefixItems":[{"type":"string"}],"items":{"type":"null"}}`, `["a",null]`, `["a",1]`},
		{`{"prefixItems":[{"type":"string"}],"items":false}`, `["a"]`, `["a",1]`},
		{`{"allOf":[{"prefixItems":[{"type":"string"}]}],"unevaluatedItems":false}`, `["a"]`, `["a",1]`},
		{`{"allOf":[{"items":{"type":"string"}}],"unevaluatedItems":false}`, `["a","b"]`, `["a",1]`},
		{`{"anyOf":[{"items":{"type":"string"}},{"items":{"type":"null"}}]}`, `[null,null]`, `["a",null]`},
		{`{"not":{"items":{"type":"string"}}}`, `[1]`, `["a"]`},
		{`{"if":{"items":{"type":"string"}},"then":{"uniqueItems":true}}`, `[1,1]`, `["a","a"]`},
		{`{"properties":{"uniqueItems":{"const":true}},"patternProperties":{"^x":{"uniqueItems":true}}}`, `{"uniqueItems":true,"x":[1]}`, `{"x":[1,1]}`},
		{`{"contains":{"items":{"type":"string"}}}`, `[1,["a"]]`, `[[1]]`},
		{`{"propertyNames":{"enum":["a"]},"unevaluatedProperties":false,"properties":{"a":{}}}`, `{"a":1}`, `{"b":1}`},
		{`{"$dynamicAnchor":"n","properties":{"c":{"type":"array","items":{"$dynamicRef":"#n"}}}, "required":["c"]}`, `{"c":[{"c":[]}]}`, `{"c":[{}]}`},
	} {
		schema := `{"title":"T",` + strings.TrimPrefix(c.schema, "{")
		require.NoError(t, valuesOf(t, schema, c.good), schema)
		require.ErrorContains(t, valuesOf(t, schema, c.bad), "does not fit the schema's", schema)
	}
}

// TestAlternativesThatFailAtOnceHaveALimit: a megabyte of the last value of 250 took half a minute.
func TestAlternativesThatFailAtOnceHaveALimit(t *testing.T) {
	var alternatives []string
	for n := range 250 {
		alternatives = append(alternatives, `{"const":"`+itoa(n)+`"}`, `{"$ref":"#/$defs/`+itoa(n%2)+`"}`)
	}
	for _, draft := range []string{"http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"} {
		schema := `{"$schema":"` + draft + `","title":"T","properties":{"codes":{"type":"array","items":{"anyOf":[` + strings.Join(alternatives, ",") + `]}}},
			"$defs":{"0":{"$ref":"#/$defs/1"},"1":{"type":"object"}}}`
		payload := func(count int) string { return `{"codes":[` + strings.Repeat(`"249",`, count) + `"249"]}` }
		require.NoError(t, valuesOf(t, schema, payload(1000)))
		require.ErrorContains(t, valuesOf(t, schema, payload(20_000)), "too many parts of the schema")
	}
}

// TestAnEnumOfNumbersIsNotComparedOneByOne: a megabyte of the last number of 250 took two minutes.
func TestAnEnumOfNumbersIsNotComparedOneByOne(t *testing.T) { // not parallel: it measures the memory of the process
	var codes []string
	for n := range 250 {
		codes = append(codes, itoa(n))
	}
	schema := `{"title":"T","properties":{"codes":{"items":{"enum":[` + strings.Join(codes, ",") + `]}}}}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.NoError(t, valuesOf(t, schema, `{"codes":[`+strings.Repeat("249,", 20_000)+`249]}`))
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<20))
}

func TestTheValuesOfAnEnum(t *testing.T) {
	const schema = `{"title":"T","properties":{"s":{"enum":[1,"1",null,true,2.50]},"c":{"enum":[1,[1],{"a":1}]}}}`
	for value, fits := range map[string]bool{
		`{"s":1}`: true, `{"s":1.0}`: true, `{"s":10e-1}`: true, `{"s":"1"}`: true, `{"s":null}`: true, `{"s":true}`: true, `{"s":2.5}`: true,
		`{"s":2}`: false, `{"s":"2"}`: false, `{"s":false}`: false, `{"s":[1]}`: false, `{"s":{}}`: false, `{"s":"null"}`: false, `{"s":"true"}`: false,
		`{"c":1.0}`: true, `{"c":[1]}`: true, `{"c":{"a":1}}`: true, `{"c":{"a":2}}`: false, `{"c":"1"}`: false,
	} {
		err := valuesOf(t, schema, value)
		if fits {
			require.NoError(t, err, value)
		} else {
			require.ErrorContains(t, err, "enum", value)
		}
	}
}

// TestALongTextIsNotCopiedForEachEnum: two megabytes with 200 enums took a gigabyte.
func TestALongTextIsNotCopiedForEachEnum(t *testing.T) { // not parallel: it measures the memory of the process
	var alternatives []string
	for n := range 200 {
		alternatives = append(alternatives, `{"enum":["`+itoa(n)+`"]}`)
	}
	schema := `{"$schema":"http://json-schema.org/draft-06/schema#","title":"T","properties":{"code":{"anyOf":[` + // the library itself copies in others
		strings.Join(alternatives, ",") + `,{"type":"string"}]}}}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.NoError(t, valuesOf(t, schema, `{"code":"`+strings.Repeat("x", 2<<20)+`"}`))
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(128<<20))
}

// A regular expression with many states is not applied to megabytes for minutes.
func TestRegularExpressionsOfLongTextsHaveALimit(t *testing.T) {
	const schema = `{"title":"T","properties":{"mail":{"pattern":"([a-z]{1,255}@){1,3}x"}}}`
	require.NoError(t, valuesOf(t, schema, `{"mail":"`+strings.Repeat("a", 10_000)+`@x"}`))
	err := valuesOf(t, schema, `{"mail":"`+strings.Repeat("a", 4<<20)+`"}`)
	require.ErrorIs(t, err, envelope.ErrPayload)
	require.ErrorContains(t, err, "too long for the schema's regular expressions")
}

// A few characters, such as (x{100}){100}, are thousands of steps, and hundreds of kilobytes in memory.
func TestTheRegularExpressionsOfASchemaHaveALimit(t *testing.T) {
	server := newServer(t)
	client, err := sr.NewClient(sr.URLs(server.URL()))
	require.NoError(t, err)
	for i, c := range []struct {
		repeat string
		count  int
		fits   bool
	}{{"{20}", 20, true}, {`[\\p{L}\\p{N} ]{1,200}`, 10, true}, {"{1000}", 200, false}, {strings.Repeat("x", 100) + "){999}", 2, false}} {
		var fields []string
		for n := range c.count {
			pattern := strings.Repeat("(", strings.Count(c.repeat, ")")) + "x" + c.repeat + itoa(n)
			fields = append(fields, `"f`+itoa(n)+`":{"pattern":"`+pattern+`"},"g`+itoa(n)+`":{"patternProperties":{"`+pattern+`":{}}}`)
		}
		made, err := client.CreateSchema(t.Context(), "s"+itoa(i), sr.Schema{
			Type: sr.TypeJSON, Schema: `{"$schema":"http://json-schema.org/draft-07/schema#","title":"T","properties":{` + strings.Join(fields, ",") + `}}`,
		})
		require.NoError(t, err)
		_, _, err = newCodec(t, server).Values(t.Context(), append(binary.BigEndian.AppendUint32([]byte{0}, uint32(made.ID)), "{}"...))
		if c.fits {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, envelope.ErrPayload, c.repeat)
			require.ErrorContains(t, err, "regular expression", c.repeat)
		}
	}
}
