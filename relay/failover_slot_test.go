package relay_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// From Postgres 17 on a slot is made for standbys to copy, unless the configuration says no. An existing slot is altered when a
// relay with another configuration starts, and no row is repeated by that.
func TestASlotHasTheConfiguredFailover(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	version := s.count("SELECT current_setting('server_version_num')::int")
	copied := func(want bool) {
		t.Helper()
		require.Equal(t, want, s.count(`SELECT count(*) FROM pg_replication_slots s WHERE (to_jsonb(s) ->> 'failover')::boolean`) == 1)
	}
	rounds := 0
	run := func(failover string) {
		t.Helper()
		cfg := s.wal()
		cfg.Failover = failover
		r := s.start(cfg)
		s.waitStream()
		s.insert(s.topic, "k", failover)
		rounds++
		s.waitProven()
		require.NoError(t, r.stop())
	}
	run("") // the default
	copied(version >= 170000)
	run("off")
	copied(false)
	run("auto")
	copied(version >= 170000)
	require.Len(t, s.gather(rounds, s.topic), rounds, "without repeats")

	cfg := s.wal()
	cfg.Failover = "on"
	r := s.start(cfg)
	if version >= 170000 {
		s.waitStream()
		return
	}
	testkit.Wait(t, "the reason", func() (bool, error) { return r.Status().LastError != "", nil })
	require.Contains(t, r.Status().LastError, "failover on: slots are copied to standbys from Postgres 17 on")
}

func TestAnUnknownFailoverIsRefused(t *testing.T) {
	t.Parallel()
	cfg := newStage(t).wal()
	cfg.Failover = "maybe"
	_, err := relay.New(cfg)
	require.ErrorContains(t, err, `failover "maybe": want auto, on or off`)
}
