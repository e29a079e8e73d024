package schemas_test

import (
	"context"
	"encoding/binary"
	"math/big"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/demo/messages"
	"github.com/troupe-go/troupe/schemas"
)

func newRegistry(t testing.TB) (*schemas.Registry, *srfake.Registry) {
	server := srfake.New()
	t.Cleanup(server.Close)
	r, err := schemas.NewRegistry(server.URL())
	require.NoError(t, err)
	return r, server
}

func newCodec(t testing.TB, types ...schemas.Type) *schemas.Codec {
	r, _ := newRegistry(t)
	c, err := schemas.New(context.Background(), schemas.Config{Registry: r, Types: types})
	require.NoError(t, err)
	return c
}

type parcel struct {
	ID    string `avro:"id"`
	Grams int64  `avro:"grams"`
}

const parcelSchema = `{"type":"record","name":"shop.Parcel","fields":[{"name":"id","type":"string"},{"name":"grams","type":"long"}]}`

// reminder is one of the library's own messages: it names its type and is encoded as JSON.
type reminder struct{ Text string }

func (reminder) MessageType() string { return "troupe.Reminder" }

func TestAnUnboundTypeIsJSONOrAnError(t *testing.T) {
	c := newCodec(t, messages.Types()...)

	e, err := c.Encode("t", reminder{"pay"})
	require.NoError(t, err)
	require.Equal(t, envelope.Encoded{Type: "troupe.Reminder", ContentType: envelope.JSON, Payload: []byte(`{"Text":"pay"}`)}, e)
	name, err := c.TypeOf(reminder{})
	require.NoError(t, err)
	require.Equal(t, "troupe.Reminder", name)
	var back reminder
	require.NoError(t, c.Decode(envelope.Message{ContentType: "application/json; charset=utf-8", Payload: e.Payload}, &back))
	require.Equal(t, reminder{"pay"}, back)

	for _, body := range []any{parcel{}, &parcel{}, "text", 7, nil, map[string]any{}} {
		_, err = c.Encode("t", body)
		require.ErrorContains(t, err, "schemas.Bind")
		_, err = c.TypeOf(body)
		require.ErrorContains(t, err, "schemas.Bind")
	}
	err = c.Decode(envelope.Message{Payload: []byte{0, 0, 0, 0, 1}}, &parcel{})
	require.ErrorContains(t, err, "schemas.Bind")
	require.NotErrorIs(t, err, envelope.ErrPayload, "the bytes may be fine")
}

func TestPointersStandForTheirStruct(t *testing.T) {
	c := newCodec(t, schemas.Bind[parcel](parcelSchema))
	p := &parcel{"p-1", 400}
	byValue, err := c.Encode("t", *p)
	require.NoError(t, err)
	byPointer, err := c.Encode("t", p)
	require.NoError(t, err)
	require.Equal(t, byValue, byPointer)

	var into *parcel
	require.NoError(t, c.Decode(envelope.Message{Payload: byValue.Payload}, &into))
	require.Equal(t, p, into)

	_, err = c.Encode("t", (*parcel)(nil))
	require.Error(t, err)
	require.Error(t, c.Decode(envelope.Message{Payload: byValue.Payload}, (*parcel)(nil)))
	require.Error(t, c.Decode(envelope.Message{Payload: byValue.Payload}, parcel{}))
}

func TestJSONOfABoundTypeFollowsItsSchema(t *testing.T) {
	c := newCodec(t, schemas.Bind[parcel](parcelSchema))
	read := func(text string) (p parcel, err error) {
		return p, c.Decode(envelope.Message{ContentType: envelope.JSON, Payload: []byte(text)}, &p)
	}
	p, err := read(`{"id": "p-1", "grams": 9007199254740993, "colour": "red"}`)
	require.NoError(t, err)
	require.Equal(t, parcel{"p-1", 9007199254740993}, p)
	for _, bad := range []string{`{"ID": "p-1", "Grams": 1}`, `{"id": "p-1", "grams": 1.5}`, `{"id": "p-1"`, ``, `null`} {
		_, err = read(bad)
		require.ErrorIs(t, err, envelope.ErrPayload, bad)
	}
}

