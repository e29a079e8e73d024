package repair_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestAnEditIsWhatARedriveSends(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fails("*", "cents must not be negative", true)
	s.participant()
	s.send(s.command("a", Charge{N: 1, Cents: -5}))
	s.waitCount(1, openLetters)
	id := s.letters()[0].ID

	for _, text := range []string{"", "{", `{"n":1} {}`, "no"} {
		err := s.desk.Edit(t.Context(), id, []byte(text), ann)
		require.ErrorIs(t, err, repair.ErrPayload, text)
	}
	require.NoError(t, s.desk.Edit(t.Context(), id, []byte(` {"n":1,"cents":500} `), ann))
	require.NoError(t, s.desk.Edit(t.Context(), id, []byte(`{"n":1,"cents":5}`), admin.Actor{Name: "bob", Reason: "ann meant cents"}))

	l, err := s.desk.Show(t.Context(), id)
	require.NoError(t, err)
	require.True(t, l.Edited)
	require.JSONEq(t, `{"n":1,"cents":-5}`, string(l.Payload.JSON), "as it came")
	require.JSONEq(t, `{"n":1,"cents":5}`, string(l.Edit.JSON))
	require.Len(t, l.History, 2)
	require.Equal(t, []string{"edit", "ann", "ticket 4711"}, []string{l.History[0].Action, l.History[0].Actor, l.History[0].Reason})
	require.NotEmpty(t, l.History[0].Role)
	require.JSONEq(t, `{"n":1,"cents":-5}`, string(l.History[0].Before.JSON))
	require.JSONEq(t, `{"n":1,"cents":500}`, string(l.History[0].After.JSON))
	require.JSONEq(t, `{"n":1,"cents":500}`, string(l.History[1].Before.JSON))

	s.exec("DELETE FROM rules")
	s.relay()
	_, err = s.desk.Redrive(t.Context(), repair.Filter{}, quickly)
	require.NoError(t, err)
	s.waitCount(1, "SELECT count(*) FROM charges WHERE cents = 5")
}

type avroCharge struct {
	N     int64  `avro:"n"`
	Cents int64  `avro:"cents"`
	Note  string `avro:"note"`
}

const avroSchema = `{"type":"record","name":"shop.ChargeCard","fields":[
	{"name":"n","type":"long"},{"name":"cents","type":"long"},{"name":"note","type":"string","default":""}]}`

// TestAvroIsShownAndEditedAsJSON uses the schema that the message was written with, and checks what that schema does not
// allow.
func TestAvroIsShownAndEditedAsJSON(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	registry, err := schemas.NewRegistry(testkit.Registry(t))
	require.NoError(t, err)
	codec, err := schemas.New(t.Context(), schemas.Config{Registry: registry, Types: []schemas.Type{schemas.Bind[avroCharge](avroSchema)}})
	require.NoError(t, err)
	generic, err := schemas.New(t.Context(), schemas.Config{Registry: registry})
	require.NoError(t, err)
	desk, err := repair.New(repair.Config{Pool: s.pool, Codec: generic})
	require.NoError(t, err)
	s.participant() // it has no handler for the type, so all messages become dead letters

	encoded, err := codec.Encode(s.hop.Commands(), avroCharge{N: 1, Cents: -5, Note: "gift"})
	require.NoError(t, err)
	good := s.command("good", Charge{})
	good.Type, good.ContentType, good.Payload = encoded.Type, encoded.ContentType, encoded.Payload
	plain := good // without a content type, so the wire format decides
	plain.ID, plain.Key, plain.ContentType = envelope.NewID(), []byte("plain"), ""
	short := good
	short.ID, short.Key, short.Payload = envelope.NewID(), []byte("short"), encoded.Payload[:6]
	magic := good
	magic.ID, magic.Key, magic.Payload = envelope.NewID(), []byte("magic"), []byte{7, 0, 0, 0, 1, 2}
	other := good
	other.ID, other.Key, other.ContentType, other.Payload = envelope.NewID(), []byte("other"), "image/png", []byte{0x89, 'P'}
	tombstone := &kgo.Record{Topic: s.hop.Commands(), Key: []byte("none")}
	s.send(good, plain, short, magic, other)
	require.NoError(t, s.client.ProduceSync(t.Context(), tombstone).FirstErr())
	s.waitCount(6, openLetters)
	letters := make(map[string]repair.DeadLetter)
	for _, l := range s.letters() {
		letters[l.Key.String()] = l
	}
	show := func(d *repair.Desk, key string) repair.Payload {
		l, err := d.Show(t.Context(), letters[key].ID)
		require.NoError(t, err)
		return l.Payload
	}

	for _, key := range []string{"good", "plain"} {
		p := show(desk, key)
		require.Equal(t, []string{"avro", "shop.ChargeCard", ""}, []string{p.Format, p.Schema, p.Hex})
		require.JSONEq(t, `{"n":1,"cents":-5,"note":"gift"}`, string(p.JSON))
		p = show(s.desk, key)
		require.Contains(t, p.Note, "schema registry")
		require.NotEmpty(t, p.Hex)
		require.NotZero(t, p.SchemaID)
	}
	require.Equal(t, "8950", show(desk, "other").Hex)
	require.Contains(t, show(desk, "short").Note, "cut short")
	require.Contains(t, show(desk, "magic").Note, "first byte")
	require.Equal(t, "none", show(desk, "none").Format)

	edit := func(d *repair.Desk, key, text string) error {
		return d.Edit(t.Context(), letters[key].ID, []byte(text), ann)
	}
	for text, want := range map[string]string{
		`{"n":1,"cents":"5","note":""}`:        "cents: want a long, got a string",
		`{"n":1,"note":""}`:                    "cents: is missing",
		`{"n":1,"cents":5,"note":"","x":true}`: "x: the record has no such field",
		`[]`:                                   "the value: want a record, got a list",
	} {
		err := edit(desk, "good", text)
		require.ErrorIs(t, err, repair.ErrPayload)
		require.ErrorContains(t, err, "shop.ChargeCard: "+want)
	}
	require.ErrorContains(t, edit(s.desk, "good", `{}`), "name the schema registry")
	require.ErrorContains(t, edit(desk, "other", `{}`), "neither JSON nor has it a schema")
	require.ErrorContains(t, edit(desk, "none", `{}`), "tombstone")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.repairs"), "a refused edit is none")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters WHERE edited_payload IS NOT NULL"))

	want, err := codec.Encode(s.hop.Commands(), avroCharge{N: 1, Cents: 5, Note: "gift"})
	require.NoError(t, err)
	for _, key := range []string{"good", "plain", "short", "magic"} { // also payloads that cannot be read at all
		require.NoError(t, edit(desk, key, `{"n":1,"cents":5,"note":"gift"}`), key)
	}
	r, err := desk.Redrive(t.Context(), repair.Filter{Key: repair.Key("good")}, quickly)
	require.NoError(t, err)
	require.Equal(t, 1, r.Redriven)
	_, err = desk.Redrive(t.Context(), repair.Filter{}, quickly)
	require.NoError(t, err)
	for _, m := range s.entries(s.hop.Commands()) {
		if string(m.Key) != "other" && string(m.Key) != "none" {
			require.Equal(t, want.Payload, m.Payload, string(m.Key))
			require.Equal(t, envelope.Avro, m.ContentType, "said even where it was not")
		}
	}
	require.Len(t, s.entries(s.hop.Commands()), 5)
}
