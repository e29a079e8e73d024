package personal_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/tink-crypto/tink-go/v2/tink"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/schemas/jsonschema"
	"github.com/troupe-go/troupe/schemas/personal"
	"github.com/troupe-go/troupe/schemas/personal/testdata/personpb"
	"github.com/troupe-go/troupe/schemas/protobuf"
	"github.com/troupe-go/troupe/testkit"
)

// The same message in Avro and in JSON.
type (
	tripBooked struct {
		CustomerID string      `avro:"customer_id" json:"customer_id"`
		Email      string      `avro:"email" json:"email"`
		Phone      *string     `avro:"phone" json:"phone"`
		Photo      []byte      `avro:"photo" json:"-"`
		Address    address     `avro:"address" json:"address"`
		Passengers []passenger `avro:"passengers" json:"passengers"`
		Cents      int64       `avro:"cents" json:"cents"`
	}
	address struct {
		Street  string `avro:"street" json:"street"`
		Country string `avro:"country" json:"country"`
	}
	passenger struct {
		ID   int64  `avro:"id" json:"id"`
		Name string `avro:"name" json:"name"`
	}
	// mailSent copies the email of a trip.
	mailSent struct {
		Customer string `avro:"customer"`
		To       string `avro:"to"`
		Name     string `avro:"name"`
	}
	jsonTrip struct {
		CustomerID string      `json:"customer_id"`
		Email      string      `json:"email"`
		Phone      *string     `json:"phone"`
		Address    *address    `json:"address"`
		Passengers []passenger `json:"passengers"`
		Cents      int64       `json:"cents"`
	}
)

const (
	tripAvro = `{"type": "record", "name": "TripBooked", "namespace": "shop", "fields": [
		{"name": "customer_id", "type": "string", "personal": "subject"},
		{"name": "email", "type": "string", "personal": "email"},
		{"name": "phone", "type": ["null", "string"], "default": null, "personal": "phone"},
		{"name": "photo", "type": "bytes", "default": "", "personal": "photo"},
		{"name": "address", "type": {"type": "record", "name": "Address", "fields": [
			{"name": "street", "type": "string", "personal": "street"}, {"name": "country", "type": "string"}]}},
		{"name": "passengers", "type": {"type": "array", "items": {"type": "record", "name": "Passenger", "fields": [
			{"name": "id", "type": "long", "personal": "subject"}, {"name": "name", "type": "string", "personal": "name"}]}}},
		{"name": "cents", "type": "long"}]}`
	mailAvro = `{"type": "record", "name": "MailSent", "namespace": "shop", "fields": [
		{"name": "customer", "type": "string", "personal": "subject"},
		{"name": "to", "type": "string", "personal": "email"},
		{"name": "name", "type": "string", "personal": "name"}]}`
	tripJSON = `{"title": "shop.JSONTrip", "type": "object", "required": ["customer_id", "email"],
		"properties": {
			"customer_id": {"type": "string", "personal": "subject"},
			"email": {"type": "string", "format": "email", "personal": "email"},
			"phone": {"type": ["null", "string"], "personal": "phone"},
			"address": {"$ref": "#/$defs/address"},
			"passengers": {"type": "array", "items": {"type": "object", "properties": {
				"id": {"type": "integer", "personal": "subject"}, "name": {"type": "string", "personal": "name"}}}},
			"cents": {"type": "integer"}},
		"$defs": {"address": {"type": "object", "properties": {
			"street": {"type": "string", "personal": "street"}, "country": {"type": "string"}}}}}`
)

var kekText = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))

// A stage has a registry and a table of keys.
type stage struct {
	*testing.T
	registry *srfake.Registry
	pool     *pgxpool.Pool
	table    *personal.Table
}

func newStage(t *testing.T) *stage {
	s := &stage{T: t, registry: srfake.New(), pool: testkit.Database(t)}
	t.Cleanup(s.registry.Close)
	s.table = s.open(kekText)
	return s
}

// open opens the table with a key-encryption key.
func (s *stage) open(kek string) *personal.Table {
	s.Helper()
	key, err := personal.ParseKeys(kek)
	require.NoError(s, err)
	table, err := personal.NewTable(s.Context(), s.pool, key)
	require.NoError(s, err)
	s.Cleanup(table.Close)
	return table
}

