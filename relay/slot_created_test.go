package relay_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// A slot whose creation has not ended is dropped by the next relay, so a row that is only in its log may be lost. The log says "slot
// created" when that can no longer happen.
func TestASlotIsReportedAsCreatedOnceItsCreationHasEnded(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	open, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = open.Exec(t.Context(), "SELECT pg_current_xact_id()")
	require.NoError(t, err)

	var logs *lines
	start := func() running {
		logs = &lines{}
		cfg := s.wal()
		cfg.Log = logs.logger(t)
		return s.start(cfg)
	}
	logged := func(text string) {
		t.Helper()
		testkit.Wait(t, text, func() (bool, error) { return strings.Contains(logs.String(), text), nil })
	}
	r := start()
	logged(`"message":"creating the slot; `)
	s.insert(s.topic, "k", "1")
	s.gather(1, s.topic)
	require.NoError(t, r.stop())
	require.NotContains(t, logs.String(), "slot created")

	r = start()
	logged(`"message":"creating the slot again; `)
	require.Contains(t, logs.String(), "ended before the slot was created")
	require.NoError(t, open.Commit(t.Context()))
	logged(`"message":"slot created"`)
	logged(`"message":"streaming"`)
	require.NoError(t, r.stop())
}
