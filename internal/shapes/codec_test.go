package shapes_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/internal/formats"
	"github.com/troupe-go/troupe/internal/saga/verify"
	"github.com/troupe-go/troupe/internal/shapes"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/schemas"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

const avroSeat = `{"type": "record", "name": "Seat", "fields": [{"name": "row", "type": "string"}, {"name": "n", "type": "int"}, {"name": "near", "type": ["null",
	{"type": "record", "name": "Near", "fields": [{"name": "row", "type": "string"}, {"name": "n", "type": "int"}]}], "default": null}]}`

// booked is one message in three formats. Its optional fields are note, seat and near, and also count in JSON.
var booked = map[string]string{
	"AVRO": `{"type": "record", "name": "Booked", "fields": [{"name": "id", "type": "string"}, {"name": "count", "type": "long"}, {"name": "ok", "type": "boolean"},
		{"name": "rate", "type": "double"}, {"name": "note", "type": ["null", "string"], "default": null}, {"name": "seat", "type": ["null", ` + avroSeat + `], "default": null},
		{"name": "seats", "type": {"type": "array", "items": "Seat"}}, {"name": "by", "type": {"type": "map", "values": "Seat"}}]}`,
	"JSON": `{"title": "Booked", "type": "object", "required": ["id", "ok", "rate", "seats", "by"], "$defs": {"seat": {"type": "object", "required": ["row", "n"],
			"properties": {"row": {"type": "string"}, "n": {"type": "integer"}, "near": {"$ref": "#/$defs/seat"}}}},
		"properties": {"id": {"type": "string"}, "count": {"type": "integer"}, "ok": {"type": "boolean"}, "rate": {"type": "number"}, "note": {"type": ["string", "null"]},
			"seat": {"$ref": "#/$defs/seat"}, "seats": {"type": "array", "items": {"$ref": "#/$defs/seat"}}, "by": {"type": "object", "additionalProperties": {"$ref": "#/$defs/seat"}}}}`,
	"PROTOBUF": `syntax = "proto3";
		message Booked { string id = 1; int64 count = 2; bool ok = 3; double rate = 4; optional string note = 5; Seat seat = 6; repeated Seat seats = 7; map<string, Seat> by = 8; }
		message Seat { string row = 1; int32 n = 2; Seat near = 3; }`,
}

// expressions read fields that are there, and fields that are not; some fail without the optional ones, or for values of other types.
var expressions = []string{
	"event.id", "event.idd", "event.count", "event.ok", "event.note", "event.seat.row", "event.seat.raw", "event.seat.near.row", "event.seats[0].row", "event.by['a'].n",
	"has(event.note) && event.note != null ? event.note : ''", "event.seat != null ? event.seat.row : ''", "has(event.seat) && event.seat != null ? event.seat.row : ''",
	"has(event.seat) && event.seat != null && has(event.seat.near) && event.seat.near != null ? event.seat.near.n : 0",
	"event.id + event.note", "event.id + '-' + string(event.ok)", "event.rate * 2.0", "event.rate + event.count", "event.count + 1", "event.count == '1'", "event.id == 1",
	"event.seats.map(s, s.row)[0]", "event.seats.map(s, s.rows)[0]", "event.seats.exists(s, s.n > 1)", "event.by.size()", "event['id']", "'note' in event", "event.ok && event.count > 1",
	"event.ok ? event.id : event.note", "event.rate > 1.5", "event.seats.filter(s, s.near != null).size()", "has(event.count) ? event.count : 0", "event.when", "event.seat.n + event.count",
	"event.id != null ? event.id : ''", "has(event.seat) && event.seat != null ? event.seat : ''", "event.seats[0].row + 1", "event.seats[0].n || event.ok",
	"event.seats != null ? event.seats : 0", "event.by['a'].near.n", "event.ok ? event.rate + '-x' : event.id",
}

