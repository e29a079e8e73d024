package schemas_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/schemas"
)

const offerSchema = `{"type":"record","name":"shop.Offer","fields":[
	{"name":"title","type":"long"},
	{"name":"note","type":["null","string"],"default":null},
	{"name":"price","type":["null","long"],"default":null},
	{"name":"tags","type":{"type":"map","values":["null","string"]},"default":{}}]}`

func TestJSONMayNameItsBranchesOrNot(t *testing.T) {
	ctx := context.Background()
	r, _ := newRegistry(t)
	_, err := r.Register(ctx, "shop.Offer", offerSchema)
	require.NoError(t, err)
	c, err := schemas.New(ctx, schemas.Config{Registry: r})
	require.NoError(t, err)

	tagged, err := c.FromJSON(ctx, "shop.Offer", []byte(`{"title":9007199254740993,"note":{"string":"x"},"price":{"long":9007199254740993},"tags":{"a":{"string":"b"}}}`))
	require.NoError(t, err)
	bare, err := c.FromJSON(ctx, "shop.Offer", []byte(` {"title": 9007199254740993, "note": "x", "price": 9007199254740993, "tags": {"a": "b"}} `))
	require.NoError(t, err)
	require.Equal(t, tagged, bare, "numbers beyond 2^53 keep their last digit")

	least, err := c.FromJSON(ctx, "shop.Offer", []byte(`{"title":1}`))
	require.NoError(t, err)
	name, text, err := c.ToJSON(ctx, least.Payload)
	require.NoError(t, err)
	require.Equal(t, "shop.Offer", name)
	require.JSONEq(t, `{"title":1,"note":null,"price":null,"tags":{}}`, string(text))
}

// A row of an outbox that lacks fields gets their defaults: two bytes of it could become kilobytes in the relay.
func TestMissingFieldsCannotFillTheMemory(t *testing.T) {
	ctx := context.Background()
	r, _ := newRegistry(t)
	var fields []string
	for i := range 60 {
		fields = append(fields, fmt.Sprintf(`{"name":"f%d","type":["null","string"],"default":null}`, i))
	}
	line := `{"type":"record","name":"Line","fields":[` + strings.Join(fields, ",") + `]}`
	_, err := r.Register(ctx, "shop.Lines", `{"type":"record","name":"shop.Lines","fields":[{"name":"lines","type":{"type":"array","items":`+line+`}}]}`)
	require.NoError(t, err)
	_, err = r.Register(ctx, "shop.Either", `{"type":"record","name":"shop.Either","fields":[{"name":"lines","type":["null",{"type":"map","values":["null",`+line+`]}]}]}`)
	require.NoError(t, err)
	c, err := schemas.New(ctx, schemas.Config{Registry: r})
	require.NoError(t, err)
	var entries strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&entries, `"%d":{},`, i)
	}
	for subject, text := range map[string]string{
		"shop.Lines":  `{"lines":[` + strings.Repeat("{},", 100_000) + `{}]}`,
		"shop.Either": `{"lines":{` + entries.String() + `"x":null}}`,
	} {
		var err error
		got := allocated(func() { _, err = c.FromJSON(ctx, subject, []byte(text)) })
		require.ErrorIs(t, err, envelope.ErrPayload)
		require.ErrorContains(t, err, "more than 4194304 fields", subject)
		require.Less(t, got, uint64(100<<20), subject)
	}
	_, err = c.FromJSON(ctx, "shop.Lines", []byte(`{"lines":[`+strings.Repeat("{},", 5_000)+`{}]}`))
	require.NoError(t, err)
}

// Each value in a map has a path with the map's key: 100,000 values and a key of 200 kB took 20 GB, one after the other.
func TestPathsOfALongKeyTakeLittleMemory(t *testing.T) {
	ctx := context.Background()
	r, _ := newRegistry(t)
	_, err := r.Register(ctx, "shop.Long", `{"type":"record","name":"shop.Long","fields":[{"name":"m","type":{"type":"map","values":
		{"type":"array","items":{"type":"map","values":"long"}}}}]}`)
	require.NoError(t, err)
	c, err := schemas.New(ctx, schemas.Config{Registry: r})
	require.NoError(t, err)
	of := func(last string) []byte {
		return []byte(`{"m":{"` + strings.Repeat("k", 200_000) + `":[` + strings.Repeat(`{"a":1},`, 50_000) + `{"a":` + last + `}]}}`)
	}
	got := allocated(func() { _, err = c.FromValues(ctx, "shop.Long", of("1")) })
	require.NoError(t, err)
	require.Less(t, got, uint64(500<<20))
	got = allocated(func() { _, err = c.FromJSON(ctx, "shop.Long", of(`"x"`)) })
	require.ErrorIs(t, err, envelope.ErrPayload)
	require.ErrorContains(t, err, "m.kkk")
	require.Less(t, got, uint64(500<<20))
}