// plain returns a codec that knows nothing of keys, as consoles have it.
func (s *stage) plain() *schemas.Codec {
	s.Helper()
	r, err := schemas.NewRegistry(s.registry.URL())
	require.NoError(s, err)
	c, err := schemas.New(s.Context(), schemas.Config{
		Registry: r,
		Types:    []schemas.Type{schemas.Bind[tripBooked](tripAvro), schemas.Bind[mailSent](mailAvro)},
		Formats: []schemas.Format{
			jsonschema.New(jsonschema.Bind[jsonTrip](tripJSON)),
			protobuf.New(personpb.Files, &personpb.TripBooked{}),
		},
	})
	require.NoError(s, err)
	return c
}

func (s *stage) codec(change ...func(*personal.Config)) *personal.Codec {
	s.Helper()
	cfg := personal.Config{Codec: s.plain(), Keys: s.table}
	for _, set := range change {
		set(&cfg)
	}
	c, err := personal.New(cfg)
	require.NoError(s, err)
	return c
}

func (s *stage) exec(sql string, args ...any) {
	s.Helper()
	_, err := s.pool.Exec(s.Context(), sql, args...)
	require.NoError(s, err, sql)
}

func (s *stage) encode(c *personal.Codec, body any) envelope.Message {
	s.Helper()
	e, err := c.Encode("t", body)
	require.NoError(s, err)
	return envelope.Message{Type: e.Type, ContentType: e.ContentType, Payload: e.Payload}
}

const forget = "UPDATE troupe.subject_keys SET wrapped_key = NULL, forgotten_at = now() WHERE subject = sha256(convert_to($1, 'UTF8'))"

// bodies returns the same trip in all formats, and new values to decode into.
func bodies() map[string][2]any {
	phone := "phone-secret"
	trip := tripBooked{
		CustomerID: "c-1", Email: "email-secret", Phone: &phone, Photo: []byte("photo-secret"), Address: address{"street-secret", "IE"},
		Passengers: []passenger{{1, "first-secret"}, {2, "second-secret"}}, Cents: 5,
	}
	return map[string][2]any{
		"avro":            {trip, new(tripBooked)},
		"avro by pointer": {&trip, new(tripBooked)},
		"json":            {jsonTrip{"c-1", "email-secret", &phone, &trip.Address, trip.Passengers, 5}, new(jsonTrip)},
		"protobuf": {&personpb.TripBooked{
			CustomerId: "c-1", Email: "email-secret", Phone: &phone, Photo: []byte("photo-secret"),
			Address:    &personpb.Address{Street: "street-secret", Country: "IE"},
			Passengers: []*personpb.Passenger{{Id: 1, Name: "first-secret"}, {Id: 2, Name: "second-secret"}}, Cents: 5,
		}, new(personpb.TripBooked)},
	}
}

// TestPersonalFieldsAreEncryptedInAllFormats, wherever they are, and only for programs without the keys.
func TestPersonalFieldsAreEncryptedInAllFormats(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for name, b := range bodies() {
		t.Run(name, func(t *testing.T) {
			before := fmt.Sprintf("%+v", b[0])
			codec := s.codec()
			m := s.encode(codec, b[0])
			require.Equal(t, before, fmt.Sprintf("%+v", b[0]), "Encode changed the caller's value")
			require.NotContains(t, string(m.Payload), "secret")
			require.Contains(t, string(m.Payload), "c-1")
			encrypted := 6
			if name == "json" {
				encrypted = 5 // it has no bytes
			}
			require.Equal(t, encrypted, strings.Count(string(m.Payload), personal.Prefix))

			require.Equal(t, m, s.encode(codec, b[0]), "the same value again has the same bytes, by which a repeated request is recognised")
			require.NoError(t, codec.Decode(m, b[1]))
			want := fmt.Sprintf("%+v", b[1])
			require.Contains(t, want, "second-secret")
			plain := s.plain()
			unencrypted, err := plain.Encode("t", b[0])
			require.NoError(t, err)
			again, err := plain.Encode("t", b[1])
			require.NoError(t, err)
			require.Equal(t, unencrypted.Payload, again.Payload)

			// Another process, and an edit of the message as JSON, which keeps the encrypted texts.
			_, text, err := plain.ToJSON(t.Context(), m.Payload)
			require.NoError(t, err)
			require.Contains(t, string(text), personal.Prefix)
			m.Payload, err = plain.FromJSONLike(t.Context(), m.Payload, bytes.ReplaceAll(text, []byte(`"IE"`), []byte(`"FR"`)))
			require.NoError(t, err)
			other := b[1]
			require.NoError(t, s.codec().Decode(m, other))
			again, err = plain.Encode("t", other)
			require.NoError(t, err)
			require.Equal(t, bytes.ReplaceAll(unencrypted.Payload, []byte("IE"), []byte("FR")), again.Payload)
		})
	}
}

