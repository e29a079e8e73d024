package relay_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

func TestARelayWarnsOfTheSlotThatItUsedUnderAnotherName(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, nil)
	cfg := s.wal()
	cfg.Slot = "troupe_old"
	first := s.startStreaming(cfg)
	require.NoError(t, first.stop())
	testkit.Wait(t, "the end of the stream", func() (bool, error) {
		return s.count("SELECT count(*) FROM pg_replication_slots WHERE active") == 0, nil
	})
	logs := &lines{}
	cfg.Slot, cfg.Log = "troupe_new", logs.logger(t)
	s.start(cfg)
	testkit.Wait(t, "the warning", func() (bool, error) { return strings.Contains(logs.String(), "no relay reads this slot"), nil })
	require.Contains(t, logs.String(), `"slot":"troupe_old"`)
}
