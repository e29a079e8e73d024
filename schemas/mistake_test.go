package schemas_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/schemas"
)

const cartSchema = `{"type":"record","name":"shop.Cart","fields":[
	{"name":"id","type":"string"},
	{"name":"paid","type":"boolean","default":false},
	{"name":"note","type":["null","string"],"default":null},
	{"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[
		{"name":"cents","type":"long"},
		{"name":"kind","type":{"type":"enum","name":"Kind","symbols":["BOOK","FILM"]}},
		{"name":"weights","type":{"type":"map","values":"int"},"default":{}}]}},"default":[]},
	{"name":"gift","type":["null","Line","string"],"default":null}]}`

func TestAMistakeInJSONIsNamedByItsPath(t *testing.T) {
	ctx := t.Context()
	r, _ := newRegistry(t)
	_, err := r.Register(ctx, "shop.Cart", cartSchema)
	require.NoError(t, err)
	c, err := schemas.New(ctx, schemas.Config{Registry: r})
	require.NoError(t, err)
	like, err := c.FromJSON(ctx, "shop.Cart", []byte(`{"id":"c-1"}`))
	require.NoError(t, err)

	for text, want := range map[string]string{
		`[]`:                                "the value: want a record, got a list",
		`{}`:                                "id: is missing",
		`{"id":7}`:                          "id: want a string, got a number",
		`{"id":null}`:                       "id: want a string, got null",
		`{"id":"c","colour":"red"}`:         "colour: the record has no such field",
		`{"id":"c","paid":"yes"}`:           "paid: want a boolean, got a string",
		`{"id":"c","note":7}`:               "note: want a string, got a number",
		`{"id":"c","note":{"string":true}}`: "note.string: want a string, got a boolean",
		`{"id":"c","lines":{}}`:             "lines: want an array, got an object",
		`{"id":"c","lines":[{"cents":1,"kind":"BOOK"},{"cents":"x","kind":"BOOK"}]}`:      "lines[1].cents: want a long, got a string",
		`{"id":"c","lines":[{"cents":1.5,"kind":"BOOK"}]}`:                                "lines[0].cents: want a long, got 1.5",
		`{"id":"c","lines":[{"cents":1,"kind":"SONG"}]}`:                                  `lines[0].kind: "SONG" is none of [BOOK FILM]`,
		`{"id":"c","lines":[{"cents":1,"kind":"BOOK","weights":{"a":1,"b":2147483648}}]}`: "lines[0].weights.b: want an int, got 2147483648",
		`{"id":"c","gift":{"shop.Line":{"kind":"BOOK"}}}`:                                 "gift.shop.Line.cents: is missing",
		`{"id":"c","gift":7}`: "gift: want one of [null shop.Line string], got a number",
	} {
		_, err := c.FromJSONLike(ctx, like.Payload, []byte(text))
		require.ErrorIs(t, err, envelope.ErrPayload, text)
		require.ErrorContains(t, err, "shop.Cart: "+want, text)
	}
}

// TestJSONLikeAnotherPayloadKeepsItsSchema: there is a newer version by now, which readers of the old one may not have.
func TestJSONLikeAnotherPayloadKeepsItsSchema(t *testing.T) {
	ctx := t.Context()
	r, _ := newRegistry(t)
	const before = `{"type":"record","name":"shop.Cup","fields":[{"name":"id","type":"string"}]}`
	const today = `{"type":"record","name":"shop.Cup","fields":[{"name":"id","type":"string"},{"name":"size","type":"int","default":0}]}`
	_, err := r.Register(ctx, "shop.Cup", before)
	require.NoError(t, err)
	c, err := schemas.New(ctx, schemas.Config{Registry: r})
	require.NoError(t, err)
	old, err := c.FromJSON(ctx, "shop.Cup", []byte(`{"id":"a"}`))
	require.NoError(t, err)
	_, err = r.Register(ctx, "shop.Cup", today)
	require.NoError(t, err)

	again, err := c.FromJSONLike(ctx, old.Payload[:5], []byte(`{"id":"b"}`))
	require.NoError(t, err)
	require.Equal(t, append(old.Payload[:5:5], 2, 'b'), again)
	_, err = c.FromJSONLike(ctx, old.Payload, []byte(`{"id":"b","size":3}`))
	require.ErrorContains(t, err, "size: the record has no such field")
	_, err = c.FromJSONLike(ctx, []byte("{}"), []byte(`{}`))
	require.ErrorIs(t, err, envelope.ErrPayload, "a payload without a schema id matches no type")
}
