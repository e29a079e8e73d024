package schemas_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/schemas"
)

var fuzzed = []string{"list", "tree", "longs", "nulls", "empties", "table", "blob", "choice"}

// FuzzDecode checks the same promise for both libraries: for all bytes either a value or ErrPayload, in bounded memory, and
// JSON that encodes to the same value.
func FuzzDecode(f *testing.F) {
	c := newCodec(f, hostile()...)
	const gigas = 1<<31 - 1
	for kind, bodies := range map[byte][][]byte{
		0: {varints(0), varints(1, 1, 0), varints(1, 1, 1, 1, 1, 1)},
		1: {varints(0), varints(1, 1, 0, 0), varints(2, 0, 0, 0), varints(-1, 1, 0, 0)},
		2: {varints(0), varints(2, 7, 8, 0), varints(-2, 2, 7, 8, 0), varints(gigas), varints(-gigas, 0)},
		3: {varints(1, 4096, 0, 0), varints(2, 4096, 0, 4096, 0, 0)},
		4: {varints(4096, 0), varints(1e6, 0)},
		5: {varints(0), join(varints(1, 1), []byte("k"), varints(1), []byte("v"), varints(0)), varints(gigas), varints(1, gigas)},
		6: {varints(0), join(varints(2), []byte{0xff, 0}), varints(gigas), varints(-1)},
		7: {varints(0), {2, 1}, {4, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f}, varints(3, 1), {8, 1, 2, 3}, varints(9)},
	} {
		for _, b := range bodies {
			f.Add(kind, b)
		}
	}
	headers := make(map[string][]byte)
	for _, name := range fuzzed {
		headers[name] = header(f, c, name)
	}
	ctx := context.Background()
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		name := fuzzed[int(kind)%len(fuzzed)]
		payload := join(headers[name], body)
		limit := uint64(24<<20 + 2000*len(payload))

		var typed, generic error
		var text []byte
		into := newTarget(name)
		require.Less(t, allocated(func() { typed = c.Decode(envelope.Message{Payload: payload}, into) }), limit)
		require.Less(t, allocated(func() { _, text, generic = c.ToJSON(ctx, payload) }), limit)
		if typed != nil {
			require.ErrorIs(t, typed, envelope.ErrPayload)
		}
		if generic != nil {
			require.ErrorIs(t, generic, envelope.ErrPayload)
			return
		}
		require.NoError(t, typed, "goavro reads what twmb/avro does not")
		if name == "choice" {
			return // its floats can be NaN, which JSON does not have
		}
		again, err := c.FromJSON(ctx, name, text)
		require.NoError(t, err)
		back := newTarget(name)
		require.NoError(t, c.Decode(envelope.Message{Payload: again.Payload}, back))
		require.Equal(t, into, back)
	})
}

// FuzzFromJSON: accepted JSON can be decoded again, by both libraries, and all other JSON is ErrPayload.
func FuzzFromJSON(f *testing.F) {
	ctx := context.Background()
	r, _ := newRegistry(f)
	_, err := r.Register(ctx, "shop.Offer", offerSchema)
	require.NoError(f, err)
	c, err := schemas.New(ctx, schemas.Config{Registry: r, Types: hostile()})
	require.NoError(f, err)
	for kind, text := range []string{
		`{"next":{"list":{"next":null}}}`, `{"children":[{"children":[]}]}`, `{"items":[1,-2]}`, `{"items":[[null]]}`,
		`{"items":[{}]}`, `{"items":{"a":"b"}}`, `{"items":"\u00ff"}`, `{"items":{"double":1e999}}`,
		`{"title":1,"note":"x","price":{"long":7},"tags":{"a":null}}`,
	} {
		f.Add(byte(kind), []byte(text))
	}
	f.Fuzz(func(t *testing.T, kind byte, text []byte) {
		name := append(fuzzed, "shop.Offer")[int(kind)%(len(fuzzed)+1)]
		var payload []byte
		var err error
		got := allocated(func() {
			var e envelope.Encoded
			e, err = c.FromJSON(ctx, name, text)
			payload = e.Payload
		})
		require.Less(t, got, uint64(8<<20+2000*len(text)))
		if err != nil {
			require.ErrorIs(t, err, envelope.ErrPayload)
			return
		}
		_, _, err = c.ToJSON(ctx, payload)
		require.NoError(t, err)
		if into := newTarget(name); into != nil {
			require.NoError(t, c.Decode(envelope.Message{Payload: payload}, into))
		}
	})
}
