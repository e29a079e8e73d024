package shapes_test

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/internal/formats"
	"github.com/troupe-go/troupe/internal/shapes"
)

// is returns a shape of one type.
func is(t expr.Type) *expr.Shape { return &expr.Shape{Type: t} }

func TestTheShapeOfAnAvroRecord(t *testing.T) {
	t.Parallel()
	s, err := shapes.Avro(`{"type": "record", "name": "Booked", "namespace": "shop", "fields": [
		{"name": "id", "type": "string"}, {"name": "seats", "type": "int"}, {"name": "cents", "type": "long"}, {"name": "paid", "type": "boolean"},
		{"name": "rate", "type": "double"}, {"name": "note", "type": ["null", "string"], "default": null},
		{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}, {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"]}},
		{"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
		{"name": "either", "type": ["string", "long"]},
		{"name": "address", "type": {"type": "record", "name": "Address", "fields": [{"name": "zip", "type": "string"}, {"name": "next", "type": ["null", "Address"], "default": null}]}},
		{"name": "second", "type": ["null", "Address"], "default": null},
		{"name": "lines", "type": {"type": "array", "items": "Address"}}, {"name": "tags", "type": {"type": "map", "values": "string"}}]}`)
	require.NoError(t, err)
	address := s.Fields["address"]
	require.Equal(t, is(expr.String), address.Fields["zip"])
	require.Equal(t, is(expr.String), address.Fields["next"].Fields["next"].Fields["zip"])
	require.Equal(t, is(expr.String), s.Fields["second"].Fields["zip"])
	require.True(t, s.Fields["second"].Null && s.Fields["note"].Null && address.Fields["next"].Null)
	require.False(t, address.Null || s.Fields["either"].Null)
	require.Same(t, address, s.Fields["lines"].Elements)
	require.Equal(t, is(expr.String), s.Fields["tags"].Values)
	require.Equal(t, expr.Fields{
		"id": expr.String, "seats": expr.Int, "cents": expr.Int, "paid": expr.Bool, "rate": expr.Any, "note": expr.Any, "at": expr.Int, "kind": expr.String,
		"price": expr.Any, "either": expr.Any, "address": expr.Any, "second": expr.Any, "lines": expr.Any, "tags": expr.Any,
	}, s.Top())
	require.ElementsMatch(t, []string{"id", "seats", "cents", "paid", "rate", "at", "kind", "price", "either", "address", "lines", "tags"}, s.Required)
}

func TestTheShapeOfAJSONSchema(t *testing.T) {
	t.Parallel()
	s, err := shapes.JSON(`{"title": "Booked", "type": "object", "required": ["id"], "$defs": {
			"address": {"type": "object", "properties": {"zip": {"type": "string"}, "next": {"$ref": "#/$defs/address"}}},
			"id": {"type": "string", "minLength": 1}},
		"properties": {"id": {"$ref": "#/$defs/id"}, "seats": {"type": "integer"}, "paid": {"type": "boolean"}, "rate": {"type": "number"},
			"note": {"type": ["string", "null"]}, "kind": {"enum": ["A", 1]}, "address": {"$ref": "#/$defs/address"},
			"lines": {"type": "array", "items": {"$ref": "#/$defs/address"}}, "open": {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": true},
			"tags": {"type": "object", "additionalProperties": {"type": "string"}}, "free": {"type": "object"}, "anything": true},
		"allOf": [{"properties": {"more": {"type": "string"}}, "required": ["more"]}],
		"oneOf": [{"properties": {"card": {"type": "string"}}, "required": ["card"]}, {"properties": {"iban": {"type": "string"}}}]}`)
	require.NoError(t, err)
	require.Equal(t, expr.Fields{
		"id": expr.String, "seats": expr.Int, "paid": expr.Bool, "rate": expr.Any, "note": expr.Any, "kind": expr.Any, "address": expr.Any, "lines": expr.Any,
		"open": expr.Any, "tags": expr.Any, "free": expr.Any, "anything": expr.Any, "more": expr.String, "card": expr.String, "iban": expr.String,
	}, s.Top())
	require.Equal(t, []string{"id", "more"}, s.Required)
	zip := &expr.Shape{Type: expr.String, Absent: true}
	require.Equal(t, zip, s.Fields["address"].Fields["zip"])
	require.Equal(t, zip, s.Fields["address"].Fields["next"].Fields["zip"])
	require.Equal(t, zip, s.Fields["lines"].Elements.Fields["zip"])
	require.False(t, s.Fields["id"].Absent || s.Fields["id"].Null)
	require.True(t, s.Fields["note"].Null && s.Fields["note"].Absent)
	require.Equal(t, is(expr.String), s.Fields["tags"].Values)
	for _, open := range []string{"open", "tags", "free", "anything"} {
		require.Nil(t, s.Fields[open].Fields, open)
	}
	for _, text := range []string{`{"title": "A", "$ref": "https://example.org/other.json"}`, `{"type": 7}`, `{`} {
		_, err := shapes.JSON(text)
		require.Error(t, err, text)
	}
}

func TestTheShapeOfAProtobufMessage(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{"booked.proto": &fstest.MapFile{Data: []byte(`syntax = "proto3";
		package shop;
		import "google/protobuf/timestamp.proto";
		message Address { string zip = 1; Address next = 2; }
		message Booked { string id = 1; int32 seats = 2; int64 cents = 3; bool paid = 4; double rate = 5; optional string note = 6;
			google.protobuf.Timestamp at = 7; Kind kind = 8; Address address = 9; repeated Address lines = 10; map<string, Address> by_name = 11;
			oneof way { string card = 12; string iban = 13; } uint64 large = 14; }
		enum Kind { A = 0; }`)}}
	all, err := formats.Of("booked.proto").Declare(files, "booked.proto")
	require.NoError(t, err)
	var s *expr.Shape
	for _, d := range all {
		if d.Name == "shop.Booked" {
			s = shapes.Protobuf(d.Message.(protoreflect.MessageDescriptor))
		}
	}
	require.NotNil(t, s)
	require.Equal(t, expr.Fields{
		"id": expr.String, "seats": expr.Int, "cents": expr.Int, "paid": expr.Bool, "rate": expr.Any, "note": expr.Any, "at": expr.Any, "kind": expr.Any,
		"address": expr.Any, "lines": expr.Any, "by_name": expr.Any, "card": expr.Any, "iban": expr.Any, "large": expr.Any,
	}, s.Top())
	address := s.Fields["address"]
	require.Equal(t, is(expr.String), address.Fields["zip"])
	require.Equal(t, is(expr.String), address.Fields["next"].Fields["zip"])
	require.Same(t, address.Fields["zip"], s.Fields["lines"].Elements.Fields["zip"])
	require.Same(t, address.Fields["zip"], s.Fields["by_name"].Values.Fields["zip"])
	require.True(t, address.Null && s.Fields["note"].Null && s.Fields["card"].Null)
	require.False(t, s.Fields["lines"].Null || s.Fields["id"].Null)
	require.Nil(t, s.Fields["at"].Fields)
	require.Empty(t, s.Required)
}
