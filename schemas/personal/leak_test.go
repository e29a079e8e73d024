package personal_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/schemas/jsonschema"
	"github.com/troupe-go/troupe/schemas/personal"
)

// codecOf makes a codec of a schema registry's codec with given types.
func (s *stage) codecOf(cfg schemas.Config) (*personal.Codec, error) {
	s.Helper()
	r, err := schemas.NewRegistry(s.registry.URL())
	require.NoError(s, err)
	cfg.Registry = r
	inner, err := schemas.New(s.Context(), cfg)
	require.NoError(s, err)
	return personal.New(personal.Config{Codec: inner, Keys: s.table})
}

// encrypts requires that no secret is in a body's payload, that the reader gets it, and that the encrypted fields have a number.
func encrypts[T any](s *stage, cfg schemas.Config, body T, fields int) {
	s.Helper()
	codec, err := s.codecOf(cfg)
	require.NoError(s, err)
	m := s.encode(codec, body)
	require.NotContains(s, string(m.Payload), "secret")
	require.Equal(s, fields, strings.Count(string(m.Payload), personal.Prefix))
	var got T
	require.NoError(s, codec.Decode(m, &got))
	require.Equal(s, fmt.Sprintf("%+v", body), fmt.Sprintf("%+v", got))
}

const avroAddress = `{"type": "record", "name": "Address", "fields": [{"name": "street", "type": "string", "personal": "street"}]}`

func avroOf[T any](name, fields string) schemas.Config {
	return schemas.Config{Types: []schemas.Type{schemas.Bind[T](`{"type": "record", "name": "` + name + `", "namespace": "leak", "fields": [
		{"name": "id", "type": "string", "personal": "subject"}, ` + fields + `]}`)}}
}

func jsonOf[T any](name, properties string) schemas.Config {
	return schemas.Config{Formats: []schemas.Format{jsonschema.New(jsonschema.Bind[T](`{"title": "` + name + `", "type": "object", "properties": {
		"id": {"type": "string", "personal": "subject"}, ` + properties + `}, "$defs": {
		"default": {"type": "object", "properties": {"street": {"type": "string", "personal": "street"}}},
		"address": {"type": "object", "properties": {"street": {"type": "string", "personal": "street"}}}}}`))}}
}

type street struct {
	Street string `avro:"street" json:"street"`
}