// TestAForgottenKeyLeavesFieldsEmptyInAllFormats, and no message becomes a dead letter for it.
func TestAForgottenKeyLeavesFieldsEmptyInAllFormats(t *testing.T) {
	t.Parallel()
	for name, b := range bodies() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			m := s.encode(s.codec(), b[0])
			s.exec(forget, "c-1")
			s.exec(forget, "2")
			codec := s.codec()
			require.NoError(t, codec.Decode(m, b[1]))
			read, err := s.plain().Encode("t", b[1])
			require.NoError(t, err)
			require.Contains(t, string(read.Payload), "first-secret")
			require.Contains(t, string(read.Payload), "IE")
			require.NotContains(t, string(read.Payload), "email-secret")
			require.NotContains(t, string(read.Payload), "second-secret")
			require.NotContains(t, string(read.Payload), personal.Prefix)

			fields, err := codec.Forgotten(m)
			require.NoError(t, err)
			require.Contains(t, fields, "email")
			require.Contains(t, fields, "address.street")
			require.Contains(t, fields, "passengers[1].name")
			require.NotContains(t, fields, "passengers[0].name")

			_, err = codec.Encode("t", b[0])
			require.ErrorIs(t, err, personal.ErrForgotten)
			require.True(t, retry.IsPermanent(err))
			e, err := codec.Encode("t", b[1]) // without the forgotten data
			require.NoError(t, err)
			require.NotContains(t, string(e.Payload), "first-secret")
		})
	}
}

// TestForgettingTakesEffectWithinTheAgeOfACachedKey.
func TestForgettingTakesEffectWithinTheAgeOfACachedKey(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	now := time.Now()
	codec := s.codec(func(c *personal.Config) { c.CacheFor = time.Hour })
	codec.SetClock(func() time.Time { return now })
	m := s.encode(codec, mailSent{"c-1", "a@example.com", ""})
	s.exec(forget, "c-1")
	var got mailSent
	now = now.Add(59 * time.Minute)
	require.NoError(t, codec.Decode(m, &got))
	require.Equal(t, "a@example.com", got.To)
	now = now.Add(time.Minute)
	require.NoError(t, codec.Decode(m, &got))
	require.Empty(t, got.To)
}

// TestAnEncryptedValueCannotBeMoved to another subject or kind, but can be copied to a field of the same kind, as sagas do.
func TestAnEncryptedValueCannotBeMoved(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	codec, plain := s.codec(), s.plain()
	m := s.encode(codec, tripBooked{CustomerID: "c-1", Email: "a@example.com", Passengers: []passenger{{ID: 9, Name: "Ann"}}})
	s.encode(codec, mailSent{"c-2", "b@example.com", ""}) // so that c-2 has a key
	var raw tripBooked
	require.NoError(t, plain.Decode(m, &raw))
	for name, c := range map[string]struct {
		mail mailSent
		want string
		err  error
	}{
		"same kind and subject": {mailSent{"c-1", raw.Email, ""}, "a@example.com", nil},
		"another subject":       {mailSent{"c-2", raw.Email, ""}, "", envelope.ErrPayload},
		"another kind":          {mailSent{"c-1", "", raw.Email}, "", envelope.ErrPayload},
		"no subject":            {mailSent{"", raw.Email, ""}, "", envelope.ErrPayload},
		"changed":               {mailSent{"c-1", raw.Email[:len(raw.Email)-2] + "AA", ""}, "", envelope.ErrPayload},
		"cut short":             {mailSent{"c-1", raw.Email[:len(personal.Prefix)+4], ""}, "", envelope.ErrPayload},
		"only the prefix":       {mailSent{"c-1", personal.Prefix, ""}, "", envelope.ErrPayload},
		"no base64":             {mailSent{"c-1", personal.Prefix + "?", ""}, "", envelope.ErrPayload},
	} {
		e, err := plain.Encode("t", c.mail)
		require.NoError(t, err)
		var got mailSent
		err = codec.Decode(envelope.Message{ContentType: e.ContentType, Payload: e.Payload}, &got)
		require.ErrorIs(t, err, c.err, name)
		if err == nil {
			require.Equal(t, c.want, got.To, name)
		} else {
			require.NotContains(t, err.Error(), "example.com", name)
		}
	}
	// A person enters the text of an encrypted value: it is encrypted as it is, and read as it is.
	m = s.encode(codec, mailSent{"c-2", raw.Email, ""})
	var got mailSent
	require.NoError(t, codec.Decode(m, &got))
	require.Equal(t, raw.Email, got.To)
}

