package traces_test

import (
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/traces"
)

// The SDK prints the value of such a variable to stderr.
func TestAVariableThatTheSDKCannotReadIsRefusedAndNotQuoted(t *testing.T) {
	const marker = "s3cr3t"
	for name, texts := range map[string][]string{
		"OTEL_EXPORTER_OTLP_HEADERS":            {marker, "a=b," + marker, "authorization=%zz" + marker, "author ization=" + marker, "=" + marker},
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS":     {marker},
		"OTEL_EXPORTER_OTLP_ENDPOINT":           {"http://u:" + marker + "@h:port", "http://u:" + marker + "@h"},
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT":    {"http://u:" + marker + "@h h"},
		"OTEL_EXPORTER_OTLP_TIMEOUT":            {marker},
		"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT":     {"10s" + marker},
		"OTEL_EXPORTER_OTLP_CERTIFICATE":        {"/no/such/" + marker, "environment.go"},
		"OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE": {"-----BEGIN PRIVATE KEY-----\n" + marker},
		"OTEL_EXPORTER_OTLP_CLIENT_KEY":         {"-----BEGIN PRIVATE KEY-----\n" + marker},
		"OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY":  {"/no/such/" + marker},
		"OTEL_RESOURCE_ATTRIBUTES":              {marker, "a=%zz" + marker},
		"OTEL_TRACES_SAMPLER":                   {marker},
		"OTEL_TRACES_SAMPLER_ARG":               {marker, "NaN", "2"},
	} {
		for _, text := range texts {
			t.Run(name, func(t *testing.T) {
				t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/no/such/file")
				t.Setenv("OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", "/no/such/file")
				t.Setenv(name, text)
				_, _, err := traces.Open(t.Context(), "http://127.0.0.1:1", "payment", zerolog.Nop())
				require.ErrorContains(t, err, name)
				require.NotContains(t, err.Error(), marker)
			})
		}
	}
}

func TestTheVariablesOfTheSDKAreAccepted(t *testing.T) {
	for name, text := range map[string]string{
		"OTEL_EXPORTER_OTLP_HEADERS":  "authorization=Bearer%20a%3D%3D, x-scope=1",
		"OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector.example:4318/otlp",
		"OTEL_EXPORTER_OTLP_TIMEOUT":  "5000",
		"OTEL_RESOURCE_ATTRIBUTES":    "service.namespace=shop,deployment.environment=a%20b",
		"OTEL_TRACES_SAMPLER":         "parentbased_traceidratio",
		"OTEL_TRACES_SAMPLER_ARG":     "0.25",
	} {
		t.Setenv(name, text)
	}
	require.NoError(t, traces.CheckEnvironment())
}
