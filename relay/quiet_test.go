package relay

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// A writer chooses the topics, and so the kinds of failures.
func TestFailuresOfManyTopicsAreLoggedTogether(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	q := quiet{log: zerolog.New(&log)}
	for n := range 20 * maxKinds {
		q.failed(fmt.Sprintf("topic t-%d", n), errors.New("refused"))
	}
	q.failed("topic t-0", errors.New("refused"))
	require.LessOrEqual(t, len(q.kinds), maxKinds+1)
	require.LessOrEqual(t, bytes.Count(log.Bytes(), []byte("\n")), maxKinds+1)
	require.Contains(t, log.String(), `"message":"topic t-0: failed, trying on"`)
	require.Contains(t, log.String(), `"message":"other failures: failed, trying on"`)
	q.recovered("topic t-0")
	q.recovered("topic t-30000") // it was never logged by its name
	require.Contains(t, log.String(), `{"level":"info","count":2,"message":"topic t-0: works again"}`)
	require.NotContains(t, log.String(), "t-30000")
}