// If a union cannot hold a value, goavro copies the rest of the text into the error, and a union around it tries its next branch.
func TestBareValuesOfUnionsWithinUnionsHaveALimit(t *testing.T) {
	ctx := context.Background()
	r, _ := newRegistry(t)
	_, err := r.Register(ctx, "shop.Parts", `{"type":"record","name":"shop.Parts","fields":[{"name":"all","type":{"type":"array","items":[
		{"type":"record","name":"A","fields":[{"name":"x","type":["null","string"]}]},
		{"type":"record","name":"B","fields":[{"name":"x","type":["null","int"]}]}]}}]}`)
	require.NoError(t, err)
	c, err := schemas.New(ctx, schemas.Config{Registry: r})
	require.NoError(t, err)
	_, err = c.FromJSON(ctx, "shop.Parts", []byte(`{"all":[`+strings.Repeat(`{"x":5},`, 5_000)+`{"x":"5"}]}`))
	require.NoError(t, err)
	got := allocated(func() {
		_, err = c.FromJSON(ctx, "shop.Parts", []byte(`{"all":[`+strings.Repeat(`{"x":5},`, 60_000)+`{"x":"5"}]}`))
	})
	require.ErrorIs(t, err, envelope.ErrPayload)
	require.ErrorContains(t, err, "name the branches")
	require.Less(t, got, uint64(100<<20))
}

// A name of megabytes is not quoted for each branch of each union around it.
func TestAMistakeIsSearchedWithoutCopies(t *testing.T) {
	ctx := context.Background()
	r, _ := newRegistry(t)
	_, err := r.Register(ctx, "N", `{"type":"record","name":"N","fields":[{"name":"next","type":["null","N"]},
		{"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"]},"default":"A"}]}`)
	require.NoError(t, err)
	c, err := schemas.New(ctx, schemas.Config{Registry: r})
	require.NoError(t, err)
	text := []byte(strings.Repeat(`{"next":`, 12) + `{"next":null,"e":"` + strings.Repeat("x", 100_000) + `"}` + strings.Repeat("}", 12))
	got := allocated(func() { _, err = c.FromJSON(ctx, "N", text) })
	require.ErrorIs(t, err, envelope.ErrPayload)
	require.ErrorContains(t, err, "is none of [A B]")
	require.Less(t, got, uint64(100<<20))

	_, err = r.Register(ctx, "Tree", `{"type":"record","name":"Tree","fields":[{"name":"s","type":"string"},
		{"name":"c","type":{"type":"array","items":"Tree"}},{"name":"v","type":["null","int"]}]}`)
	require.NoError(t, err)
	tree := func(leaf string) []byte {
		return []byte(strings.Repeat(`{"s":"","v":null,"c":[`, 60) + `{"s":"` + strings.Repeat("x", 100_000) + `","c":[],"v":` + leaf + "}" + strings.Repeat("]}", 60))
	}
	_, err = c.FromJSON(ctx, "Tree", tree(`{"int":7}`))
	require.NoError(t, err)
	got = allocated(func() { _, err = c.FromJSON(ctx, "Tree", tree("{}")) })
	require.ErrorIs(t, err, envelope.ErrPayload)
	require.ErrorContains(t, err, "c[0].c[0]")
	require.Less(t, got, uint64(100<<20))
}

// TestAPayloadOfARecursiveSchemaIsReadHoweverLong has a number for a decimal, and unions that name a branch by its logical type.
func TestAPayloadOfARecursiveSchemaIsReadHoweverLong(t *testing.T) {
	ctx := context.Background()
	r, _ := newRegistry(t)
	_, err := r.Register(ctx, "Order", `{"type":"record","name":"Order","fields":[
		{"name":"note","type":"string"},{"name":"next","type":["null","Order"]},
		{"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}},
		{"name":"at","type":["null",{"type":"long","logicalType":"timestamp-millis"}]}]}`)
	require.NoError(t, err)
	c, err := schemas.New(ctx, schemas.Config{Registry: r})
	require.NoError(t, err)
	for _, length := range []int{10, 20_000} {
		text := fmt.Sprintf(`{"note":%q,"next":null,"price":12.50,"at":{"long.timestamp-millis":1700000000000}}`, strings.Repeat("n", length))
		body, err := c.FromJSON(ctx, "Order", []byte(text))
		require.NoError(t, err, "%d", length)
		_, printed, err := c.ToJSON(ctx, body.Payload)
		require.NoError(t, err)
		again, err := c.FromJSON(ctx, "Order", printed)
		require.NoError(t, err, "%d", length)
		require.Equal(t, body, again)
	}
}

// A text with more values than a payload may have is not decoded.
func TestJSONForASchemaHasALimitOfValues(t *testing.T) {
	ctx := context.Background()
	c := newCodec(t, hostile()...)
	text := []byte(`{"items":[` + strings.Repeat("0,", schemas.MaxValues) + `0]}`)
	got := allocated(func() {
		_, err := c.FromJSON(ctx, "longs", text)
		require.ErrorIs(t, err, envelope.ErrPayload)
		require.ErrorContains(t, err, "more than 1048576 values")
		err = c.Decode(envelope.Message{ContentType: envelope.JSON, Payload: text}, new(longs))
		require.ErrorIs(t, err, envelope.ErrPayload)
		require.ErrorContains(t, err, "more than 1048576 values")
	})
	require.Less(t, got, uint64(1<<20))
}

