// Package traces sends a program's spans to the OpenTelemetry collector that the environment names, in the variables that every
// SDK of OpenTelemetry reads.
//
//	OTEL_EXPORTER_OTLP_ENDPOINT   http://host:4318; without it no spans are made
//	OTEL_EXPORTER_OTLP_HEADERS    name=value,… such as a token of the collector; likewise _TIMEOUT, _CERTIFICATE and others
//	OTEL_SERVICE_NAME             the service's name in the spans, instead of the program's own
//	OTEL_TRACES_SAMPLER           such as parentbased_traceidratio, with OTEL_TRACES_SAMPLER_ARG; default: all
//
// A variable that the SDK cannot read is an error, which names the variable and does not quote its value.
//
// A program works the same without a running collector: spans wait in memory, some thousands at most, and spans that cannot be
// sent are dropped. The log reports when dropping begins and when it ends, not each time.
package traces

import (
	"context"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/internal/secrets"
)

// EndLimit bounds the time to send the last spans.
const EndLimit = 2 * time.Second

// Open returns a tracer provider that sends the spans of the named service to endpoint, an http or https URL; "" makes no spans.
// It connects to nothing yet. A variable of the environment that the SDK cannot read is an error. end sends the remaining spans, for 2 s at most.
func Open(ctx context.Context, endpoint, service string, log zerolog.Logger) (tracers trace.TracerProvider, end func(), err error) {
	if endpoint == "" {
		return noop.NewTracerProvider(), func() {}, nil
	}
	if err := CheckEnvironment(); err != nil {
		return nil, nil, err
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint+"/v1/traces"))
	if err != nil {
		return nil, nil, err
	}
	named := resource.Environment() // by OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES
	if !named.Set().HasValue("service.name") {
		named = resource.NewSchemaless(attribute.String("service.name", service))
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(&told{SpanExporter: exporter, log: log}), sdktrace.WithResource(named))
	return provider, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), EndLimit)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Info().Str("error", withoutSecrets(err)).Msg("traces: the last spans are dropped")
		}
	}, nil
}

// told is an exporter that logs when spans begin to be dropped, and when that ends.
type told struct {
	sdktrace.SpanExporter
	log     zerolog.Logger
	dropped atomic.Bool
}

// ExportSpans implements sdktrace.SpanExporter. It returns no error, since it logs the error.
func (e *told) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	switch was := e.dropped.Swap(err != nil); {
	case err != nil && !was:
		e.log.Info().Str("error", withoutSecrets(err)).Msg("traces: no collector accepts spans; they are dropped until one does")
	case err == nil && was:
		e.log.Info().Msg("traces: spans are taken again")
	}
	return nil
}

const mostShown = 400 // characters of an error

// withoutSecrets returns the beginning of an error's text, without the values of the headers that the environment sets. The text has the collector's response,
// which may repeat the request.
func withoutSecrets(err error) string {
	var hidden secrets.List
	for _, name := range []string{prefix + "HEADERS", prefix + "TRACES_HEADERS"} {
		for pair := range strings.SplitSeq(variable(name), ",") {
			_, value, _ := strings.Cut(pair, "=")
			value, _ = url.PathUnescape(value) // CheckEnvironment has tried it
			hidden = hidden.And(secrets.New(secrets.InHeader(value)...))
		}
	}
	return plain.Line(hidden.Hide(err.Error()), mostShown)
}
