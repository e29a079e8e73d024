package telemetry_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/telemetry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// place writes a command in a transaction of the service's own, within a span.
func (s *stage) place(key string, body Charge) trace.SpanContext {
	s.t.Helper()
	out, err := outbox.New(outbox.Config{Source: "shop", Trace: telemetry.Trace})
	require.NoError(s.t, err)
	ctx, span := s.tracers.Tracer("shop").Start(s.t.Context(), "place order")
	defer span.End()
	require.NoError(s.t, pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		return out.Write(ctx, tx, outbox.Entry{Topic: s.hop.Commands(), Key: key, Body: body})
	}))
	return span.SpanContext()
}

// named returns the ended spans of a name, in the order in which they began.
func (s *stage) named(name string) (found tracetest.SpanStubs) {
	for _, span := range s.spans.GetSpans() {
		if span.Name == name {
			found = append(found, span)
		}
	}
	return found
}

func (s *stage) waitSpans(name string, n int) tracetest.SpanStubs {
	s.t.Helper()
	testkit.Wait(s.t, name, func() (bool, error) { return len(s.named(name)) >= n, nil })
	require.Len(s.t, s.named(name), n)
	return s.named(name)
}

func says(span tracetest.SpanStub, key attribute.Key) string {
	for _, a := range span.Attributes {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

// last returns the trace context in the nth message of a topic.
func last(t *testing.T, c *testkit.Consumer, n int) (traceparent string) {
	t.Helper()
	m, err := kafka.Message(c.WaitN(n)[n-1])
	require.NoError(t, err)
	return m.TraceParent
}

func traceparent(of trace.SpanContext) string {
	return "00-" + of.TraceID().String() + "-" + of.SpanID().String() + "-01"
}

// TestAFlowIsOneTrace follows a flow from the first Write over relay, broker, a retry from troupe.held and a second hop to the
// last message.
func TestAFlowIsOneTrace(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	shop, shipping := topics.MustHop(s.flow, "shop"), topics.MustHop(s.flow, "shipping")
	payment := s.participant(s.hop)
	participant.Handle(payment, charge)
	s.provision(shipping.Commands())
	decides := s.participant(shop)
	participant.On(decides, s.hop, func(ctx context.Context, tx pgx.Tx, e participant.Event[Charged]) error {
		ctx, span := s.tracers.Tracer("shop").Start(ctx, "book shipping")
		defer span.End()
		return decides.Outbox().Write(ctx, tx, outbox.Entry{Topic: shipping.Commands(), Key: string(e.Message.Key), Type: "Ship"})
	})
	end := testkit.Consume(t, s.brokers, shipping.Commands())
	s.relay()
	s.run(payment.Run)
	s.run(decides.Run)

	root := s.place("o-1", Charge{Fail: "once"})
	emitted := last(t, end, 1)
	charged := s.waitSpans("process "+s.hop.Commands(), 2)
	booked := s.waitSpans("process "+s.hop.Events(), 1)[0]
	inner := s.waitSpans("book shipping", 1)[0]

	for _, span := range s.spans.GetSpans() {
		require.Equal(t, root.TraceID(), span.SpanContext.TraceID(), span.Name)
	}
	for i, attempt := range charged {
		require.Equal(t, root.SpanID(), attempt.Parent.SpanID(), "attempts are siblings")
		require.True(t, attempt.Parent.IsRemote())
		require.Equal(t, trace.SpanKindConsumer, attempt.SpanKind)
		require.Equal(t, []string{"1", "2"}[i], says(attempt, "troupe.attempt"))
		require.Equal(t, "kafka", says(attempt, "messaging.system"))
		require.Equal(t, s.hop.String(), says(attempt, "messaging.consumer.group.name"))
		require.Equal(t, "0", says(attempt, "messaging.destination.partition.id"))
	}
	require.Equal(t, codes.Error, charged[0].Status.Code)
	require.Equal(t, "transient", says(charged[0], "error.type"))
	require.Equal(t, codes.Unset, charged[1].Status.Code)
	require.Equal(t, "success", says(charged[1], "troupe.result"))
	require.Equal(t, charged[1].SpanContext.SpanID(), booked.Parent.SpanID(), "the answer follows from the attempt that gave it")
	require.Equal(t, booked.SpanContext.SpanID(), inner.Parent.SpanID())
	require.Equal(t, traceparent(inner.SpanContext), emitted, "emitted messages are children of the innermost span")
	t.Log("\n" + s.tree(trace.SpanID{}, 0))
}

// tree formats the spans below one as a tree.
func (s *stage) tree(below trace.SpanID, depth int) (drawn string) {
	for _, span := range s.spans.GetSpans() {
		if span.Parent.SpanID() != below {
			continue
		}
		line := strings.Repeat("  ", depth) + span.Name
		for _, key := range []attribute.Key{"troupe.attempt", "troupe.result", "error.type"} {
			if value := says(span, key); value != "" {
				line += " " + string(key) + "=" + value
			}
		}
		drawn += line + "\n" + s.tree(span.SpanContext.SpanID(), depth+1)
	}
	return drawn
}

// TestADeadLetterKeepsItsTrace checks the topic, the table, and the message that is redriven.
func TestADeadLetterKeepsItsTrace(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	mended := make(chan struct{})
	p := s.participant(s.hop)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Charge]) (participant.Outcome, error) {
		select {
		case <-mended:
			return participant.Succeed(Charged{}), nil
		default:
			return charge(ctx, tx, c)
		}
	})
	letters := testkit.Consume(t, s.brokers, s.hop.DeadLetters())
	events := testkit.Consume(t, s.brokers, s.hop.Events())
	s.relay()
	s.run(p.Run)
	root := s.place("o-1", Charge{Fail: "permanent"})
	require.Equal(t, traceparent(root), last(t, letters, 1))
	require.Equal(t, traceparent(root), last(t, events, 1), "the exhausted event")
	failed := s.waitSpans("process "+s.hop.Commands(), 1)[0]
	require.Equal(t, "permanent", says(failed, "error.type"))

	close(mended)
	desk, err := repair.New(repair.Config{Pool: s.pool})
	require.NoError(t, err)
	redriven, err := desk.Redrive(t.Context(), repair.Filter{Group: s.hop.String()}, repair.RedriveConfig{By: admin.Actor{Name: "test"}})
	require.NoError(t, err)
	require.Equal(t, 1, redriven.Redriven)
	again := s.waitSpans("process "+s.hop.Commands(), 2)[1]
	require.Equal(t, root.TraceID(), again.SpanContext.TraceID())
	require.Equal(t, root.SpanID(), again.Parent.SpanID())
	require.Equal(t, traceparent(again.SpanContext), last(t, events, 2))
}

