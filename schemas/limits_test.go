package schemas_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/schemas"
)

type (
	list struct {
		Next *list `avro:"next"`
	}
	tree struct {
		Children []tree `avro:"children"`
	}
	longs struct {
		Items []int64 `avro:"items"`
	}
	nulls struct {
		Items [][]any `avro:"items"`
	}
	empties struct {
		Items []*struct{} `avro:"items"`
	}
	table struct {
		Items map[string]string `avro:"items"`
	}
	blob struct {
		Items []byte `avro:"items"`
	}
	choice struct {
		Items any `avro:"items"`
	}
)

// hostile has a schema of each kind that a payload can abuse, bound to a struct of its own.
func hostile() []schemas.Type {
	record := func(name, items string) string {
		return `{"type":"record","name":"` + name + `","fields":[{"name":"items","type":` + items + `}]}`
	}
	return []schemas.Type{
		schemas.Bind[list](`{"type":"record","name":"list","fields":[{"name":"next","type":["null","list"]}]}`),
		schemas.Bind[tree](`{"type":"record","name":"tree","fields":[{"name":"children","type":{"type":"array","items":"tree"}}]}`),
		schemas.Bind[longs](record("longs", `{"type":"array","items":"long"}`)),
		schemas.Bind[nulls](record("nulls", `{"type":"array","items":{"type":"array","items":"null"}}`)),
		schemas.Bind[empties](record("empties", `{"type":"array","items":{"type":"record","name":"empty","fields":[]}}`)),
		schemas.Bind[table](record("table", `{"type":"map","values":"string"}`)),
		schemas.Bind[blob](record("blob", `"bytes"`)),
		schemas.Bind[choice](record("choice", `["null","boolean","double",{"type":"enum","name":"e","symbols":["A","B"]},{"type":"fixed","name":"f","size":3}]`)),
	}
}

func newTarget(name string) any {
	return map[string]any{"list": new(list), "tree": new(tree), "longs": new(longs), "nulls": new(nulls),
		"empties": new(empties), "table": new(table), "blob": new(blob), "choice": new(choice)}[name]
}

// header returns the bytes that Encode puts before a body of that type.
func header(t testing.TB, c *schemas.Codec, name string) []byte {
	e, err := c.Encode("t", newTarget(name))
	require.NoError(t, err)
	return e.Payload[:5:5]
}

func varints(ns ...int64) (b []byte) {
	for _, n := range ns {
		b = binary.AppendVarint(b, n)
	}
	return b
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// allocated returns how many bytes do allocates, whether freed or not.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestAFewBytesCannotAskForGigabytes(t *testing.T) {
	c := newCodec(t, hostile()...)
	const gigas = math.MaxInt32 // times 16 bytes: the 34 GB that goavro allocates with its default limit
	for name, row := range map[string]struct {
		schema string
		body   []byte
	}{
		"an array that says two billion":                 {"longs", varints(gigas)},
		"a block that says two billion and no bytes":     {"longs", varints(-gigas, 0)},
		"a second block that says two billion":           {"longs", varints(1, 7, gigas)},
		"the lowest count":                               {"longs", varints(math.MinInt64, 0)},
		"the highest count":                              {"longs", varints(math.MaxInt64)},
		"a map that says two billion":                    {"table", varints(gigas)},
		"a map's block that says two billion":            {"table", varints(-gigas, 3)},
		"a string of two gigabytes":                      {"table", varints(1, gigas)},
		"bytes of two gigabytes":                         {"blob", varints(gigas)},
		"bytes of less than nothing":                     {"blob", varints(-1)},
		"a million empty records":                        {"empties", varints(1e6, 0)},
		"blocks of empty records, again and again":       {"empties", join(bytes.Repeat(varints(4096), 1000), varints(0))},
		"arrays of nulls, each below a limit of its own": {"nulls", join(varints(1000), bytes.Repeat(varints(4096, 0), 1000), varints(0))},
		"a long array in blocks of one":                  {"longs", join(bytes.Repeat(varints(1, 7), 100_000), varints(0))},
		"a list without end":                             {"list", bytes.Repeat(varints(1), 1<<20)},
		"a tree without end":                             {"tree", bytes.Repeat(varints(1), 1<<20)},
		"a branch there is not":                          {"choice", varints(5)},
		"a branch below the first":                       {"choice", varints(-1)},
		"a symbol there is not":                          {"choice", varints(3, 2)},
		"a fixed cut short":                              {"choice", varints(4, 0)},
		"a number without end":                           {"longs", bytes.Repeat([]byte{0x80}, 64)},
		"a block of another size than it says":           {"longs", varints(-1, 2, 7, 0)},
	} {
		payload := join(header(t, c, row.schema), row.body)
		limit := uint64(1<<20 + 64*len(payload))

		var err error
		got := allocated(func() { err = c.Decode(envelope.Message{Payload: payload}, newTarget(row.schema)) })
		require.ErrorIs(t, err, envelope.ErrPayload, name)
		require.Less(t, got, limit, name)
		require.Less(t, len(err.Error()), 500, name)

		got = allocated(func() { _, _, err = c.ToJSON(context.Background(), payload) })
		require.ErrorIs(t, err, envelope.ErrPayload, name)
		require.Less(t, got, limit, name)
	}
}

