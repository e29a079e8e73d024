package relay

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/outboxrow"
)

func renderDefaults() outboxrow.Defaults {
	return outboxrow.Defaults{Source: "shop", ContentType: func(topic string) string {
		if topic == "avro" {
			return "application/avro"
		}
		return envelope.JSON
	}}
}

// requireSame compares the fast path with the general one, which defines the result.
func requireSame(t *testing.T, row outboxrow.Row) {
	t.Helper()
	r := newRenderer(renderDefaults())
	got, gotErr := r.kafkaRecord(&row)
	message, err := row.Message(renderDefaults())
	if err != nil {
		require.EqualError(t, gotErr, err.Error())
		return
	}
	require.NoError(t, gotErr)
	want := kafka.Record(message)
	require.Equal(t, want.Topic, got.Topic)
	require.Equal(t, want.Key, got.Key)
	require.Equal(t, want.Value, got.Value)
	require.Len(t, got.Headers, len(want.Headers))
	for n := range want.Headers {
		require.Equal(t, want.Headers[n].Key, got.Headers[n].Key)
		require.Equal(t, string(want.Headers[n].Value), string(got.Headers[n].Value), want.Headers[n].Key)
		require.Equal(t, want.Headers[n].Value == nil, got.Headers[n].Value == nil, want.Headers[n].Key)
	}
}

func renderRow(headers string) outboxrow.Row {
	key := "k"
	return outboxrow.Row{
		Position: 1, ID: uuid.MustParse("01a1ff92-4930-752c-b1f2-f31fec83bcc8"), Topic: "t", Key: &key, Type: "Thing",
		Headers: []byte(headers), Payload: []byte("{}"), CreatedAt: time.Date(2026, 11, 21, 1, 2, 3, 456000, time.UTC),
	}
}

func TestARecordIsTheSameOnTheShortWay(t *testing.T) {
	t.Parallel()
	for _, headers := range []string{
		``, `{}`, `{"ce_source": "x"}`, `{"a": "b", "ce_correlationid": "c-1", "content-type": "application/avro"}`,
		`{"z": "1", "a": "2", "bb": "3"}`, `{"ce_time": "2026-01-02T03:04:05.678+02:00"}`, `{"ce_time": "soon"}`, `{"ce_outcome": "success"}`,
		`{"ce_outcome": "perhaps"}`, `{"ce_subject": ""}`, `{"n": 1}`, `{"n": null}`, `{"o": {"a": "b"}}`, `{"e": "\u0007\""}`, `{"u": "é💥"}`,
		`{"ce_specversion": "1.0", "x": "y"}`, `{"ce_specversion": "2.0"}`, `{"ce_id": "another"}`, `{"ce_type": "Other"}`, `{"traceparent": "00-a-b-01"}`,
		`{"": "x"}`, `{"a":"b"}`, `[]`, `{"a": "b"`, `{"a": "b"} `, `nonsense`,
	} {
		requireSame(t, renderRow(headers))
	}
	for name, change := range map[string]func(*outboxrow.Row){
		"no key":        func(r *outboxrow.Row) { r.Key = nil },
		"key of bytes":  func(r *outboxrow.Row) { r.KeyBytes = []byte{0xff, 0} },
		"empty key":     func(r *outboxrow.Row) { r.KeyBytes = []byte{} },
		"tombstone":     func(r *outboxrow.Row) { r.Payload = nil },
		"empty payload": func(r *outboxrow.Row) { r.Payload = []byte{} },
		"content type":  func(r *outboxrow.Row) { r.Topic = "avro" },
		"raw headers": func(r *outboxrow.Row) {
			r.RawHeaders = envelope.MarshalHeaders([]envelope.Header{{Key: "a", Value: []byte{0xff}}})
		},
		"many headers":   func(r *outboxrow.Row) { r.Headers = many(t, 300) },
		"some headers":   func(r *outboxrow.Row) { r.Headers = many(t, 9) },
		"no created_at":  func(r *outboxrow.Row) { r.CreatedAt = time.Time{} },
		"bad raw header": func(r *outboxrow.Row) { r.RawHeaders = []byte{7} },
	} {
		t.Run(name, func(t *testing.T) {
			row := renderRow(`{"a": "b"}`)
			change(&row)
			requireSame(t, row)
		})
	}
}

func many(t *testing.T, n int) []byte {
	t.Helper()
	object := make(map[string]string)
	for i := range n {
		object[uuid.NewSHA1(uuid.Nil, []byte{byte(i), byte(i >> 8)}).String()] = "v"
	}
	text, err := json.Marshal(object)
	require.NoError(t, err)
	return text
}

func FuzzRecord(f *testing.F) {
	f.Add(`{"a": "b", "ce_source": "s"}`, []byte("k"), []byte("p"))
	f.Add(`{"ce_time": "2026-01-02T03:04:05Z"}`, []byte(nil), []byte(nil))
	f.Fuzz(func(t *testing.T, headers string, key, payload []byte) {
		var object map[string]json.RawMessage
		if json.Unmarshal([]byte(headers), &object) != nil {
			return // a column of jsonb holds nothing else
		}
		row := renderRow(headers)
		row.Key, row.KeyBytes, row.Payload = nil, key, payload
		requireSame(t, row)
	})
}

func BenchmarkRecord(b *testing.B) {
	b.ReportAllocs()
	row := renderRow(`{"ce_source": "order", "content-type": "application/json", "ce_causationid": "01a1ff92-4930-752c-b1f2-f31fec83bcc8", "ce_correlationid": "01a1ff92-4930-752c-b1f2-f31fec83bcc8"}`)
	r := newRenderer(renderDefaults())
	for n := 0; b.Loop(); n++ {
		if n%1000 == 0 {
			r.reset(1000)
		}
		if _, err := r.kafkaRecord(&row); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRecordTheGeneralWay(b *testing.B) {
	b.ReportAllocs()
	row := renderRow(`{"ce_source": "order", "content-type": "application/json", "ce_causationid": "01a1ff92-4930-752c-b1f2-f31fec83bcc8", "ce_correlationid": "01a1ff92-4930-752c-b1f2-f31fec83bcc8"}`)
	for b.Loop() {
		m, err := row.Message(renderDefaults())
		if err != nil {
			b.Fatal(err)
		}
		_ = kafka.Record(m)
	}
}
