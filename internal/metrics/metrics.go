// Package metrics gives a program that runs a participant its metrics: the instruments of package telemetry, exported to
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

// New returns the telemetry of the service of a name, the meter provider for the program's other metrics, and the page on which
// Prometheus reads all of them. Spans go to tracers; nil is OpenTelemetry's default, which drops them.
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
