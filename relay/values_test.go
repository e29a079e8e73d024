package relay_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// one runs the relay until the table's only row is published.
func (s *stage) one() *kgo.Record {
	s.t.Helper()
	records := s.collect(1, s.topic)
	require.Len(s.t, records, 1)
	return records[0]
}

func TestOddValuesArriveAsTheyWere(t *testing.T) {
	t.Parallel()
	large := incompressible(900_000)
	for _, c := range []struct {
		name    string
		columns string
		values  string
		args    []any
		check   func(t *testing.T, r *kgo.Record, m envelope.Message)
	}{
		{"an empty payload is empty, not null", "key, payload", "'k', ''", nil,
			func(t *testing.T, r *kgo.Record, _ envelope.Message) {
				require.NotNil(t, r.Value)
				require.Empty(t, r.Value)
			}},
		{"a null payload is a tombstone, without a content type", "key, payload", "'k', NULL", nil,
			func(t *testing.T, r *kgo.Record, m envelope.Message) {
				require.Nil(t, r.Value)
				require.Empty(t, m.ContentType)
			}},
		{"900 kB", "key, payload", "'k', $2", []any{large},
			func(t *testing.T, r *kgo.Record, _ envelope.Message) { require.True(t, bytes.Equal(large, r.Value)) }},
		{"a key in any script", "key, payload", "$2, ''", []any{"ключ 鍵 🗝"},
			func(t *testing.T, r *kgo.Record, m envelope.Message) {
				require.Equal(t, "ключ 鍵 🗝", string(r.Key))
				require.Equal(t, "ключ 鍵 🗝", m.Subject)
			}},
		{"no key", "payload", "''", nil,
			func(t *testing.T, r *kgo.Record, m envelope.Message) {
				require.Nil(t, r.Key)
				require.Empty(t, m.Subject)
			}},
		{"an empty key is a key", "key, payload", "'', ''", nil,
			func(t *testing.T, r *kgo.Record, _ envelope.Message) {
				require.NotNil(t, r.Key)
				require.Empty(t, r.Key)
			}},
		{"a key that is no text", "key_bytes, payload", "$2, ''", []any{[]byte{0xff, 0, 1}},
			func(t *testing.T, r *kgo.Record, m envelope.Message) {
				require.Equal(t, []byte{0xff, 0, 1}, r.Key)
				require.Empty(t, m.Subject)
			}},
		{"headers as JSON", "key, payload, headers", `'k', '', '{"tenant": "é", "n": 1, "none": null}'`, nil,
			func(t *testing.T, _ *kgo.Record, m envelope.Message) {
				require.Equal(t, []envelope.Header{
					{Key: "n", Value: []byte("1")}, {Key: "none"}, {Key: "tenant", Value: []byte("é")},
				}, m.Extra)
			}},
		{"binary and repeated headers", "key, payload, raw_headers", "'k', '', $2",
			[]any{envelope.MarshalHeaders([]envelope.Header{
				{Key: "twice", Value: []byte{0xff, 0}}, {Key: "twice", Value: []byte("b")}, {Key: "empty", Value: []byte{}}, {Key: "nil"},
			})},
			func(t *testing.T, _ *kgo.Record, m envelope.Message) {
				require.Equal(t, []string{"twice", "twice", "empty", "nil"}, []string{m.Extra[0].Key, m.Extra[1].Key, m.Extra[2].Key, m.Extra[3].Key})
				require.Equal(t, []byte{0xff, 0}, m.Extra[0].Value)
				require.NotNil(t, m.Extra[2].Value)
				require.Nil(t, m.Extra[3].Value)
			}},
		{"trace context and attributes as the writer set them", "key, payload, headers", `'k', '', $2`,
			[]any{`{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b",
				"ce_source": "other", "ce_correlationid": "c", "ce_causationid": "d", "ce_subject": "s",
				"ce_time": "2020-02-03T04:05:06Z", "content-type": "text/plain", "ce_outcome": "failure"}`},
			func(t *testing.T, _ *kgo.Record, m envelope.Message) {
				m.ID, m.Key, m.Payload, m.Topic = "", nil, nil, ""
				require.Equal(t, envelope.Message{
					TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "a=b",
					Source: "other", CorrelationID: "c", CausationID: "d", Subject: "s", Type: "Thing",
					Time: time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC), ContentType: "text/plain", Outcome: envelope.Failure,
				}, m)
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.start(s.config())
			if source == relay.WAL { // rows that exist before are polled
				s.waitStream()
			}
			s.exec("INSERT INTO troupe.outbox (topic, type, "+c.columns+") VALUES ($1, 'Thing', "+c.values+")",
				append([]any{s.topic}, c.args...)...)
			record := s.one()
			m, err := kafka.Message(record)
			require.NoError(t, err)
			c.check(t, record, m)
		})
	}
}

func TestAPlainInsertGetsDefaults(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var id string
	var created time.Time
	require.NoError(t, s.pool.QueryRow(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, payload)
		VALUES ($1, 'k', 'Thing', '{}') RETURNING id, created_at`, s.topic).Scan(&id, &created))
	cfg := s.config()
	cfg.ContentType = func(topic string) string { return "application/" + topic[strings.LastIndexByte(topic, '.')+1:] }
	s.start(cfg)
	m, err := kafka.Message(s.one())
	require.NoError(t, err)
	require.Equal(t, envelope.Message{
		Topic: s.topic, Key: []byte("k"), Payload: []byte("{}"), ID: id, Source: "shop", Type: "Thing", Subject: "k",
		Time: created.UTC(), ContentType: "application/commands", CorrelationID: id,
	}, m)
}

// The largest payload that outbox.Write accepts must fit a record batch with its headers.
func TestTheLargestEntryGoesThrough(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	box, err := outbox.New(outbox.Config{})
	require.NoError(t, err)
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	payload := incompressible(1_000_000)
	require.NoError(t, box.Write(t.Context(), tx, outbox.Entry{
		Topic: s.topic, Key: strings.Repeat("k", 1000), Type: strings.Repeat("t", 1000), Payload: payload, ContentType: "x/y",
	}))
	require.NoError(t, tx.Commit(t.Context()))
	s.start(s.config())
	require.True(t, bytes.Equal(payload, s.one().Value))
}

// A notification shortens the wait, which otherwise is the interval.
func TestAWriteIsPublishedWithoutWaitingForThePoll(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := s.config()
	cfg.Source, cfg.Interval, cfg.Lease = relay.Poll, 20*time.Second, 90*time.Second
	r := s.start(cfg)
	waitIdle(t, s, r)
	box, err := outbox.New(outbox.Config{NotifyEvery: time.Nanosecond})
	require.NoError(t, err)
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, box.Write(t.Context(), tx, outbox.Entry{Topic: s.topic, Key: "k", Type: "Thing"}))
	began := time.Now()
	require.NoError(t, tx.Commit(t.Context()))
	s.waitEmpty()
	require.Less(t, time.Since(began), 8*time.Second, "the next look was 10 s away")
	s.one()
}

// waitIdle returns when an interval of 10 s has begun.
func waitIdle(t testing.TB, s *stage, r running) {
	t.Helper()
	testkit.Wait(t, "the listener", func() (bool, error) {
		return s.count(`SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE 'LISTEN "troupe_outbox"%'`) == 1, nil
	})
	last := r.Status().Progress
	testkit.Wait(t, "the beginning of a long interval", func() (bool, error) {
		now := r.Status().Progress
		grown := now.Sub(last) > 4*time.Second
		last = now
		return grown, nil
	})
}
