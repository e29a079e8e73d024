package telemetry_test

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/telemetry"
	"github.com/troupe-go/troupe/topics"
)

// A service without OpenTelemetry of its own: the metrics of its participant are in its Prometheus registry.
func Example_prometheus() {
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		fmt.Println(err)
		return
	}
	t, err := telemetry.New(telemetry.Config{Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	if err != nil {
		fmt.Println(err)
		return
	}
	http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	cfg := t.Instrument(participant.Config{Hop: topics.MustHop("order", "payment")}) // then participant.New, and t.Observe
	cfg.Hooks.Fetched("order.payment.commands", 0, 3)                                // as the participant does for three messages
	families, err := registry.Gather()
	for _, f := range families {
		if f.GetName() != "target_info" {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	fmt.Println(err)
	// Output:
	// messaging_client_consumed_messages_total 3
	// <nil>
}
