package protobuf_test

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/schemas/protobuf/testdata/orderpb"
)

// allocated returns how many bytes do allocates, whether freed or not.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func field(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

// within returns content in as many Any messages.
func within(levels int, content []byte) []byte {
	for range levels {
		content = append(field(1, []byte("type.googleapis.com/google.protobuf.Any")), field(2, content)...)
	}
	return content
}

// An empty message has two bytes, and as JSON, as values and as a struct it has all fields of its type.
func TestAFewBytesOfProtobufCannotAskForGigabytes(t *testing.T) {
	p := newPair(t)
	e, err := p.codec.Encode("t", &orderpb.OrderPlaced{})
	require.NoError(t, err)
	header := e.Payload[:6:6]
	for name, row := range map[string]struct {
		body    []byte
		decoded bool // by a service with the Go type, which does not look into an Any
	}{
		"empty messages":                          {bytes.Repeat(field(3, nil), 500_000), false},
		"empty entries of a map":                  {bytes.Repeat(field(21, nil), 500_000), false},
		"numbers of a list":                       {bytes.Repeat(field(20, make([]byte, 80)), 120_000), false},
		"empty values":                            {field(17, field(1, append(field(1, []byte("k")), field(2, field(6, bytes.Repeat(field(1, nil), 300_000)))...))), false},
		"messages of the type Any within another": {field(19, within(3000, nil)), true},
		"a text within some":                      {field(19, within(100, make([]byte, 1<<20))), true},
	} {
		payload := append(header, row.body...)
		for what, do := range map[string]func() error{
			"ToJSON": func() error { _, _, err := p.tool.ToJSON(t.Context(), payload); return err },
			"Values": func() error { _, _, err := p.tool.Values(t.Context(), payload); return err },
			"Decode": func() error {
				return p.codec.Decode(envelope.Message{ContentType: envelope.Protobuf, Payload: payload}, &orderpb.OrderPlaced{})
			},
		} {
			var err error
			got := allocated(func() { err = do() })
			if row.decoded && what == "Decode" {
				require.NoError(t, err, name)
			} else {
				require.ErrorIs(t, err, envelope.ErrPayload, "%s: %s", name, what)
				require.ErrorContains(t, err, "more than", "%s: %s", name, what)
			}
			require.Less(t, got, uint64(8<<20+4*len(payload)), "%s: %s", name, what)
		}
	}
}

// A text of the relay, or of an operator, must not become a payload that no service reads.
func TestJSONForProtobufHasALimitOfValues(t *testing.T) {
	p := newPair(t)
	for _, text := range [][]byte{
		[]byte(`{"lines":[` + string(bytes.Repeat([]byte("{},"), 500_000)) + `{}]}`),
		[]byte(`{"rates":[` + string(bytes.Repeat([]byte("0,"), 1_100_000)) + `0]}`),
	} {
		_, err := p.tool.FromJSON(t.Context(), "troupe.shop.OrderPlaced", text)
		require.ErrorIs(t, err, envelope.ErrPayload)
		require.ErrorContains(t, err, "more than 1048576 values")
		err = p.codec.Decode(envelope.Message{ContentType: envelope.JSON, Payload: text}, &orderpb.OrderPlaced{})
		if len(text) > 2<<20 {
			require.ErrorIs(t, err, envelope.ErrPayload)
		}
	}
}

func TestLargeMessagesWithinTheLimitsAreRead(t *testing.T) {
	p := newPair(t)
	inner := &orderpb.Money{Currency: string(bytes.Repeat([]byte("x"), 100_000)), Cents: 1}
	detail, err := anypb.New(inner)
	require.NoError(t, err)
	sent := &orderpb.OrderPlaced{Photo: make([]byte, 4<<20), Rates: make([]float64, 500_000), Detail: detail, ByShop: map[int32]*orderpb.Money{}}
	for i := range 50_000 {
		sent.Lines = append(sent.Lines, &orderpb.OrderPlaced_Line{Sku: "a", Count: int32(i)})
		sent.ByShop[int32(i)] = &orderpb.Money{Cents: 3}
	}
	e, err := p.codec.Encode("t", sent)
	require.NoError(t, err)
	got := &orderpb.OrderPlaced{}
	require.NoError(t, p.codec.Decode(envelope.Message{ContentType: e.ContentType, Payload: e.Payload}, got))
	require.True(t, proto.Equal(sent, got))
	_, text, err := p.tool.ToJSON(t.Context(), e.Payload)
	require.NoError(t, err)
	again, err := p.tool.FromJSONLike(t.Context(), e.Payload, text)
	require.NoError(t, err)
	require.NoError(t, p.codec.Decode(envelope.Message{ContentType: e.ContentType, Payload: again}, got))
	require.True(t, proto.Equal(sent, got))
	_, _, err = p.tool.Values(t.Context(), e.Payload)
	require.NoError(t, err)
}

// TestJSONInManyAnyMessagesIsRefused: the library reads each Any to its end to find its type, so that a megabyte would take seconds.
func TestJSONInManyAnyMessagesIsRefused(t *testing.T) {
	p := newPair(t)
	list := `{"@type":"type.googleapis.com/google.protobuf.ListValue","value":[` + strings.Repeat("1,", 20_000) + `1]}`
	of := func(levels int, name string) []byte {
		text := list
		for range levels {
			text = `{"value":` + text + `,"` + name + `":"type.googleapis.com/google.protobuf.Any"}`
		}
		return []byte(`{"detail":` + text + `}`)
	}
	for _, name := range []string{"@type", `\u0040type`} {
		_, err := p.tool.FromJSON(t.Context(), "troupe.shop.OrderPlaced", of(5, name))
		require.NoError(t, err)
		_, err = p.tool.FromJSON(t.Context(), "troupe.shop.OrderPlaced", of(100, name))
		require.ErrorIs(t, err, envelope.ErrPayload)
		require.ErrorContains(t, err, "more than 8 levels of google.protobuf.Any")
		err = p.codec.Decode(envelope.Message{ContentType: envelope.JSON, Payload: of(100, name)}, &orderpb.OrderPlaced{})
		require.ErrorIs(t, err, envelope.ErrPayload)
		accepted := append([]byte(`{"more":1e,`), of(100, name)[1:]...) // the library skips 1e, which is no number
		err = p.codec.Decode(envelope.Message{ContentType: envelope.JSON, Payload: accepted}, &orderpb.OrderPlaced{})
		require.ErrorIs(t, err, envelope.ErrPayload)
	}
	_, err := p.tool.FromJSON(t.Context(), "troupe.shop.OrderPlaced", of(100, "@type")[:30_000])
	require.Error(t, err)
	require.NotContains(t, err.Error(), "levels", "it is no JSON")
}
