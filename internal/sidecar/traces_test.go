//go:build unix

package sidecar_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// TestACollectorGetsTheSpansOfPublishedRows also checks that the last spans are sent at the end of the process, and that an invalid address
// is refused.
func TestACollectorGetsTheSpansOfPublishedRows(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got strings.Builder
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got.WriteString(r.URL.Path + " " + string(body) + "\n")
	}))
	defer collector.Close()
	environ, conn, topic := site(t)
	p := start(t, append(environ, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL))
	p.waitReady(http.StatusOK)
	_, err := conn.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, payload, headers)
		VALUES ($1, 'k', 'T', '{}', '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}')`, topic)
	require.NoError(t, err)
	testkit.Consume(t, testkit.Kafka(t), topic).WaitN(1)
	require.Equal(t, 0, p.terminate())
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"/v1/traces ", "outbox-relay", "outbox " + topic, "send " + topic} {
		require.Contains(t, got.String(), want)
	}

	r := run(t, environ, "run", "--otlp-endpoint", "collector:4318")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stderr, "otlp-endpoint")
	require.Contains(t, r.stderr, "http://host:4318")
}