func TestBadPayloadsArePoison(t *testing.T) {
	c := newCodec(t, schemas.Bind[parcel](parcelSchema))
	good, err := c.Encode("t", parcel{"p-1", 400})
	require.NoError(t, err)
	with := func(change func(b []byte) []byte) []byte { return change(append([]byte(nil), good.Payload...)) }
	for name, payload := range map[string][]byte{
		"a tombstone":             nil,
		"shorter than its header": good.Payload[:4],
		"no body":                 good.Payload[:5],
		"cut short":               good.Payload[:len(good.Payload)-1],
		"bytes left over":         with(func(b []byte) []byte { return append(b, 0) }),
		"another first byte":      with(func(b []byte) []byte { b[0] = 1; return b }),
		"JSON without its type":   []byte(`{"id":"p-1","grams":400}`),
		"an id beyond all":        with(func(b []byte) []byte { b[1] = 0xff; return b }),
		"a length below nothing":  with(func(b []byte) []byte { b[5] = 1; return b }),
		"a string not UTF-8":      with(func(b []byte) []byte { b[6] = 0xff; return b }),
	} {
		err := c.Decode(envelope.Message{Payload: payload}, &parcel{})
		require.ErrorIs(t, err, envelope.ErrPayload, name)
		_, _, err = c.ToJSON(context.Background(), payload)
		require.ErrorIs(t, err, envelope.ErrPayload, name)
	}
}

func TestNewRefusesWhatWouldFailLater(t *testing.T) {
	record := func(fields string) string {
		return `{"type":"record","name":"shop.Parcel","fields":[` + fields + `]}`
	}
	id, grams := `{"name":"id","type":"string"}`, `{"name":"grams","type":"long"}`
	for name, row := range map[string]struct {
		types []schemas.Type
		want  string
	}{
		"no schema":                  {[]schemas.Type{schemas.Bind[parcel]("")}, "bind schemas_test.parcel"},
		"no record":                  {[]schemas.Type{schemas.Bind[parcel](`"string"`)}, "want a record"},
		"no struct":                  {[]schemas.Type{schemas.Bind[string](parcelSchema)}, "want a struct"},
		"a zero Type":                {[]schemas.Type{{}}, "want a struct"},
		"a field the struct lacks":   {[]schemas.Type{schemas.Bind[parcel](record(id + "," + grams + `,{"name":"x","type":"int"}`))}, "x"},
		"a field the schema lacks":   {[]schemas.Type{schemas.Bind[parcel](record(id))}, `no field "grams"`},
		"a field of another type":    {[]schemas.Type{schemas.Bind[parcel](record(id + `,{"name":"grams","type":"string"}`))}, "grams"},
		"the same Go type twice":     {[]schemas.Type{schemas.Bind[parcel](parcelSchema), schemas.Bind[parcel](record(id + "," + grams))}, "already"},
		"the same record for others": {[]schemas.Type{schemas.Bind[parcel](parcelSchema), schemas.Bind[struct{ parcel }](parcelSchema)}, "already"},
	} {
		r, server := newRegistry(t)
		_, err := schemas.New(context.Background(), schemas.Config{Registry: r, Types: row.types})
		require.ErrorContains(t, err, row.want, name)
		require.False(t, server.SubjectExists("shop.Parcel"), name)
	}
	_, err := schemas.New(context.Background(), schemas.Config{})
	require.ErrorContains(t, err, "NewRegistry")
	r, _ := newRegistry(t)
	_, err = schemas.New(context.Background(), schemas.Config{Registry: r, Timeout: -1})
	require.ErrorContains(t, err, "Timeout")
}

func TestLeftOutAndEmbeddedFieldsBind(t *testing.T) {
	type id struct {
		ID string `avro:"id"`
	}
	type weight struct {
		Grams int64 `avro:"grams"`
	}
	type whole struct {
		id
		Weight weight `avro:",inline"`
		Cached int    `avro:"-"`
		hidden int
	}
	c := newCodec(t, schemas.Bind[whole](parcelSchema))
	in := whole{id: id{"p-1"}, Weight: weight{400}}
	e, err := c.Encode("t", whole{id: in.id, Weight: in.Weight, Cached: 7, hidden: 8})
	require.NoError(t, err)
	var out whole
	require.NoError(t, c.Decode(envelope.Message{Payload: e.Payload}, &out))
	require.Equal(t, in, out)
}

func TestFieldsWhoseZeroIsNoValueBind(t *testing.T) {
	type ticket struct {
		ID    uuid.UUID  `avro:"id"`    // cannot be read from empty text
		State string     `avro:"state"` // cannot be written empty
		Price *big.Rat   `avro:"price"`
		At    *time.Time `avro:"at"`
	}
	c := newCodec(t, schemas.Bind[ticket](`{"type":"record","name":"shop.Ticket","fields":[
		{"name":"id","type":{"type":"string","logicalType":"uuid"}},
		{"name":"state","type":{"type":"enum","name":"shop.State","symbols":["OPEN","USED"]}},
		{"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}},
		{"name":"at","type":["null",{"type":"long","logicalType":"timestamp-millis"}]}]}`))
	at := time.UnixMilli(1_763_712_000_123).UTC()
	in := ticket{uuid.MustParse("6ba7b810-9dad-11d1-80b4-00c04fd430c8"), "USED", big.NewRat(-12345, 100), &at}
	e, err := c.Encode("t", in)
	require.NoError(t, err)
	var out ticket
	require.NoError(t, c.Decode(envelope.Message{Payload: e.Payload}, &out))
	require.Equal(t, in, out)

	_, text, err := c.ToJSON(t.Context(), e.Payload)
	require.NoError(t, err)
	again, err := c.FromJSON(t.Context(), e.Type, text)
	require.NoError(t, err)
	require.Equal(t, e.Payload, again.Payload, "logical types survive being edited: %s", text)
}

