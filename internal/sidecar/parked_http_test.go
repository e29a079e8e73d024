package sidecar

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// A hundred requests for parked rows with long keys and errors took a gigabyte of the process that publishes.
func TestRequestsForParkedRowsAreAnsweredOneAfterTheOther(t *testing.T) {
	t.Parallel()
	a := newAdmin(&fleet{}, prometheus.NewRegistry(), zerolog.Nop())
	ask := func(ctx context.Context) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1/parked", nil))
		return w
	}
	for range 3 {
		require.Equal(t, http.StatusBadRequest, ask(t.Context()).Code, "it names no outbox")
	}
	a.listing <- struct{}{}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	w := ask(gone)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	<-a.listing
	require.Equal(t, http.StatusBadRequest, ask(t.Context()).Code)
}

// A producer chooses the characters of keys and errors.
func TestAnAnswerHasNoEscapedCharactersOfHTML(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	answer(w, http.StatusOK, map[string]string{"key": strings.Repeat("<", 1<<20)})
	require.Less(t, w.Body.Len(), 1<<20+100)
}
