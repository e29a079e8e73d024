package relay_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// A row's topic is any text of its service.
func TestATopicOfAHundredKilobytesIsNotLoggedInFull(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var log lockedBuffer
	cfg := s.config()
	cfg.Log = zerolog.New(&log)
	cfg.Retry.Attempts, cfg.UnknownTopic = 1, 1
	s.start(cfg)
	s.insert("long\x1b"+strings.Repeat("x", 100_000), "k", "1")
	testkit.Wait(t, "a parked row", func() (bool, error) { return strings.Contains(log.String(), "row parked"), nil })
	for line := range strings.Lines(log.String()) {
		require.Less(t, len(line), 4000)
	}
	require.Contains(t, log.String(), "long·xxx")
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
