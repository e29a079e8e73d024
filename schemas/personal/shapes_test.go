package personal_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/schemas/jsonschema"
	"github.com/troupe-go/troupe/schemas/personal"
)

// shape is a message with one field of any Go type.
type shape[A any] struct {
	ID string `avro:"id" json:"id"`
	A  A      `avro:"a" json:"a"`
}

type (
	namedText     string
	shaper[A any] struct {
		Street A `avro:"street" json:"street"`
	}
	embeds struct{ street }
	wraps  struct {
		Street street `avro:"street" json:"street"`
	}
)

const streetAvro = `{"type": "record", "name": "Street%d", "fields": [{"name": "street", "type": %s, "personal": "street"}]}`

// avroShapes and jsonShapes are schemas of the field, all with personal data.
func avroShapes(n int) []string {
	plain := fmt.Sprintf(streetAvro, n, `"string"`)
	optional := fmt.Sprintf(streetAvro, n, `["null", "string"]`)
	asBytes := fmt.Sprintf(streetAvro, n, `"bytes"`)
	deeper := fmt.Sprintf(`{"type": "record", "name": "Outer%d", "fields": [{"name": "street", "type": %s}]}`, n, plain)
	all := []string{`"string", "personal": "street"`, `["null", "string"], "personal": "street"`, `["string", "null"], "personal": "street"`,
		`"bytes", "personal": "street"`, `["null", "bytes"], "personal": "street"`}
	all = append(all, optional, `{"type": "array", "items": `+optional+`}`, asBytes, `{"type": "array", "items": `+asBytes+`}`)
	for _, r := range []string{plain, deeper} {
		all = append(all, r, `["null", `+r+`]`, `{"type": "array", "items": `+r+`}`, `{"type": "array", "items": ["null", `+r+`]}`,
			`["null", {"type": "array", "items": `+r+`}]`, `{"type": "map", "values": `+r+`}`, `["null", "int", `+r+`]`,
			`{"type": "array", "items": {"type": "array", "items": `+r+`}}`)
	}
	return all
}

func jsonShapes() []string {
	const text, null = `{"type": "string", "personal": "street"}`, `{"type": ["string", "null"], "personal": "street"}`
	all := []string{text, null}
	for _, r := range []string{
		`{"type": "object", "properties": {"street": ` + null + `}}`, `{"$ref": "#/$defs/s"}`,
	} {
		all = append(all, r, `{"items": `+r+`}`, `{"type": "array", "items": `+r+`}`, `{"type": ["array", "null"], "items": `+r+`}`,
			`{"additionalProperties": `+r+`}`, `{"anyOf": [{"type": "null"}, `+r+`]}`, `{"prefixItems": [`+r+`]}`, `{"items": {"items": `+r+`}}`,
			`{"properties": {"street": `+r+`}}`)
	}
	return all
}

// tried counts the combinations of a Go type and a schema: n in all, and how many of them personal.New refuses. works counts the encrypted values.
type tried struct {
	*stage
	n, works, refused int
}

