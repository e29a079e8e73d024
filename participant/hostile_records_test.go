package participant_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
)

// TestAnyRecordStopsNoOther sends records that no client of Troupe would write to one partition. Each is handled or
// passed over, or becomes a dead letter, and the partition goes on.
func TestAnyRecordStopsNoOther(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	header := func(key, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: key, Value: []byte(value)} }
	many := make([]kgo.RecordHeader, 10_000)
	for i := range many {
		many[i] = header(fmt.Sprint("h", i), "v")
	}
	odd := map[string]func(r *kgo.Record){
		"10,000 headers":                 func(r *kgo.Record) { r.Headers = append(many, r.Headers...) },
		"one long header":                func(r *kgo.Record) { r.Headers = append(r.Headers, header("h", strings.Repeat("x", 500_000))) },
		"a header without name":          func(r *kgo.Record) { r.Headers = append(r.Headers, kgo.RecordHeader{}) },
		"a header of binary":             func(r *kgo.Record) { r.Headers = append(r.Headers, header("\x00\xff", "\x00\xff")) },
		"no headers":                     func(r *kgo.Record) { r.Headers = nil },
		"a tombstone":                    func(r *kgo.Record) { r.Value = nil },
		"a tombstone with no key":        func(r *kgo.Record) { r.Value, r.Key = nil, nil },
		"an empty value":                 func(r *kgo.Record) { r.Value = []byte{} },
		"an empty key":                   func(r *kgo.Record) { r.Key = []byte{} },
		"a binary key":                   func(r *kgo.Record) { r.Key = []byte("\x00\xff\x1b[2J") },
		"a long key":                     func(r *kgo.Record) { r.Key = bytes.Repeat([]byte("k"), 500_000) },
		"the time 0":                     func(r *kgo.Record) { r.Timestamp = time.UnixMilli(0) },
		"the last time":                  func(r *kgo.Record) { r.Timestamp = time.UnixMilli(math.MaxInt64) },
		"control characters":             func(r *kgo.Record) { set(r, ce.HeaderID, "\x1b[2J\n\x00"); set(r, ce.HeaderCorrelationID, "\x00") },
		"an id without UTF-8":            func(r *kgo.Record) { set(r, ce.HeaderID, "\xff\xfe") },
		"a long id":                      func(r *kgo.Record) { set(r, ce.HeaderID, strings.Repeat("i", 60_000)) },
		"a source with a NUL":            func(r *kgo.Record) { set(r, ce.HeaderSource, "\x00") },
		"a time before year 0":           func(r *kgo.Record) { set(r, ce.HeaderTime, "0000-01-01T00:00:00+23:59") },
		"a time after year 9999":         func(r *kgo.Record) { set(r, ce.HeaderTime, "9999-12-31T23:59:59-23:59") },
		"a saga with a NUL":              func(r *kgo.Record) { set(r, ce.HeaderSagaID, "\x00"); set(r, ce.HeaderSagaStep, "\x00") },
		"an idempotency key with a NUL":  func(r *kgo.Record) { set(r, ce.HeaderIdempotencyKey, "a\x00b") },
		"the last redrive":               func(r *kgo.Record) { set(r, deadletter.HeaderRedrive, "2147483647") },
		"the first redrive in a rebuild": func(r *kgo.Record) { set(r, deadletter.HeaderRedrive, "65536") },
		"a negative redrive":             func(r *kgo.Record) { set(r, deadletter.HeaderRedrive, "-1") },
		"a redrive for a NUL":            func(r *kgo.Record) { set(r, deadletter.HeaderRedriveGroup, "\x00") },
		"a deadline":                     func(r *kgo.Record) { set(r, ce.HeaderDeadline, "\x00/\xff/") },
		"a trace with a NUL": func(r *kgo.Record) {
			set(r, ce.HeaderTraceParent, "\x00")
			set(r, ce.HeaderTraceState, strings.Repeat("t", 1024))
		},
		"a retry override out of range": func(r *kgo.Record) { set(r, ce.HeaderRetry, "attempts=99999999999999999999;cap=-1ns") },
		"headers of a retry topic":      func(r *kgo.Record) { set(r, deadletter.RetryPrefix+"attempts", "2147483648") },
	}
	p := s.new(onePartition, atOnce)
	participant.Handle(p, count)
	s.start(p)
	n := 0
	for name, change := range odd {
		n++
		r := kafka.Record(s.command("odd", Count{N: 1000 + n}))
		change(r)
		require.NoError(t, s.client.ProduceSync(t.Context(), r).FirstErr(), name)
	}
	s.send(s.command("other", Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'other'")
	require.NoError(t, p.Ready())
}

// TestALongHeaderStopsNoPartition sends messages with one header of 65,000 bytes each, nearly as many as all headers may have, and whose handler fails with a long error. Each becomes a dead letter.
func TestALongHeaderStopsNoPartition(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	p := s.new(onePartition, atOnce, func(c *participant.Config) {
		c.Immediate, c.Retry = -1, retry.Policy{Initial: time.Millisecond, Cap: time.Millisecond, Attempts: 2}
	})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if strings.HasPrefix(string(c.Message.Key), "odd") {
			return participant.Outcome{}, errors.New(strings.Repeat("e", 5000))
		}
		return count(ctx, tx, c)
	})
	s.start(p)
	headers := []string{
		ce.HeaderID, ce.HeaderSource, ce.HeaderType, ce.HeaderSubject, ce.HeaderCorrelationID, ce.HeaderCausationID, ce.HeaderSagaID, ce.HeaderSagaStep,
		ce.HeaderIdempotencyKey, ce.HeaderDeadline, ce.HeaderRetry, ce.HeaderTraceParent, ce.HeaderTraceState, ce.HeaderContentType,
		deadletter.HeaderRedriveGroup,
	}
	for n, name := range headers {
		r := kafka.Record(s.command(fmt.Sprint("odd-", n), Count{N: 1000 + n}))
		set(r, name, strings.Repeat("x", 65_000))
		require.NoError(t, s.client.ProduceSync(t.Context(), r).FirstErr(), name)
	}
	s.send(s.command("other", Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'other'")
	s.waitCount(len(headers), "SELECT count(*) FROM troupe.dead_letters")
	require.NoError(t, p.Ready())
}

// set replaces a header.
func set(r *kgo.Record, key, value string) {
	for i := range r.Headers {
		if r.Headers[i].Key == key {
			r.Headers[i].Value = []byte(value)
			return
		}
	}
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
}

// A producer that may write to a retry topic can forge the headers that count a message's attempts.
func TestForgedHeadersOfARetryTopicStopNoOther(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	topic := s.hop.Retry(time.Second)
	p := s.new(onePartition, atOnce, func(c *participant.Config) { c.Immediate = -1 })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if strings.HasPrefix(string(c.Message.Key), "odd") {
			return participant.Outcome{}, errAsked
		}
		return count(ctx, tx, c)
	}, participant.RetryTopics(time.Second))
	s.start(p)
	s.waitTopic(topic)
	send := func(key string, headers map[string]string) {
		m := s.command(key, Count{N: len(key)})
		r := kafka.Record(m)
		r.Topic, r.Timestamp = topic, time.Now().Add(-time.Minute)
		all := map[string]string{
			deadletter.RetryTopic: s.hop.Commands(), deadletter.RetryPrefix + "group": s.hop.String(), deadletter.RetryPrefix + "stage": "1",
			deadletter.RetryPrefix + "attempts": "1", deadletter.RetryPrefix + "first.failed": "2026-01-01T00:00:00Z", deadletter.RetryIdentity: m.Identity(),
		}
		for name, value := range headers {
			all[name] = value
		}
		for name, value := range all {
			set(r, name, value)
		}
		require.NoError(t, s.client.ProduceSync(t.Context(), r).FirstErr())
	}
	forged := []map[string]string{
		{deadletter.RetryPrefix + "first.failed": "0000-01-01T00:00:00Z"},
		{deadletter.RetryPrefix + "first.failed": "9999-12-31T23:59:59-12:00"},
		{deadletter.RetryPrefix + "first.failed": "infinity"},
		{deadletter.RetryPrefix + "attempts": "2147483647"},
		{deadletter.RetryPrefix + "attempts": "9223372036854775807"},
		{deadletter.RetryPrefix + "attempts": "-5"},
		{deadletter.RetryPrefix + "stage": "-1"},
		{deadletter.RetryPrefix + "stage": "9223372036854775807"},
		{deadletter.RetryIdentity: "\x00\xff"},
		{deadletter.RetryTopic: "\x00\xff"},
		{deadletter.RetryTopic: ""},
	}
	for n, headers := range forged {
		send(fmt.Sprint("odd-", n), headers)
	}
	s.waitCount(len(forged), "SELECT count(*) FROM troupe.dead_letters WHERE convert_from(key, 'UTF8') LIKE 'odd-%'")
	send("other", nil)
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'other'")
}