func TestJSONThatDoesNotFitIsRefused(t *testing.T) {
	ctx := context.Background()
	r, _ := newRegistry(t)
	_, err := r.Register(ctx, "shop.Offer", offerSchema)
	require.NoError(t, err)
	c, err := schemas.New(ctx, schemas.Config{Registry: r, Types: hostile()})
	require.NoError(t, err)
	for _, text := range []string{
		``, `{`, `null`, `[]`, `7`, `{"title":1}{"title":2}`, `{"title":1} x`, `{}`,
		`{"title":"1"}`, `{"title":1.5}`, `{"title":9223372036854775808}`, `{"title":1,"colour":"red"}`, `{"title":1,"note":7}`,
	} {
		_, err := c.FromJSON(ctx, "shop.Offer", []byte(text))
		require.ErrorIs(t, err, envelope.ErrPayload, text)
	}
	_, err = c.FromJSON(ctx, "shop.Offer", []byte("{\"title\":1,\"note\":{\"string\":\"\xff\"}}"))
	require.ErrorIs(t, err, envelope.ErrPayload, "text that is not UTF-8")
	_, err = c.FromJSON(ctx, "list", []byte(`{"next":{"next":null}}`))
	require.ErrorIs(t, err, envelope.ErrPayload, "a recursive schema needs its branches named")
	_, err = c.FromJSON(ctx, "list", []byte(`{"next":{"list":{"next":null}}}`))
	require.NoError(t, err)

	_, err = r.Register(ctx, "count", `"long"`)
	require.NoError(t, err)
	_, err = c.FromJSON(ctx, "count", []byte(`1.5`))
	require.ErrorIs(t, err, envelope.ErrPayload, "goavro reads the 1")

	_, err = c.FromJSON(ctx, "shop.Nothing", []byte(`{}`))
	require.ErrorIs(t, err, schemas.ErrNoSchema)
	require.NotErrorIs(t, err, envelope.ErrPayload, "the schema may be registered a moment later")
}

func TestPayloadsThatAreNoRecordsAreShown(t *testing.T) {
	ctx := context.Background()
	r, _ := newRegistry(t)
	c, err := schemas.New(ctx, schemas.Config{Registry: r})
	require.NoError(t, err)
	for i, row := range [][3]string{
		{`"string"`, `"x"`, "string"},
		{`{"type":"array","items":"long"}`, `[1,2]`, "array"},
		{`{"type":"enum","name":"shop.E","symbols":["A"]}`, `"A"`, "shop.E"},
		{`["null","string"]`, `{"string":"x"}`, "union"},
	} {
		subject := fmt.Sprint("s", i)
		_, err := r.Register(ctx, subject, row[0])
		require.NoError(t, err)
		payload, err := c.FromJSON(ctx, subject, []byte(row[1]))
		require.NoError(t, err)
		name, text, err := c.ToJSON(ctx, payload.Payload)
		require.NoError(t, err)
		require.Equal(t, row[1], string(text))
		require.Equal(t, row[2], name)
	}
}

func TestBranchesAreNotTriedWithoutEnd(t *testing.T) {
	// Both branches accept the same fields, so that a wrong value at the bottom would be tried 2^60 times.
	ctx := context.Background()
	r, _ := newRegistry(t)
	next := `{"name":"next","type":["null","A","B"]}`
	_, err := r.Register(ctx, "A", `{"type":"record","name":"A","fields":[{"name":"next","type":["null","A",{"type":"record","name":"B","fields":[`+next+`]}]}]}`)
	require.NoError(t, err)
	c, err := schemas.New(ctx, schemas.Config{Registry: r})
	require.NoError(t, err)
	_, err = c.FromJSON(ctx, "A", []byte(strings.Repeat(`{"next":`, 60)+"7"+strings.Repeat("}", 60)))
	require.ErrorIs(t, err, envelope.ErrPayload)
}

// TestANameUsedAgainMayLeaveOutItsNamespace: most schemas are written so.
func TestANameUsedAgainMayLeaveOutItsNamespace(t *testing.T) {
	ctx := t.Context()
	r, _ := newRegistry(t)
	_, err := r.Register(ctx, "shop.Box", `{"type":"record","name":"shop.Box","fields":[
		{"name":"from","type":{"type":"record","name":"Place","fields":[{"name":"city","type":"string"}]}},
		{"name":"to","type":"Place"}]}`)
	require.NoError(t, err)
	c, err := schemas.New(ctx, schemas.Config{Registry: r})
	require.NoError(t, err)
	text := `{"from":{"city":"Ulm"},"to":{"city":"Bonn"}}`
	payload, err := c.FromJSON(ctx, "shop.Box", []byte(text))
	require.NoError(t, err)
	_, again, err := c.ToJSON(ctx, payload.Payload)
	require.NoError(t, err)
	require.JSONEq(t, text, string(again))

	_, values, err := c.Values(ctx, payload.Payload)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"from": map[string]any{"city": "Ulm"}, "to": map[string]any{"city": "Bonn"}}, values)
}