// TestALostKeyIsNotTakenForAForgottenOne.
func TestALostKeyIsNotTakenForAForgottenOne(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.encode(s.codec(), mailSent{"c-1", "a@example.com", ""})
	s.exec("DELETE FROM troupe.subject_keys")
	codec := s.codec()
	err := codec.Decode(m, new(mailSent))
	require.ErrorIs(t, err, personal.ErrNoKey)
	require.NotErrorIs(t, err, envelope.ErrPayload)
	s.encode(codec, mailSent{"c-1", "b@example.com", ""}) // with another key
	require.ErrorIs(t, codec.Decode(m, new(mailSent)), envelope.ErrPayload)
}

// A failing store counts its calls.
type failing struct {
	personal.Keys
	calls int
	err   error
}

func (f *failing) Find(ctx context.Context, subject string) (tink.DeterministicAEAD, error) {
	if f.calls++; f.err != nil {
		return nil, f.err
	}
	return f.Keys.Find(ctx, subject)
}

// TestAStoreThatIsAwayIsAskedOnceASecond, and its error is not the message's.
func TestAStoreThatIsAwayIsAskedOnceASecond(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.encode(s.codec(), mailSent{"c-1", "a@example.com", ""})
	store := &failing{s.table, 0, errors.New("connection refused")}
	now := time.Now()
	codec := s.codec(func(c *personal.Config) { c.Keys = store })
	codec.SetClock(func() time.Time { return now })
	for range 3 {
		err := codec.Decode(m, new(mailSent))
		require.ErrorContains(t, err, "connection refused")
		require.NotErrorIs(t, err, envelope.ErrPayload)
	}
	require.Equal(t, 1, store.calls)
	store.err = nil
	now = now.Add(time.Second)
	require.NoError(t, codec.Decode(m, new(mailSent)))
	require.NoError(t, codec.Decode(m, new(mailSent)))
	require.Equal(t, 2, store.calls)
}

// TestManyProcessesMakeOneKey for a new subject.
func TestManyProcessesMakeOneKey(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var all sync.WaitGroup
	messages := make([]envelope.Message, 8)
	for i := range messages {
		codec := s.codec()
		all.Go(func() { messages[i] = s.encode(codec, mailSent{"c-1", fmt.Sprint(i), ""}) })
	}
	all.Wait()
	codec := s.codec()
	for i, m := range messages {
		var got mailSent
		require.NoError(t, codec.Decode(m, &got))
		require.Equal(t, fmt.Sprint(i), got.To)
	}
}

// TestTheKeyEncryptionKeyIsChanged while services run, and an erased key stays erased.
func TestTheKeyEncryptionKeyIsChanged(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	newer := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{8}, 32))
	m := s.encode(s.codec(), mailSent{"c-1", "a@example.com", ""})
	s.encode(s.codec(), mailSent{"c-2", "b@example.com", ""})
	s.exec(forget, "c-2")
	with := func(kek string) *personal.Codec {
		return s.codec(func(c *personal.Config) { c.Keys = s.open(kek) })
	}
	err := with(newer).Decode(m, new(mailSent))
	require.ErrorContains(t, err, "another key-encryption key")
	require.NotErrorIs(t, err, envelope.ErrPayload)
	both := newer + "\n" + kekText + "\n"
	require.NoError(t, with(both).Decode(m, new(mailSent)))
	n, err := s.open(both).Rewrap(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, with(newer).Decode(m, new(mailSent)))
	require.Error(t, with(kekText).Decode(m, new(mailSent)))

	// A key is bound to its row.
	s.encode(with(newer), mailSent{"c-3", "x", ""})
	s.exec(`UPDATE troupe.subject_keys SET wrapped_key = (SELECT wrapped_key FROM troupe.subject_keys WHERE subject = sha256('c-3'))
		WHERE subject = sha256('c-1')`)
	require.ErrorContains(t, with(newer).Decode(m, new(mailSent)), "decrypt the subject's key")
}