func TestPayloadsWithinTheLimitsAreRead(t *testing.T) {
	c := newCodec(t, hostile()...)
	for name, row := range map[string]struct {
		schema string
		body   []byte
	}{
		"a list as deep as allowed":        {"list", join(bytes.Repeat(varints(1), schemas.MaxDepth/2-1), varints(0))},
		"a tree as deep as allowed":        {"tree", join(bytes.Repeat(varints(1), schemas.MaxDepth/2-1), bytes.Repeat(varints(0), schemas.MaxDepth/2))},
		"as many empty records as allowed": {"empties", varints(schemas.MaxEmpty, 0)},
		"a hundred thousand longs":         {"longs", join(varints(1e5), bytes.Repeat(varints(7), 1e5), varints(0))},
		"a megabyte in blocks of 64 kB":    {"longs", join(bytes.Repeat(join(varints(1<<16), make([]byte, 1<<16)), 15), varints(0))},
		"blocks with their size":           {"longs", varints(-2, 2, 7, 8, 1, 9, 0)},
	} {
		payload := join(header(t, c, row.schema), row.body)
		require.NoError(t, c.Decode(envelope.Message{Payload: payload}, newTarget(row.schema)), name)
		_, _, err := c.ToJSON(context.Background(), payload)
		require.NoError(t, err, name)
	}
	// One more level, one more item.
	for schema, body := range map[string][]byte{
		"list":    join(bytes.Repeat(varints(1), schemas.MaxDepth/2), varints(0)),
		"empties": varints(schemas.MaxEmpty+1, 0),
		"longs":   join(varints(schemas.MaxValues), make([]byte, schemas.MaxValues+1)),
	} {
		payload := join(header(t, c, schema), body)
		require.ErrorIs(t, c.Decode(envelope.Message{Payload: payload}, newTarget(schema)), envelope.ErrPayload, schema)
	}
}

// Each character of a text may become six in JSON.
func TestALargePayloadIsDecodedAndNotConverted(t *testing.T) {
	c := newCodec(t, hostile()...)
	e, err := c.Encode("t", &blob{make([]byte, schemas.MaxConverted)})
	require.NoError(t, err)
	require.NoError(t, c.Decode(envelope.Message{ContentType: e.ContentType, Payload: e.Payload}, new(blob)))
	got := allocated(func() {
		_, _, err = c.ToJSON(context.Background(), e.Payload)
		require.ErrorIs(t, err, envelope.ErrPayload)
		require.ErrorContains(t, err, "is not converted")
		_, _, err = c.Values(context.Background(), e.Payload)
		require.ErrorIs(t, err, envelope.ErrPayload)
	})
	require.Less(t, got, uint64(1<<20))
}

func TestJSONIsBoundedToo(t *testing.T) {
	ctx := context.Background()
	c := newCodec(t, append(hostile(), schemas.Bind[parcel](parcelSchema))...)
	for _, levels := range []int{2_000, 20_000} {
		nested := strings.Repeat(`{"next":{"list":`, levels) + `{"next":7}` + strings.Repeat("}}", levels)
		var err error
		got := allocated(func() { _, err = c.FromJSON(ctx, "list", []byte(nested)) })
		require.ErrorIs(t, err, envelope.ErrPayload)
		require.Less(t, got, uint64(8<<20))
		got = allocated(func() {
			err = c.Decode(envelope.Message{ContentType: envelope.JSON, Payload: []byte(nested)}, new(list))
		})
		require.ErrorIs(t, err, envelope.ErrPayload)
		require.Less(t, got, uint64(1<<20+64*len(nested)))
	}

	text := []byte(`{"` + strings.Repeat("long", 2_500) + `":1,"grams":"` + strings.Repeat("long", 2_500) + `"}`)
	_, err := c.FromJSON(ctx, "shop.Parcel", text)
	require.ErrorIs(t, err, envelope.ErrPayload)
	require.Less(t, len(err.Error()), 500, "errors quote no payloads whole")
	err = c.Decode(envelope.Message{ContentType: envelope.JSON, Payload: text}, new(parcel))
	require.ErrorIs(t, err, envelope.ErrPayload)
	require.Less(t, len(err.Error()), 500, "errors quote no payloads whole")
}
