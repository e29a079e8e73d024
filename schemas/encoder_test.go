package schemas_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/testkit"
)

func TestJSONIsEncodedByTheStrategysSubject(t *testing.T) {
	ctx := t.Context()
	r, err := schemas.NewRegistry(testkit.Registry(t))
	require.NoError(t, err)
	topic := testkit.Flow(t) + ".payment.events"
	typ := topic + ".Offer"
	record := func(field string) string {
		return fmt.Sprintf(`{"type":"record","name":"Offer","fields":[{"name":%q,"type":["null","string"],"default":null}]}`, field)
	}
	for strategy, subject := range map[schemas.Strategy]string{
		schemas.TopicName: topic + "-value", schemas.RecordName: typ, schemas.TopicRecordName: topic + "-" + typ, "": typ,
	} {
		field := "by_" + string(strategy)
		if strategy == "" {
			field = "by_" + string(schemas.RecordName)
		}
		id, err := r.Register(ctx, subject, record(field))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, r.DeleteSubjects(context.Background(), subject)) })
		e, err := schemas.NewJSONEncoder(r, strategy)
		require.NoError(t, err)
		encoded, err := e.Encode(ctx, topic, typ, []byte(`{"`+field+`":"x"}`))
		require.NoError(t, err)
		require.Equal(t, []byte{0, byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id), 2, 2, 'x'}, encoded.Payload)
	}
	parsed, err := schemas.ParseStrategy("io.confluent.kafka.serializers.subject.TopicRecordNameStrategy")
	require.NoError(t, err)
	require.Equal(t, schemas.TopicRecordName, parsed)
	_, err = schemas.NewJSONEncoder(r, "topic")
	require.ErrorContains(t, err, "TopicNameStrategy")
	_, err = schemas.NewJSONEncoder(nil, "")
	require.ErrorContains(t, err, "Registry is nil")
}

// away returns a registry that can stop responding, and a clock.
func away(t *testing.T) (r *schemas.Registry, gone *atomic.Bool, asked *atomic.Int64, later func(time.Duration)) {
	gone = new(atomic.Bool)
	fake := srfake.NewRegistry().Handler()
	r, asked = serve(t, func(w http.ResponseWriter, req *http.Request) {
		if gone.Load() {
			says(503, "")(w, req)
			return
		}
		fake.ServeHTTP(w, req)
	})
	var mu sync.Mutex
	now := time.Now()
	r.SetClock(func() time.Time { mu.Lock(); defer mu.Unlock(); return now })
	return r, gone, asked, func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
}

func TestAnEncodingErrorIsNoRegistryOutage(t *testing.T) {
	ctx := t.Context()
	r, gone, asked, later := away(t)
	e, err := schemas.NewJSONEncoder(r, schemas.RecordName)
	require.NoError(t, err)
	encode := func(typ, text string) error { _, err := e.Encode(ctx, "t", typ, []byte(text)); return err }

	gone.Store(true)
	err = encode("shop.Offer", `{"title":1}`)
	require.Error(t, err)
	require.NotErrorIs(t, err, envelope.ErrPayload)
	require.NotErrorIs(t, err, schemas.ErrNoSchema)

	gone.Store(false)
	later(2 * time.Second)
	err = encode("shop.Offer", `{"title":1}`)
	require.ErrorIs(t, err, schemas.ErrNoSchema)
	require.NotErrorIs(t, err, envelope.ErrPayload)

	_, err = r.Register(ctx, "shop.Offer", offerSchema)
	require.NoError(t, err)
	later(2 * time.Second)
	require.NoError(t, encode("shop.Offer", `{"title":1}`))
	for _, text := range []string{``, `null`, `{`, `{"title":"1"}`, `{"title":1,"colour":"red"}`} {
		require.ErrorIs(t, encode("shop.Offer", text), envelope.ErrPayload, text)
	}
	require.ErrorContains(t, encode("shop.Offer", `{"title":"1"}`), "title: want a long, got a string")

	// For subjects seen before the encoder continues without the registry, and queries it once a minute.
	gone.Store(true)
	later(2 * time.Minute)
	before := asked.Load()
	for range 100 {
		require.NoError(t, encode("shop.Offer", `{"title":1}`))
		later(500 * time.Millisecond)
	}
	require.EqualValues(t, 1, asked.Load()-before)

	// When it is available again, it has a new version, which is used if it responds within a second.
	gone.Store(false)
	_, err = r.Register(ctx, "shop.Offer", offerSchema[:len(offerSchema)-2]+`,{"name":"colour","type":"string","default":"red"}]}`)
	require.NoError(t, err)
	testkit.Wait(t, "the new version", func() (bool, error) {
		later(2 * time.Minute)
		err := encode("shop.Offer", `{"title":1,"colour":"blue"}`)
		return err == nil, err
	})

	// A caller that cancels gets an error.
	left, leave := context.WithCancel(ctx)
	leave()
	later(2 * time.Minute)
	gone.Store(true)
	_, err = e.Encode(left, "t", "shop.Offer", []byte(`{"title":1}`))
	require.Error(t, err)
	require.NotErrorIs(t, err, envelope.ErrPayload)
}

func BenchmarkEncodeJSON(b *testing.B) {
	r, _ := newRegistry(b)
	_, err := r.Register(context.Background(), "shop.Offer", offerSchema)
	require.NoError(b, err)
	e, err := schemas.NewJSONEncoder(r, schemas.RecordName)
	require.NoError(b, err)
	text := []byte(`{"title":7,"note":"x","price":12,"tags":{"a":"b"}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Encode(context.Background(), "t", "shop.Offer", text); err != nil {
			b.Fatal(err)
		}
	}
}
