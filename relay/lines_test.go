package relay_test

import (
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/testkit"
)

// lines stores the log's lines.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// logger writes to lines and to the test's own log.
func (l *lines) logger(t testing.TB) zerolog.Logger {
	return zerolog.New(io.MultiWriter(l, testkit.Logger(t))).With().Timestamp().Logger()
}
