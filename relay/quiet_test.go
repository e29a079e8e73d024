package relay

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

func TestAFailureThatRepeatsIsLoggedOnceAndOnceWhenItIsOver(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	q := quiet{log: zerolog.New(&log)}
	q.recovered("kind")
	for range 100 {
		q.failed("kind", errors.New("away"))
	}
	q.failed("other", errors.New("away as well"))
	q.recovered("kind")
	q.recovered("kind")
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	require.Len(t, lines, 3)
	require.Contains(t, lines[0], `"error":"away","count":1`)
	require.Contains(t, lines[1], `"error":"away as well"`)
	require.Contains(t, lines[2], `"count":100`)
}
