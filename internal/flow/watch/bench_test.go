package watch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/flow/watch"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/testkit"
)

// BenchmarkWatch stores and judges orders of four messages that are in the log already. An operation is a message. Broker,
// database and watcher share the machine.
func BenchmarkWatch(b *testing.B) {
	s := newStage(b)
	var records []*kgo.Record
	flush := func() {
		require.NoError(b, s.client.ProduceSync(b.Context(), records...).FirstErr())
		records = records[:0]
	}
	orders := max(1, b.N/4)
	for i := range orders {
		key := fmt.Sprint("o-", i)
		ids := make(map[string]string)
		for _, m := range order(key) {
			ids[m.id] = uuid.Must(uuid.NewV7()).String()
			at := time.Now().Add(-m.ago)
			r := kafka.Record(envelope.Message{
				Topic: s.flow + "." + m.hop + ".events", Key: []byte(key), Type: m.typ, ID: ids[m.id], CorrelationID: ids[key+"-1"],
				CausationID: ids[m.cause], Outcome: m.outcome, Time: at, Source: "bench", ContentType: envelope.JSON, Payload: []byte("{}"),
			})
			r.Timestamp = at
			if records = append(records, r); len(records) >= 5000 {
				flush()
			}
		}
	}
	flush()
	b.ReportAllocs()
	b.ResetTimer()
	began := time.Now()
	w := s.watch(func(c *watch.Config) { c.Log = c.Log.Level(7) })
	testkit.Wait(b, "messages to be stored", func() (bool, error) {
		stored := 0
		err := s.pool.QueryRow(b.Context(), "SELECT coalesce(sum(next), 0)::int FROM troupe.watch_offsets").Scan(&stored)
		return stored >= 4*orders, err
	})
	stored := time.Since(began)
	s.judged()
	judged := time.Since(began)
	b.StopTimer()
	require.Empty(b, w.texts())
	require.Equal(b, 4*orders, s.count("SELECT count(*) FROM troupe.watch_messages"))
	b.ReportMetric(float64(4*orders)/stored.Seconds(), "stored/s")
	b.ReportMetric(float64(4*orders)/judged.Seconds(), "events/s")
	var bytes int64
	require.NoError(b, s.pool.QueryRow(b.Context(), `SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits
		WHERE inhparent = 'troupe.watch_messages'::regclass`).Scan(&bytes))
	b.ReportMetric(float64(bytes)/float64(4*orders), "disk-B/event")
}
