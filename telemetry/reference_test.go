package telemetry_test

import (
	"context"
	"flag"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/troupe-go/troupe/internal/metrics/catalogue"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/telemetry"
	"github.com/troupe-go/troupe/testkit"
)

var rewrite = flag.Bool("update", false, "rewrite the participants' section of docs/metrics-reference.md")

// TestTheReferenceIsWhatAParticipantServes: every metric, with every label that a series of it may have, after a run in which a
// message takes effect, one fails, a dependency is away, a deadline fires, and messages are held that no member handles.
func TestTheReferenceIsWhatAParticipantServes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	served := prometheus.NewRegistry()
	page, err := exporter.New(exporter.WithRegisterer(served), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	require.NoError(t, err)
	s.reader = sdkmetric.NewManualReader() // the stage's reader has its meters
	s.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader), sdkmetric.WithReader(page))
	s.Telemetry, err = telemetry.New(telemetry.Config{Meters: s.meters, Tracers: s.tracers})
	require.NoError(t, err)

	p := s.participant(s.hop, func(c *participant.Config) {
		c.Retry = retry.Policy{Initial: time.Hour, Cap: time.Hour, NoJitter: true}
	})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Charge]) (participant.Outcome, error) {
		if c.Body.Fail == "away" {
			return participant.Outcome{}, retry.Unavailable("the bank", errAsked)
		}
		return charge(ctx, tx, c)
	})
	participant.OnDeadline(p, "overdue", func(context.Context, pgx.Tx, participant.Due[Charge]) error { return nil })
	require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		return p.Schedule(t.Context(), tx, participant.Deadline{Name: "overdue", Scope: "a", Key: "a", At: time.Now(), Body: Charge{}})
	}))
	s.strand(p.Group())
	s.run(p.Run)
	s.send(s.command("a", Charge{}), s.command("b", Charge{Fail: "permanent"}))
	seen := make(catalogue.Collection)
	look := func() {
		var all metricdata.ResourceMetrics
		require.NoError(t, s.reader.Collect(t.Context(), &all))
		seen.Add(t, all)
	}
	testkit.Wait(t, "a message that took effect, and one that did not", func() (bool, error) {
		look()
		return seen.Carries("troupe.messages.ended", "error_type") && seen.Carries("messaging.process.duration", "error_type"), nil
	})
	s.send(s.command("c", Charge{Fail: "away"}))
	made := make(map[string]bool)
	_, err = telemetry.New(telemetry.Config{Meters: namesOnly{made: made}})
	require.NoError(t, err)
	testkit.Wait(t, "every metric and label", func() (bool, error) {
		look()
		for name := range made {
			if seen[name] == nil {
				return false, nil
			}
		}
		return seen.Carries("troupe.breaker.open", "troupe_dependency") && seen.Carries("messaging.process.duration", "error_type"), nil
	})
	catalogue.Section{Title: "Participants", Page: "../docs/metrics-reference.md", Metrics: seen.Metrics()}.
		Hold(t, *rewrite, "go test ./telemetry -run Reference -update")

	families, err := served.Gather()
	require.NoError(t, err)
	var names, want []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	for m := range maps.Values(seen) {
		want = append(want, m.Name)
	}
	slices.Sort(want)
	require.Equal(t, want, names, "the names that Prometheus gets")
}