// TestAnEventOfACheckedExpressionParksNoSaga compares the findings for each expression with its results for random events, that the codec
// has written and read with the same schema.
func TestAnEventOfACheckedExpressionParksNoSaga(t *testing.T) {
	t.Parallel()
	for format, text := range booked {
		server := srfake.New()
		t.Cleanup(server.Close)
		client, err := sr.NewClient(sr.URLs(server.URL()))
		require.NoError(t, err)
		registry, err := schemas.NewRegistry(server.URL())
		require.NoError(t, err)
		var kind sr.SchemaType
		require.NoError(t, kind.UnmarshalText([]byte(format)))
		const name = "Booked"
		_, err = client.CreateSchema(t.Context(), name, sr.Schema{Schema: text, Type: kind})
		require.NoError(t, err)
		codec, err := schemas.New(t.Context(), schemas.Config{Registry: registry, Formats: formats.All()})
		require.NoError(t, err)
		var events []map[string]any
		dice := rand.New(rand.NewPCG(1, 2))
		for range 40 {
			made, err := json.Marshal(event(dice, format))
			require.NoError(t, err)
			encoded, err := codec.FromValues(t.Context(), name, made)
			require.NoError(t, err, "%s: %s", format, made)
			_, value, err := codec.Values(t.Context(), encoded.Payload)
			require.NoError(t, err)
			fields := value.(map[string]any)
			require.NoError(t, saga.Canonical(fields)) // as the coordinator does
			events = append(events, fields)
		}
		found, silent := 0, 0
		for _, text := range expressions {
			for _, typ := range []saga.Type{saga.String, saga.Int, saga.Bool, saga.Double, saga.Any} {
				parked, clean, wrong, defined := compare(t, format, text, typ, events)
				if !defined {
					continue
				}
				require.False(t, parked != "" && clean, "%s: %s for a variable of type %s has no finding, and parks a saga: %s", format, text, typ, parked)
				other := strings.Contains(text, "==") // which is false for values of other types, and parks nothing
				require.False(t, parked == "" && wrong && !other, "%s: %s for a variable of type %s is an error, and parks no saga", format, text, typ)
				if parked != "" {
					found++
				} else if clean {
					silent++
				}
			}
		}
		require.Greater(t, found, 20, format)
		require.Greater(t, silent, 20, format)
	}
}

// event returns the values of a random event.
func event(dice *rand.Rand, format string) map[string]any {
	maybe := func() bool { return dice.IntN(2) == 0 }
	var seat func(depth int) map[string]any
	seat = func(depth int) map[string]any {
		s := map[string]any{"row": "a", "n": dice.IntN(3)}
		if depth == 0 && maybe() {
			s["near"] = seat(depth + 1)
		}
		return s
	}
	e := map[string]any{
		"id": "b-1", "count": dice.IntN(3), "ok": maybe(), "rate": float64(dice.IntN(3)) + 0.5, "seats": []any{seat(0)}, "by": map[string]any{"a": seat(0)},
	}
	if maybe() {
		e["note"] = "n"
	}
	if maybe() {
		e["seat"] = seat(0)
	}
	if format == "JSON" { // a JSON Schema does not say whether a number is whole
		e["rate"] = dice.IntN(3)
		if maybe() {
			delete(e, "count")
		}
	}
	return e
}

// compare runs a saga whose first answer sets a variable by an expression, with each event. It returns the reason for which a saga was
// parked, whether the verifier finds nothing, and whether it finds an error; defined is false if the definition is refused.
func compare(t *testing.T, format, text string, typ saga.Type, events []map[string]any) (parked string, clean, wrong, defined bool) {
	t.Helper()
	d, err := saga.Define(saga.Spec{
		Saga: "trip", Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String, "v": typ},
		Steps: []saga.Step{{
			Name: "book", Timeout: saga.Duration(1e9), Retriable: true, Irreversible: "a test", Command: &saga.Command{Hop: "hop", Type: "Book"},
			Success: []saga.Answer{{Event: "Booked", Set: saga.Mapping{"v": text}}},
		}},
	})
	if err != nil {
		return "", false, false, false
	}
	found := verify.Definition(d, verify.Options{Types: map[string]*expr.Shape{"Booked": shape(t, format)}})
	clean = !slices.ContainsFunc(found, func(f verify.Finding) bool { return strings.HasPrefix(f.Rule, "message-") })
	wrong = slices.ContainsFunc(found, func(f verify.Finding) bool { return f.Rule == "message-field" })
	for _, e := range events {
		s, fx := saga.Decide(d, saga.State{}, saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "x"}}, now)
		require.Len(t, fx.Commands, 1)
		s, _ = saga.Decide(d, s, saga.Event{Kind: saga.Answered, Step: "book", Operation: fx.Commands[0].Operation, Hop: "hop", Type: "Booked", Outcome: "success", Fields: e}, now)
		if s.Status == saga.Parked {
			return fmt.Sprint(s.Reason, " ", e), clean, wrong, true
		}
		require.Equal(t, saga.Completed, s.Status)
	}
	return "", clean, wrong, true
}

func shape(t *testing.T, format string) (s *expr.Shape) {
	t.Helper()
	var err error
	switch format {
	case "AVRO":
		s, err = shapes.Avro(booked[format])
	case "JSON":
		s, err = shapes.JSON(booked[format])
	default:
		all, wrong := formats.Of("b.proto").Declare(fstest.MapFS{"b.proto": &fstest.MapFile{Data: []byte(booked[format])}}, "b.proto")
		require.NoError(t, wrong)
		for _, d := range all {
			if d.Name == "Booked" {
				s = shapes.Protobuf(d.Message.(protoreflect.MessageDescriptor))
			}
		}
	}
	require.NoError(t, err)
	require.NotNil(t, s)
	return s
}
