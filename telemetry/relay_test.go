package telemetry_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/testkit"
)

func TestAPublishedRowShowsItsTimeInTheOutboxAndInTheBroker(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(s.hop.Commands())
	all := s.tracers
	s.tracers = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	s.place("not sampled", Charge{})
	s.tracers = all
	root := s.place("sampled", Charge{})
	_, err := s.pool.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'without', 'Charge', '{}')", s.hop.Commands())
	require.NoError(t, err)
	var written time.Time
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT created_at FROM troupe.outbox WHERE key = 'sampled'").Scan(&written))
	topic := testkit.Consume(t, s.brokers, s.hop.Commands())
	s.relay()
	topic.WaitN(3)

	sent := s.waitSpans("send "+s.hop.Commands(), 1)[0]
	waited := s.waitSpans("outbox "+s.hop.Commands(), 1)[0]
	require.Equal(t, trace.SpanKindProducer, sent.SpanKind)
	require.Equal(t, "1", says(sent, "messaging.kafka.offset"))
	require.Equal(t, "send", says(sent, "messaging.operation.name"))
	require.True(t, written.Equal(waited.StartTime), "%s, %s", written, waited.StartTime)
	require.Equal(t, waited.EndTime, sent.StartTime)
	require.True(t, sent.EndTime.After(sent.StartTime))
	for _, span := range s.spans.GetSpans() {
		if span.Name == "place order" {
			continue
		}
		require.Equal(t, root.TraceID(), span.SpanContext.TraceID(), span.Name)
		require.Equal(t, root.SpanID(), span.Parent.SpanID(), span.Name)
		require.Equal(t, "1", says(span, "troupe.attempt"))
	}
}

// TestAClockThatIsBehindTheDatabaseMakesNoNegativeSpan checks a row that seems to be written after it was sent, one whose time is not
// known, and an invalid trace context.
func TestAClockThatIsBehindTheDatabaseMakesNoNegativeSpan(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	now := time.Now()
	row := outbox.PublishedRow{
		Topic: "t", TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Written: now.Add(time.Second), Sent: now, Published: now.Add(time.Millisecond),
	}
	s.RowPublished(row)
	row.Written = time.Time{}
	s.RowPublished(row)
	row.TraceParent = "00-00000000000000000000000000000000-b7ad6b7169203331-01"
	s.RowPublished(row)
	require.Empty(t, s.named("outbox t"))
	require.Len(t, s.named("send t"), 2)
}