// TestServicesReadEachOthersKeysWhileTheKeyEncryptionKeyIsChanged: at each step, services of the step before still run.
func TestServicesReadEachOthersKeysWhileTheKeyEncryptionKeyIsChanged(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	newer := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{8}, 32))
	steps := []string{kekText, kekText + "\n" + newer, newer + "\n" + kekText, newer}
	for i := range len(steps) - 1 {
		if i == len(steps)-2 {
			_, err := s.open(steps[i]).Rewrap(t.Context())
			require.NoError(t, err)
		}
		both := []*personal.Codec{
			s.codec(func(c *personal.Config) { c.Keys = s.open(steps[i]) }), s.codec(func(c *personal.Config) { c.Keys = s.open(steps[i+1]) }),
		}
		for j, writer := range both {
			m := s.encode(writer, mailSent{fmt.Sprintf("c-%d-%d", i, j), "a@example.com", ""})
			require.NoError(t, both[1-j].Decode(m, new(mailSent)), "step %d", i)
		}
	}
}

func TestTextsThatAreNoKeyEncryptionKey(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "secret", kekText + "\nsecret", kekText + "\n" + kekText, base64.StdEncoding.EncodeToString([]byte("short"))} {
		_, err := personal.ParseKeys(text)
		require.ErrorContains(t, err, "openssl rand", text)
		require.NotContains(t, err.Error(), "secret")
		require.NotContains(t, err.Error(), kekText)
	}
}

// TestAFieldBecomesPersonalStepByStep: readers first, which read both; then writers.
func TestAFieldBecomesPersonalStepByStep(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	reads, writes := s.codec(func(c *personal.Config) { c.DecryptOnly = true }), s.codec()
	body := mailSent{"c-1", "a@example.com", ""}
	older, err := s.plain().Encode("t", body)
	require.NoError(t, err)
	for _, c := range []*personal.Codec{reads, writes} {
		for _, m := range []envelope.Message{{ContentType: older.ContentType, Payload: older.Payload}, s.encode(reads, body), s.encode(writes, body)} {
			var got mailSent
			require.NoError(t, c.Decode(m, &got))
			require.Equal(t, body, got)
		}
	}
	_, err = reads.Encode("t", mailSent{"c-1", personal.Prefix + "x", ""})
	require.True(t, retry.IsPermanent(err))

	_, err = writes.Encode("t", mailSent{"", "a@example.com", ""})
	require.ErrorContains(t, err, "subject is empty")
	require.True(t, retry.IsPermanent(err))
}

// wrongType is the type of wrongMessage. The zero value has it too, since the zero value of a generated message has its type.
var wrongType protoreflect.MessageDescriptor

type wrongMessage struct{}

func (*wrongMessage) ProtoReflect() protoreflect.Message { return dynamicpb.NewMessage(wrongType) }

