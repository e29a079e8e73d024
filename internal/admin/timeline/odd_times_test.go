package timeline_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/timeline"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/kafka"
)

// A producer sets the time of a record and the times in its headers. A time that JSON cannot have does not hide the timeline.
func TestMessagesOfAnyTimeAreShownAsJSON(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	hop := s.hop("payment")
	events, letters := hop.Events(), hop.DeadLetters()
	s.provision(events, 1)
	s.provision(letters, 1)
	record := func(topic, id string, at time.Time, headers ...envelope.Header) *kgo.Record {
		r := kafka.Record(envelope.Message{Topic: topic, Key: []byte("o-1"), Type: "Charged", ID: id, Payload: []byte("{}"), Extra: headers})
		r.Timestamp = at
		return r
	}
	ceTime := func(text string) envelope.Header { return envelope.Header{Key: ce.HeaderTime, Value: []byte(text)} }
	failed := func(text string) envelope.Header {
		return envelope.Header{Key: deadletter.HeaderLastFailed, Value: []byte(text)}
	}
	now := time.Now()
	records := []*kgo.Record{
		record(events, "3", now, ceTime("9999-12-31T23:59:59-12:00")),
		record(events, "4", now, ceTime("2026-01-01T00:00:00+24:00")),
		record(events, "5", now, ceTime("0000-01-01T00:00:00+12:00")),
		record(events, "6", now, envelope.Header{Key: deadletter.HeaderRedrive, Value: []byte("2147483647")}),
		record(letters, "7", now, failed("2026-01-01T00:00:00+24:00")),
		record(letters, "8", now, failed("9999-12-31T23:59:59-12:00")),
		record(events, "1", time.UnixMilli(math.MaxInt64)),   // behind the others: Kafka finds the first offset of the scan by time
		record(events, "2", time.UnixMilli(253402300800000)), // the year 10000
	}
	s.produce(records...)
	got := s.read("o-1", func(c *timeline.Config) { c.ScanAll, c.Databases = true, nil })
	require.Len(t, got.Entries, len(records))
	_, err := json.Marshal(got)
	require.NoError(t, err)
}
