package telemetry_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/metrics/catalogue"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/telemetry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// TestTheReferenceIsWhatAServiceOfAFlowServes reads each metric with its value, and compares the names with the page.
func TestTheReferenceIsWhatAServiceOfAFlowServes(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	p, err := participant.New(participant.Config{Pool: pool, Hop: topics.MustHop("shop", "order"), Local: true})
	require.NoError(t, err)
	event := func(hop, typ string) flow.Message {
		return flow.Message{Topic: "shop." + hop + ".events", Type: typ}
	}
	s, err := flow.New(flow.Config{Participant: p, Declared: flow.Declaration{
		Hop: "shop.order", Expectations: []flow.Expectation{{
			Name: "paid", After: event("order", "Placed"), Expect: []flow.Message{event("billing", "Paid")}, Within: "1m", Raise: event("order", "Unpaid"),
		}},
	}})
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `
		INSERT INTO troupe.expectations (consumer_group, name, key, after_at, due_at, alert_id, missed_at, raised_at, met_at, alert_at, forget_at)
		SELECT 'shop.order', 'shipped', k, now(), now() + due * interval '1 minute', gen_random_uuid(), missed, raised, met, alert,
		       CASE WHEN met IS NOT NULL OR raised IS NOT NULL THEN now() END
		FROM (VALUES
			('w-1', 5, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz),
			('m-1', -60, now(), NULL, NULL, now()),
			('m-2', -5, NULL, now(), NULL, NULL),
			('m-3', -4, now(), now(), NULL, NULL),
			('l-1', -90, now(), now(), now(), now()),
			('met', 9, NULL, NULL, now(), NULL)) AS v (k, due, missed, raised, met, alert)`)
	require.NoError(t, err)
	reader := sdkmetric.NewManualReader()
	m, err := telemetry.New(telemetry.Config{Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	require.NoError(t, err)
	require.NoError(t, m.ObserveFlow(s))
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	values := make(map[string]int64)
	for _, m := range all.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Gauge[int64]:
			for _, point := range data.DataPoints {
				name, _ := point.Attributes.Value("troupe.expectation")
				status, _ := point.Attributes.Value("troupe.expectation.status")
				values[fmt.Sprint(m.Name, " ", name.AsString(), " ", status.AsString())] = point.Value
			}
		case metricdata.Gauge[float64]:
			for _, point := range data.DataPoints {
				name, _ := point.Attributes.Value("troupe.expectation")
				values[fmt.Sprint(m.Name, " ", name.AsString(), " ")] = int64(point.Value / 3600)
			}
		}
	}
	require.Equal(t, map[string]int64{
		"troupe.expectation.open shipped waiting": 1, "troupe.expectation.open shipped missing": 3, "troupe.expectation.late shipped ": 1,
		"troupe.expectation.alerts shipped ": 2, "troupe.expectation.overdue.age shipped ": 1,
		"troupe.expectation.open paid waiting": 0, "troupe.expectation.open paid missing": 0, "troupe.expectation.late paid ": 0,
		"troupe.expectation.alerts paid ": 0, "troupe.expectation.overdue.age paid ": 0,
	}, values)
	seen := make(catalogue.Collection)
	seen.Add(t, all)
	catalogue.Section{Title: "Expectations", Page: "../docs/metrics-reference.md", Metrics: seen.Metrics()}.
		Hold(t, *rewrite, "go test ./telemetry -run Reference -update")
}