// TestABatchLinksToWhatWroteItsMessages also checks that each message stays in its own trace.
func TestABatchLinksToWhatWroteItsMessages(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.participant(s.hop, func(c *participant.Config) { c.Batch = 10 })
	participant.Handle(p, charge)
	roots := make(map[trace.SpanID]trace.SpanContext)
	var all []envelope.Message
	for _, key := range []string{"a", "b", "c"} {
		_, span := s.tracers.Tracer("shop").Start(t.Context(), "place order")
		m := s.command(key, Charge{})
		m.TraceParent, _ = telemetry.Trace(trace.ContextWithSpan(t.Context(), span))
		roots[span.SpanContext().SpanID()] = span.SpanContext()
		all = append(all, m)
		span.End()
	}
	without := s.command("d", Charge{})
	s.send(append(all, without)...)
	s.run(p.Run)
	batch := s.waitSpans("transaction "+s.hop.Commands(), 1)[0]
	require.Equal(t, "4", says(batch, "messaging.batch.message_count"))
	require.False(t, batch.Parent.IsValid(), "it begins a trace")
	require.Len(t, batch.Links, 3)
	for _, link := range batch.Links {
		require.Contains(t, roots, link.SpanContext.SpanID())
	}
	for _, span := range s.waitSpans("process "+s.hop.Commands(), 4) {
		if says(span, "messaging.message.id") == without.ID {
			require.Equal(t, batch.SpanContext.SpanID(), span.Parent.SpanID(), "it has no trace but the batch's")
			continue
		}
		root := roots[span.Parent.SpanID()]
		require.Equal(t, root.TraceID(), span.SpanContext.TraceID())
		require.Len(t, span.Links, 1)
		require.Equal(t, batch.SpanContext.SpanID(), span.Links[0].SpanContext.SpanID())
	}
}

// TestABadMessageShowsInItsSpans: the batch is rolled back, and each message runs alone.
func TestABadMessageShowsInItsSpans(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.participant(s.hop, func(c *participant.Config) { c.Batch = 10 })
	participant.Handle(p, charge)
	s.send(s.command("a", Charge{}), s.command("b", Charge{Fail: "permanent"}))
	s.run(p.Run)
	spans := s.waitSpans("process "+s.hop.Commands(), 4)
	batch := s.waitSpans("transaction "+s.hop.Commands(), 1)[0]
	require.Equal(t, codes.Error, batch.Status.Code)
	var got []string
	for _, span := range spans {
		got = append(got, strings.TrimSpace(says(span, "troupe.result")+" "+says(span, "error.type")))
	}
	require.ElementsMatch(t, []string{"success", "permanent", "success", "permanent"}, got)
}
