// Package metrics gives a program that runs a participant its measures: the instruments of package telemetry, read by
// Prometheus.
package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-go/troupe/telemetry"
)

// New is what measures the service of a name, where else it may put what it measures, and the page on which Prometheus
// reads it all. Spans go to tracers; nil is OpenTelemetry's default, nowhere.
func New(service string, tracers trace.TracerProvider) (*telemetry.Telemetry, *metric.MeterProvider, http.Handler, error) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		return nil, nil, nil, err
	}
	name := resource.NewSchemaless(attribute.String("service.name", service))
	meters := metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(name))
	t, err := telemetry.New(telemetry.Config{Meters: meters, Tracers: tracers})
	return t, meters, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), err
}