// TestADefinitionThatIsUsedTwiceIsEncryptedAtBothPlaces, or refused if it is at a place where fields cannot be encrypted.
func TestADefinitionThatIsUsedTwiceIsEncryptedAtBothPlaces(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	type two struct {
		ID   string   `avro:"id" json:"id"`
		Home street   `avro:"home" json:"home"`
		Work street   `avro:"work" json:"work"`
		More []street `avro:"more" json:"more"`
	}
	body := two{"c-1", street{"secret 1"}, street{"secret 2"}, []street{{"secret 3"}}}
	encrypts(s, avroOf[two]("Two", `{"name": "home", "type": `+avroAddress+`}, {"name": "work", "type": "Address"},
		{"name": "more", "type": {"type": "array", "items": "leak.Address"}}`), body, 3)
	ref := `{"$ref": "#/$defs/address"}`
	encrypts(s, jsonOf[two]("Two", `"home": `+ref+`, "work": `+ref+`, "more": {"type": "array", "items": `+ref+`}`), body, 3)
	encrypts(s, jsonOf[two]("Default", `"home": {"$ref": "#/$defs/default"}, "work": `+ref+`, "more": {"items": `+ref+`}`), body, 3)

	refused := func(want string, cfg schemas.Config) {
		t.Helper()
		_, err := s.codecOf(cfg)
		require.ErrorContains(t, err, want)
	}
	type mapped struct {
		ID   string            `avro:"id" json:"id"`
		Home street            `avro:"home" json:"home"`
		X    map[string]street `avro:"x" json:"x"`
	}
	type either struct {
		ID   string `avro:"id" json:"id"`
		Home street `avro:"home" json:"home"`
		X    any    `avro:"x" json:"x"`
	}
	type lists struct {
		ID   string     `avro:"id" json:"id"`
		Home street     `avro:"home" json:"home"`
		X    [][]street `avro:"x" json:"x"`
	}
	const place = "field street of x: only fields of records"
	home := `{"name": "home", "type": ` + avroAddress + `}, `
	refused(place, avroOf[mapped]("M1", home+`{"name": "x", "type": {"type": "map", "values": "Address"}}`))
	refused(place, avroOf[mapped]("M2", home+`{"name": "x", "type": {"type": "map", "values": {"type": "record", "name": "R", "fields": [{"name": "a", "type": "Address"}]}}}`))
	refused(place, avroOf[either]("U1", home+`{"name": "x", "type": ["null", "string", "Address"]}`))
	refused(place, avroOf[lists]("L1", home+`{"name": "x", "type": {"type": "array", "items": {"type": "array", "items": "Address"}}}`))
	type tree struct {
		Home     street  `avro:"home" json:"home"`
		Children []*tree `avro:"children" json:"children"`
	}
	type rooted struct {
		ID   string `avro:"id" json:"id"`
		Home street `avro:"home" json:"home"`
		X    tree   `avro:"x" json:"x"`
	}
	refused("x.children: a record that contains itself", avroOf[rooted]("T1", home+`{"name": "x", "type": {"type": "record", "name": "Tree", "fields": [
		{"name": "home", "type": "Address"}, {"name": "children", "type": {"type": "array", "items": "Tree"}}]}}`))

	jsonHome := `"home": ` + ref + `, `
	const only = "properties/street: only properties of objects"
	refused(only, jsonOf[mapped]("M1", jsonHome+`"x": {"type": "object", "additionalProperties": `+ref+`}`))
	refused(only, jsonOf[mapped]("M2", jsonHome+`"x": {"type": "object", "patternProperties": {"default": `+ref+`}}`))
	refused(only, jsonOf[either]("A1", jsonHome+`"x": {"anyOf": [{"type": "null"}, `+ref+`]}`))
	refused(only, jsonOf[either]("A2", jsonHome+`"x": {"oneOf": [{"type": "null"}, `+ref+`]}`))
	refused(only, jsonOf[either]("A3", jsonHome+`"x": {"allOf": [`+ref+`]}`))
	refused(only, jsonOf[either]("A4", jsonHome+`"x": {"if": {"type": "object"}, "then": `+ref+`}`))
	refused(only, jsonOf[either]("A5", jsonHome+`"x": {"$ref": "#/$defs/address", "properties": {"y": `+ref+`}}`))
	refused(only, jsonOf[either]("A6", jsonHome+`"x": {"prefixItems": [`+ref+`], "items": {}}`))
	refused(only, schemas.Config{Formats: []schemas.Format{jsonschema.New(jsonschema.Bind[either](`{"title": "A7", "$schema": "http://json-schema.org/draft-07/schema#",
		"type": "object", "properties": {"id": {"type": "string", "personal": "subject"}, "home": {"$ref": "#/definitions/address"},
		"x": {"type": "array", "items": [{"$ref": "#/definitions/address"}]}},
		"definitions": {"address": {"type": "object", "properties": {"street": {"type": "string", "personal": "street"}}}}}`))}})
	refused("$id", jsonOf[two]("I1", `"home": {"$id": "https://shop.example/home", "$ref": "#/$defs/default",
		"$defs": {"default": {"type": "object", "properties": {"street": {"type": "string", "personal": "street"}}}}}`))
	refused("contains itself", jsonOf[rooted]("T1", jsonHome+`"x": {"properties": {"home": `+ref+`, "children": {"items": {"$ref": "#/properties/x"}}}}`))
	refused(`cannot be followed`, jsonOf[either]("R1", jsonHome+`"y": {"$anchor": "there"}, "x": {"$ref": "#there"}`))
	refused(`"" is no kind`, jsonOf[either]("K1", jsonHome+`"x": {"type": "string", "personal": true}`))
}

type (
	baseA struct {
		Email string `avro:"email" json:"email"`
	}
	inlined struct {
		ID      string `avro:"id" json:"id"`
		Address street `avro:",inline" json:",inline"`
	}
	// shadowed has two fields named Email: both are written, under other names.
	shadowed struct {
		ID string `avro:"id" json:"id"`
		baseA
		Email string `avro:"work" json:"work"`
	}
	// tagWins has two fields that may be written as Email: encoding/json writes the outer one, and twmb/avro the one with the tag.
	tagWins struct {
		ID string `avro:"id" json:"id"`
		tagged
		Email string
	}
	tagged struct {
		Other string `avro:"Email" json:"Email"`
	}
	EmailText  string
	embedsText struct {
		ID string `avro:"id" json:"id"`
		EmailText
	}
	deep struct {
		ID string `avro:"id" json:"id"`
		level
	}
	level struct{ baseA }
)

