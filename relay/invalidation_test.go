package relay_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/testkit"
)

// Postgres 18 invalidates a slot that nothing has streamed for a while, if it is configured to. The relay must log
// this reason, and not that the server has removed log.
func TestASlotThatWasIdleForTooLongIsNamedAsThat(t *testing.T) {
	t.Parallel()
	needsLog(t)
	binaries, err := devstack.FetchPostgres(t.Context(), devstack.Postgres18) // before it, slots have no idle time-out
	require.NoError(t, err)
	s, _ := newServerOf(t, binaries, nil)
	cfg := s.wal()
	r := s.start(cfg)
	s.waitStream()
	s.insert(s.topic, "k", "before")
	s.waitProven()
	require.NoError(t, r.stop())
	s.exec("ALTER SYSTEM SET idle_replication_slot_timeout = '1s'")
	s.exec("SELECT pg_reload_conf()")
	testkit.Wait(t, "the server to give the slot up", func() (bool, error) {
		s.exec("CHECKPOINT")
		return s.count("SELECT count(*) FROM pg_replication_slots WHERE wal_status = 'lost'") == 1, nil
	})
	logs := &lines{}
	cfg.Log = logs.logger(t)
	s.start(cfg)
	s.waitStream()
	s.insert(s.topic, "k", "after")
	require.Equal(t, []string{"before", "after"}, values(s.gather(2, s.topic)))
	require.Contains(t, logs.String(), "nothing streamed it for longer than idle_replication_slot_timeout")
	require.NotContains(t, logs.String(), "has removed")
}