// TestMarksThatCannotBeAreRefusedAtTheStart.
func TestMarksThatCannotBeAreRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r, err := schemas.NewRegistry(s.registry.URL())
	require.NoError(t, err)
	refused := func(want string, cfg schemas.Config) {
		t.Helper()
		cfg.Registry = r
		codec, err := schemas.New(t.Context(), cfg)
		require.NoError(t, err)
		_, err = personal.New(personal.Config{Codec: codec, Keys: s.table})
		require.ErrorContains(t, err, want)
	}
	type any1 struct {
		ID string `avro:"id" json:"id"`
		X  any    `avro:"x" json:"x"`
	}
	avro := func(name, fields string) schemas.Config {
		return schemas.Config{Types: []schemas.Type{schemas.Bind[any1](`{"type": "record", "name": "` + name + `", "fields": [
			{"name": "id", "type": "string", "personal": "subject"}, ` + fields + `]}`)}}
	}
	refused("a long cannot be marked as age", avro("a1", `{"name": "x", "type": "long", "personal": "age"}`))
	refused("cannot be encrypted", avro("a2", `{"name": "x", "type": {"type": "string", "logicalType": "uuid"}, "personal": "name"}`))
	refused("a array of string cannot be marked as name", avro("a3", `{"name": "x", "type": {"type": "array", "items": "string"}, "personal": "name"}`))
	refused("field n of x: only fields of records", avro("a4", `{"name": "x", "type": {"type": "map", "values": {"type": "record", "name": "m", "fields": [
		{"name": "n", "type": "string", "personal": "name"}]}}}`))
	refused("contains itself", avro("a5", `{"name": "x", "type": {"type": "record", "name": "tree", "fields": [
		{"name": "n", "type": "string", "personal": "name"}, {"name": "children", "type": {"type": "array", "items": "tree"}}]}}`))
	refused(`"Full Name" is no kind`, avro("a6", `{"name": "x", "type": "string", "personal": "Full Name"}`))
	refused("id is the subject already", avro("a7", `{"name": "x", "type": "string", "personal": "subject"}`))
	refused("set it at a field", avro("a8", `{"name": "x", "type": {"type": "string", "personal": "name"}}`))
	refused("field X is personal, and of type interface {}", avro("a9", `{"name": "x", "type": "string", "personal": "name"}`))
	refused("no field is the subject", schemas.Config{Types: []schemas.Type{schemas.Bind[any1](`{"type": "record", "name": "a10", "fields": [
		{"name": "id", "type": "string"}, {"name": "x", "type": "string", "personal": "name"}]}`)}})

	json := func(name, property string) schemas.Config {
		return schemas.Config{Formats: []schemas.Format{jsonschema.New(jsonschema.Bind[any1](`{"title": "` + name + `", "type": "object", "properties": {
			"id": {"type": "string", "personal": "subject"}, ` + property + `}}`))}}
	}
	refused("want the type string", json("j1", `"x": {"type": "integer", "personal": "age"}`))
	refused("want the type string", json("j2", `"x": {"personal": "age"}`))
	refused("does not fit maxLength", json("j3", `"x": {"type": "string", "maxLength": 10, "personal": "name"}`))
	refused("does not fit minLength", json("j9", `"x": {"type": "string", "minLength": 1, "personal": "name"}`))
	refused("does not fit pattern", json("j4", `"x": {"type": "string", "pattern": "^a", "personal": "name"}`))
	refused("#/properties/x/anyOf/0/properties/n: only properties", json("j5", `"x": {"anyOf": [{"properties": {"n": {"type": "string", "personal": "name"}}}]}`))
	refused("#/properties/x/items: only properties", json("j6", `"x": {"type": "array", "items": {"type": "string", "personal": "name"}}`))
	refused("contains itself", json("j7", `"x": {"properties": {"n": {"type": "string", "personal": "name"}, "x": {"$ref": "#/properties/x"}}}`))
	refused("field X: interface {}: want a struct", json("j8", `"x": {"properties": {"n": {"type": "string", "personal": "name"}}}`))

	files := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{"testdata", "../protobuf"}})}
	wrong, err := files.Compile(t.Context(), "wrong.proto", "extended.proto")
	require.NoError(t, err)
	require.NoError(t, protoregistry.GlobalTypes.RegisterExtension(dynamicpb.NewExtensionType(wrong[1].Extensions().Get(0))))
	for name, want := range map[protoreflect.FullName]string{
		"WrongNumber": "field age cannot be marked as age", "WrongList": "field names cannot be marked",
		"WrongMap": "the values of a map", "WrongTree": "contains itself", "WithoutSubject": "no field is the subject",
		"WrongPlace": "field others: the values of a map", "WrongBranch": "children: a message that contains itself",
		"WrongExtended": "the extension troupe.test.email cannot have personal fields",
	} {
		of, err := wrong.AsResolver().FindDescriptorByName("troupe.test." + name)
		require.NoError(t, err)
		wrongType = of.(protoreflect.MessageDescriptor)
		refused(want, schemas.Config{Formats: []schemas.Format{protobuf.New(os.DirFS("testdata"), new(wrongMessage))}})
	}
	_, err = personal.New(personal.Config{Codec: s.plain()})
	require.ErrorContains(t, err, "Keys is nil")
	_, err = personal.New(personal.Config{Keys: s.table})
	require.ErrorContains(t, err, "Codec is nil")
}

// TestAllKeysAreEncryptedAgain, also where they are more than are read at a time.
func TestAllKeysAreEncryptedAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const keys = 1001
	for i := range keys {
		_, err := s.table.Make(t.Context(), fmt.Sprint(i))
		require.NoError(t, err)
	}
	newer := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{8}, 32))
	n, err := s.open(newer + "\n" + kekText).Rewrap(t.Context())
	require.NoError(t, err)
	require.Equal(t, keys, n)
	only := s.open(newer)
	for i := range keys {
		_, err := only.Find(t.Context(), fmt.Sprint(i))
		require.NoError(t, err)
	}
}
