package traces_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/traces"
)

// collector stores the spans that it receives, or refuses them.
type collector struct {
	mu      sync.Mutex
	refuses bool
	got     string
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuses {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	c.got += r.URL.Path + " " + string(body)
}

func (c *collector) refuse(yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuses = yes
}

func (c *collector) taken() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got
}

func TestSpansReachTheCollectorAndTheLogSaysWhenTheyDoNot(t *testing.T) {
	t.Parallel()
	c := &collector{}
	server := httptest.NewServer(c)
	defer server.Close()
	var log bytes.Buffer
	tracers, end, err := traces.Open(t.Context(), server.URL, "payment", zerolog.New(&log))
	require.NoError(t, err)
	span := func(name string) {
		_, one := tracers.Tracer("test").Start(t.Context(), name)
		one.End()
		require.NoError(t, tracers.(interface{ ForceFlush(context.Context) error }).ForceFlush(t.Context()))
	}
	span("POST /orders")
	require.Contains(t, c.taken(), "/v1/traces ")
	require.Contains(t, c.taken(), "POST /orders")
	require.Contains(t, c.taken(), "payment")
	require.Empty(t, log.String())

	c.refuse(true)
	span("lost")
	span("lost too")
	require.Equal(t, 1, strings.Count(log.String(), "no collector accepts spans"), log.String())
	c.refuse(false)
	span("after")
	require.Equal(t, 1, strings.Count(log.String(), "taken again"), log.String())

	_, last := tracers.Tracer("test").Start(t.Context(), "the last one")
	last.End()
	end()
	require.Contains(t, c.taken(), "the last one")
	require.NotContains(t, c.taken(), "lost")
}

func TestWithoutACollectorNoSpansAreMade(t *testing.T) {
	t.Parallel()
	tracers, end, err := traces.Open(t.Context(), "", "payment", zerolog.Nop())
	require.NoError(t, err)
	_, span := tracers.Tracer("test").Start(t.Context(), "POST /orders")
	require.False(t, span.SpanContext().IsValid())
	end()
}

// A collector may send back the headers of a request that it refuses, and the SDK's error has the text of the response.
func TestAnErrorOfTheCollectorDoesNotRepeatTheToken(t *testing.T) {
	const token = "s3cr3t, t0ken"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, r.Header.Get("Authorization")+" "+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")+strings.Repeat("x", 1<<20), http.StatusBadRequest)
	}))
	defer server.Close()
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		t.Setenv(name, "x-tenant=s3cr,authorization=Bearer%20"+url.QueryEscape(strings.ReplaceAll(token, " ", "")))
		var log bytes.Buffer
		tracers, end, err := traces.Open(t.Context(), server.URL, "payment", zerolog.New(&log))
		require.NoError(t, err)
		_, one := tracers.Tracer("test").Start(t.Context(), "a span")
		one.End()
		end()
		require.Contains(t, log.String(), "400 Bad Request")
		require.NotContains(t, log.String(), "s3cr")
		require.NotContains(t, log.String(), "t0ken", "the tenant is a part of the token")
		require.Less(t, log.Len(), 1000)
	}
}