// TestFieldsOfStructsAreFoundAsTheLibrariesWriteThem, wherever a struct has them.
func TestFieldsOfStructsAreFoundAsTheLibrariesWriteThem(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const email, work = `{"name": "email", "type": "string", "personal": "email"}`, `{"name": "work", "type": "string", "personal": "email"}`
	jsonText := func(name string) string { return `"` + name + `": {"type": "string", "personal": "email"}` }

	both := shadowed{"c-1", baseA{"secret"}, "secret 2"}
	encrypts(s, avroOf[shadowed]("Shadowed", email+", "+work), both, 2)
	encrypts(s, jsonOf[shadowed]("Shadowed", jsonText("email")+", "+jsonText("work")), both, 2)
	encrypts(s, avroOf[deep]("Deep", email), deep{"c-1", level{baseA{"secret"}}}, 1)
	encrypts(s, jsonOf[deep]("Deep", jsonText("email")), deep{"c-1", level{baseA{"secret"}}}, 1)
	encrypts(s, avroOf[inlined]("Inlined", `{"name": "street", "type": "string", "personal": "street"}`), inlined{"c-1", street{"secret"}}, 1)
	encrypts(s, jsonOf[inlined]("Inlined", `"Address": {"$ref": "#/$defs/address"}`), inlined{"c-1", street{"secret"}}, 1)
	encrypts(s, avroOf[tagWins]("TagWins", `{"name": "Email", "type": "string", "personal": "email"}`), tagWins{ID: "c-1", tagged: tagged{"secret"}}, 1)
	encrypts(s, jsonOf[tagWins]("TagWins", jsonText("Email")), tagWins{ID: "c-1", Email: "secret"}, 1)
	encrypts(s, avroOf[embedsText]("Text", `{"name": "EmailText", "type": "string", "personal": "email"}`), embedsText{"c-1", "secret"}, 1)
	encrypts(s, jsonOf[embedsText]("Text", jsonText("EmailText")), embedsText{"c-1", "secret"}, 1)

	type untagged struct {
		ID    string `json:"id"`
		Email string
	}
	_, err := s.codecOf(jsonOf[untagged]("Untagged", jsonText("email")))
	require.ErrorContains(t, err, `field Email of personal_test.untagged is "email" in the schema: set the name in its tag`)
}

type (
	ownText   string
	ownNumber int64
	ownList   []street
)

func (o ownText) AppendText(b []byte) ([]byte, error) { return append(b, "secret "+string(o)...), nil }
func (o ownNumber) MarshalText() ([]byte, error)      { return []byte(fmt.Sprint("c-", int64(o))), nil }
func (o ownList) MarshalJSON() ([]byte, error)        { return []byte(`["secret"]`), nil }
func (o *ownNumber) UnmarshalText(b []byte) (err error) {
	_, err = fmt.Sscanf(string(b), "c-%d", (*int64)(o))
	return
}

// TestTypesThatWriteTheirOwnTextAreRefused, also as the subject: its key would not belong to the id in the payload.
func TestTypesThatWriteTheirOwnTextAreRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	type withText struct {
		ID    string  `avro:"id" json:"id"`
		Email ownText `avro:"email" json:"email"`
	}
	type withNumber struct {
		ID    ownNumber `avro:"id" json:"id"`
		Email string    `avro:"email" json:"email"`
	}
	type withList struct {
		ID   string  `avro:"id" json:"id"`
		List ownList `avro:"list" json:"list"`
	}
	for _, cfg := range []schemas.Config{
		avroOf[withText]("OwnText", `{"name": "email", "type": "string", "personal": "email"}`),
		jsonOf[withNumber]("OwnNumber", `"email": {"type": "string", "personal": "email"}`),
		jsonOf[withList]("OwnList", `"list": {"type": "array", "items": {"$ref": "#/$defs/address"}}`),
	} {
		_, err := s.codecOf(cfg)
		require.ErrorContains(t, err, "it has methods that write or read it")
	}
}

// plainMail is always written as JSON, past every codec.
type plainMail struct {
	ID    string `avro:"id"`
	Email string `avro:"email"`
}

func (plainMail) MessageType() string { return "leak.Plain" }
func (plainMail) PlainJSON()          {}

// TestATypeThatIsAlwaysJSONIsRefused: its fields would be stored and sent as they are.
func TestATypeThatIsAlwaysJSONIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	_, err := s.codecOf(avroOf[plainMail]("Plain", `{"name": "email", "type": "string", "personal": "email"}`))
	require.ErrorContains(t, err, "leak.Plain: personal_test.plainMail has a method PlainJSON")
}
