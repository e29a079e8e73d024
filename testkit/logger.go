package testkit

import (
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
)

// Logger writes to the test's log. Lines that are logged after the test has ended are dropped.
func Logger(t testing.TB) zerolog.Logger {
	w := &logWriter{t: t}
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ended = true
	})
	return zerolog.New(w).With().Timestamp().Logger()
}

type logWriter struct {
	t     testing.TB
	mu    sync.Mutex
	ended bool
}

func (w *logWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.t.Log(strings.TrimRight(string(line), "\n"))
	}
	return len(line), nil
}