// try encodes a value with each schema. Either personal.New refuses the schema with this Go type, or nothing of the value is in the payload or
// in an error, and it is decoded as it was.
func try[A any](s *tried, values ...A) {
	s.Helper()
	var cfgs []schemas.Config
	for i := range avroShapes(0) {
		s.n++
		cfgs = append(cfgs, schemas.Config{Types: []schemas.Type{schemas.Bind[shape[A]](fmt.Sprintf(`{"type": "record", "name": "Shape%d", "namespace": "shapes", "fields": [
			{"name": "id", "type": "string", "personal": "subject"}, {"name": "a", "type": %s}]}`, s.n, avroShapes(s.n)[i]))}})
	}
	for _, of := range jsonShapes() {
		s.n++
		cfgs = append(cfgs, schemas.Config{Formats: []schemas.Format{jsonschema.New(jsonschema.Bind[shape[A]](fmt.Sprintf(`{"title": "shapes.JSON%d", "type": "object",
			"properties": {"id": {"type": "string", "personal": "subject"}, "a": %s},
			"$defs": {"s": {"type": "object", "properties": {"street": {"type": "string", "personal": "street"}}}}}`, s.n, of)))}})
	}
	r, err := schemas.NewRegistry(s.registry.URL())
	require.NoError(s, err)
	for _, cfg := range cfgs {
		cfg.Registry = r
		plain, err := schemas.New(s.Context(), cfg)
		if err != nil {
			continue // the Go type does not fit the schema at all
		}
		codec, err := personal.New(personal.Config{Codec: plain, Keys: s.table})
		if err != nil {
			s.refused++
			continue
		}
		for _, v := range values {
			body := shape[A]{"c-1", v}
			clear, clearErr := plain.Encode("t", body)
			before := fmt.Sprintf("%#v", body)
			e, err := codec.Encode("t", body)
			require.Equal(s, before, fmt.Sprintf("%#v", body))
			if clearErr != nil || err != nil {
				require.NotContains(s, fmt.Sprint(err), "secret")
				require.Error(s, clearErr, "the value without the codec, of %T: %v", body, err)
				continue
			}
			require.Contains(s, string(clear.Payload), "secret")
			require.NotContains(s, string(e.Payload), "secret", "%T as %s", body, plain.Bound()[0].Text)
			require.Equal(s, strings.Count(string(clear.Payload), "secret"), strings.Count(string(e.Payload), personal.Prefix), "%s", e.Payload)
			var want, got shape[A]
			m := s.encode(codec, body)
			inTheClear := m
			inTheClear.Payload = clear.Payload
			require.NoError(s, plain.Decode(inTheClear, &want))
			require.NoError(s, codec.Decode(m, &got))
			wantText, err := json.Marshal(want)
			require.NoError(s, err)
			gotText, err := json.Marshal(got)
			require.NoError(s, err)
			require.Equal(s, string(wantText), string(gotText), "%T as %s", body, plain.Bound()[0].Text)
			s.works++
		}
	}
}

// TestNoShapeOfAMessageIsSentInTheClear tries Go types with schemas, also ones that do not fit.
func TestNoShapeOfAMessageIsSentInTheClear(t *testing.T) {
	t.Parallel()
	s := &tried{stage: newStage(t)}
	text, at := "secret", street{"secret"}
	named := namedText(text)
	pointer, bytes, list := &text, []byte("secret"), []street{at, {"secret 2"}}
	try(s, text)
	try(s, pointer)
	try(s, &pointer)
	try(s, namedText("secret"))
	try(s, bytes)
	try(s, &bytes)
	try(s, [6]byte([]byte("secret")))
	try(s, json.RawMessage(`{"street":"secret"}`), json.RawMessage(`"secret"`))
	try[any](s, text, at, &at, list, map[string]any{"street": "secret"}, []any{map[string]any{"street": "secret"}})
	try(s, at)
	try(s, &at)
	pat := &at
	try(s, &pat)
	try(s, list)
	try(s, &list)
	try(s, [2]street{at, at})
	try(s, []*street{&at, &at})
	try(s, [][]street{list})
	try(s, [][]*street{{&at}})
	try(s, []any{at, map[string]any{"street": "secret"}})
	try(s, map[string]street{"k": at})
	try(s, map[string]string{"street": "secret"})
	try(s, map[string]any{"street": "secret"})
	try(s, embeds{at})
	try(s, &embeds{at})
	try(s, []embeds{{at}})
	try(s, wraps{at})
	try(s, []wraps{{at}})
	try(s, shaper[*string]{pointer})
	try(s, shaper[[]byte]{bytes})
	try(s, shaper[*[]byte]{&bytes})
	try(s, shaper[any]{"secret"})
	try(s, shaper[namedText]{"secret"})
	try(s, []shaper[*namedText]{{&named}})
	try(s, shaper[*street]{&at})
	try(s, shaper[[]street]{list})
	try(s, shaper[map[string]street]{map[string]street{"k": at}})
	try(s, struct {
		*street
	}{&at})
	t.Logf("%d combinations of a Go type and a schema: %d values are encrypted, %d combinations are refused", s.n, s.works, s.refused)
	require.Greater(t, s.works, 50)
}