func TestReadOnlyRegistersNothing(t *testing.T) {
	ctx := context.Background()
	r, server := newRegistry(t)
	cfg := schemas.Config{Registry: r, Types: []schemas.Type{schemas.Bind[parcel](parcelSchema)}, ReadOnly: true}
	_, err := schemas.New(ctx, cfg)
	require.ErrorIs(t, err, schemas.ErrNoSchema)
	require.False(t, server.SubjectExists("shop.Parcel"))

	id, err := r.Register(ctx, "shop.Parcel", parcelSchema)
	require.NoError(t, err)
	c, err := schemas.New(ctx, cfg)
	require.NoError(t, err)
	e, err := c.Encode("t", parcel{})
	require.NoError(t, err)
	require.Equal(t, id, binary.BigEndian.Uint32(e.Payload[1:]))
}

func TestAnIncompatibleWriterIsPoison(t *testing.T) {
	ctx := context.Background()
	r, _ := newRegistry(t)
	c, err := schemas.New(ctx, schemas.Config{Registry: r, Types: append(messages.Types(), schemas.Bind[parcel](parcelSchema))})
	require.NoError(t, err)

	other, err := c.Encode("t", messages.PaymentRefused{OrderID: "o", Reason: "r"})
	require.NoError(t, err)
	require.ErrorIs(t, c.Decode(envelope.Message{Payload: other.Payload}, &messages.StockRefused{}), envelope.ErrPayload,
		"the same fields under another name are another message")

	id, err := r.Register(ctx, "shop.Parcel", `{"type":"record","name":"shop.Parcel","fields":[{"name":"id","type":"string"}]}`)
	require.NoError(t, err)
	payload := append(binary.BigEndian.AppendUint32([]byte{0}, id), 0)
	require.ErrorIs(t, c.Decode(envelope.Message{Payload: payload}, &parcel{}), envelope.ErrPayload,
		"grams has no default")
}

func TestAnUnknownIDIsPoisonAfterFiveAsks(t *testing.T) {
	r, server := newRegistry(t)
	now := time.Now()
	r.SetClock(func() time.Time { return now })
	c, err := schemas.New(t.Context(), schemas.Config{Registry: r, Types: []schemas.Type{schemas.Bind[parcel](parcelSchema)}})
	require.NoError(t, err)
	decode := func(id byte) error {
		var p parcel
		return c.Decode(envelope.Message{Payload: []byte{0, 0, 0, 9, id, 0, 0}}, &p)
	}
	for range 4 {
		for range 3 { // however often within a second
			require.ErrorIs(t, decode(1), schemas.ErrNoSchema)
			require.NotErrorIs(t, decode(1), envelope.ErrPayload)
			require.NotErrorIs(t, decode(2), envelope.ErrPayload)
		}
		now = now.Add(time.Second)
	}
	server.SeedSchema("shop.Parcel", 7, 9<<8|2, sr.Schema{Schema: parcelSchema})
	require.NoError(t, decode(2), "the registry was late")
	require.ErrorIs(t, decode(1), envelope.ErrPayload)
	_, _, err = c.ToJSON(t.Context(), []byte{0, 0, 0, 9, 3, 0})
	require.ErrorIs(t, err, envelope.ErrPayload, "a person who looks need not wait")
}

func TestAnotherLogicalTypeIsPoisonAndNotAnotherTime(t *testing.T) {
	type event struct {
		At time.Time `avro:"at"`
	}
	of := func(unit string) string {
		return `{"type":"record","name":"shop.Event","fields":[{"name":"at","type":{"type":"long","logicalType":"timestamp-` + unit + `"}}]}`
	}
	r, _ := newRegistry(t)
	id, err := r.Register(t.Context(), "shop.Event", of("millis"))
	require.NoError(t, err)
	c, err := schemas.New(t.Context(), schemas.Config{Registry: r, Types: []schemas.Type{schemas.Bind[event](of("micros"))}})
	require.NoError(t, err)
	err = c.Decode(envelope.Message{Payload: append(binary.BigEndian.AppendUint32([]byte{0}, id), 2)}, &event{})
	require.ErrorIs(t, err, envelope.ErrPayload)
	require.ErrorContains(t, err, "field at: a timestamp-millis would be read as timestamp-micros")
}
