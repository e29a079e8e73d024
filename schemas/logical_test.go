package schemas_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/schemas"
)

const (
	priceType      = `{"type":"bytes","logicalType":"decimal","precision":6,"scale":2}`
	fixedPriceType = `{"type":"fixed","name":"P","size":3,"logicalType":"decimal","precision":6,"scale":2}`
	idType         = `{"type":"fixed","name":"I","size":16,"logicalType":"uuid"}`
	idText         = "00000000-e89b-12d3-a456-42661417c3ff"
)

// A decimal is a number, and bytes are the same bytes again, in both directions.
func TestValuesOfDecimalsAndBytesAreWrittenAsTheyWereRead(t *testing.T) {
	t.Parallel()
	codec, register := valueCodec(t)
	for i, c := range []struct {
		schema, text string
		bytes        string // in hexadecimal, without the length of bytes
		value        any
	}{
		{priceType, "12.5", "04e2", json.Number("12.50")}, {priceType, "12.50", "04e2", json.Number("12.50")}, {priceType, "1250e-2", "04e2", json.Number("12.50")},
		{priceType, "12", "04b0", json.Number("12.00")}, {priceType, "0", "00", json.Number("0.00")}, {priceType, "-0.01", "ff", json.Number("-0.01")},
		{priceType, "1.27", "7f", json.Number("1.27")}, {priceType, "1.28", "0080", json.Number("1.28")}, {priceType, "-1.28", "80", json.Number("-1.28")},
		{priceType, "-1.29", "ff7f", json.Number("-1.29")}, {priceType, "-655.36", "ff0000", json.Number("-655.36")}, {priceType, "9999.99", "0f423f", json.Number("9999.99")},
		{fixedPriceType, "12.5", "0004e2", json.Number("12.50")}, {fixedPriceType, "-0.01", "ffffff", json.Number("-0.01")},
		{`["null",` + priceType + `]`, "12.5", "04e2", json.Number("12.50")}, {`["null",` + fixedPriceType + `]`, `{"P": -1}`, "ffff9c", json.Number("-1.00")},
		{`["null","string",` + priceType + `]`, `{"bytes.decimal": 0.5}`, "32", json.Number("0.50")},
		{`{"type":"bytes","logicalType":"decimal","precision":6}`, "300", "012c", json.Number("300")},
		{`"bytes"`, `"Æ\u0000c"`, "c60063", "\u00c6\x00c"}, {`["null","bytes","string"]`, `"\u00c6"`, "c6", "\u00c6"},
		{`{"type":"fixed","name":"F","size":2}`, `"\u00c3\u0086"`, "c386", "\u00c3\u0086"},
		{`["null","string","bytes"]`, `"\u00c6"`, "c386", "\u00c6"},
		{idType, `"` + idText + `"`, "00000000e89b12d3a45642661417c3ff", idText}, {`["null",` + idType + `]`, `"` + idText + `"`, "00000000e89b12d3a45642661417c3ff", idText},
	} {
		name := register(fmt.Sprintf("Told%d", i), c.schema)
		payload, err := codec.FromValues(t.Context(), name, []byte(`{"x": `+c.text+`}`))
		require.NoError(t, err, "%s of %s", c.text, c.schema)
		require.Contains(t, fmt.Sprintf("%x", payload), c.bytes, "%s of %s", c.text, c.schema)
		_, value, err := codec.Values(t.Context(), payload.Payload)
		require.NoError(t, err)
		require.Equal(t, map[string]any{"x": c.value}, value, "%s of %s", c.text, c.schema)
		again, err := codec.FromJSON(t.Context(), name, []byte(`{"x": `+c.text+`}`))
		require.NoError(t, err)
		require.Equal(t, payload, again)
		_, text, err := codec.ToJSON(t.Context(), payload.Payload)
		require.NoError(t, err)
		again, err = codec.FromJSON(t.Context(), name, text)
		require.NoError(t, err)
		require.Equal(t, payload, again, "%s", text)
	}
}

func TestAValueThatTheSchemaCannotHoldIsRefused(t *testing.T) {
	t.Parallel()
	codec, register := valueCodec(t)
	for i, c := range []struct{ schema, text, want string }{
		{priceType, `"12.50"`, "x: want a number for a decimal 6,2, got a text"}, {`["null",` + priceType + `]`, `"12.50"`, "got a text"},
		{priceType, "12.505", "more than 2 digits behind the point"}, {priceType, "10000", "a number of 7 digits, of which it holds 6"},
		{priceType, "1e9999999", "an exponent that is too large"}, {priceType, "null", "want a bytes (decimal 6,2), got null"},
		{`["null","string",` + priceType + `]`, "12.5", `name the branch of the union: {"bytes.decimal"`},
		{`"double"`, "null", "x: want a double, got null"}, {`["double","string"]`, "null", "got null"}, {`"bytes"`, `"\u0100"`, "a character is no byte"},
	} {
		name := register(fmt.Sprintf("Refused%d", i), c.schema)
		_, err := codec.FromValues(t.Context(), name, []byte(`{"x": `+c.text+`}`))
		require.ErrorIs(t, err, envelope.ErrPayload, "%s of %s", c.text, c.schema)
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "12.5")
	}
}

// A number of megabytes is refused before its digits are read, which took a minute.
func TestALongNumberForADecimalIsNotRead(t *testing.T) {
	t.Parallel()
	codec, register := valueCodec(t)
	name := register("Long", priceType)
	began := time.Now()
	_, err := codec.FromValues(t.Context(), name, []byte(`{"x": `+strings.Repeat("7", 8<<20)+`}`))
	require.ErrorIs(t, err, envelope.ErrPayload)
	require.ErrorContains(t, err, "no number of at most 1100 digits")
	require.Less(t, time.Since(began), 15*time.Second)
}

// The encoder takes the floating branch of a union first, whichever branch the value came from.
func TestANumberThatAUnionWouldRoundIsRefused(t *testing.T) {
	t.Parallel()
	codec, register := valueCodec(t)
	for i, c := range []struct{ schema, text string }{
		{`["null","long","double"]`, "9007199254740993"}, {`["null","long","float"]`, "16777217"}, {`["long","double"]`, "9223372036854775807"},
	} {
		name := register(fmt.Sprintf("Rounded%d", i), c.schema)
		_, err := codec.FromValues(t.Context(), name, []byte(`{"x": `+c.text+`}`))
		require.ErrorIs(t, err, envelope.ErrPayload, "%s of %s", c.text, c.schema)
		require.ErrorContains(t, err, "would round it: name the branch")
		require.NotContains(t, err.Error(), c.text)
		_, err = codec.FromValues(t.Context(), name, []byte(`{"x": {"long": `+c.text+`}}`))
		require.NoError(t, err)
		_, err = codec.FromValues(t.Context(), name, []byte(`{"x": 5}`))
		require.NoError(t, err)
	}
}

// valueCodec returns a codec, and a function that registers a record with the field x.
func valueCodec(t *testing.T) (*schemas.Codec, func(name, schema string) string) {
	t.Helper()
	server := srfake.New()
	t.Cleanup(server.Close)
	registry, err := schemas.NewRegistry(server.URL())
	require.NoError(t, err)
	codec, err := schemas.New(t.Context(), schemas.Config{Registry: registry})
	require.NoError(t, err)
	return codec, func(name, schema string) string {
		_, err := registry.Register(t.Context(), name, `{"type":"record","name":"`+name+`","fields":[{"name":"x","type":`+schema+`}]}`)
		require.NoError(t, err)
		return name
	}
}
