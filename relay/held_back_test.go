//go:build unix

package relay_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/testkit"
)

// From Postgres 17 on the server may hold the log back from the relay until a standby has it. While that standby is absent nothing is
// published, and the relay names the setting, the slot and the remedy: in a stream, and where exactly-once delivery first looks for its
// checkpoint in the log.
func TestAServerThatWaitsForAStandbyIsNamed(t *testing.T) {
	t.Parallel()
	needsLog(t)
	binaries, err := devstack.FetchPostgres(t.Context(), devstack.Postgres17) // whichever is installed
	require.NoError(t, err)
	start := func(t *testing.T) *stage {
		t.Helper()
		s, _ := newServerOf(t, binaries, nil)
		return s
	}
	waitsFor := func(s *stage, slot string) {
		s.exec("ALTER SYSTEM SET synchronized_standby_slots = '" + slot + "'")
		s.exec("SELECT pg_reload_conf()")
		testkit.Wait(s.t, "the setting", func() (bool, error) {
			return s.count("SELECT count(*) FROM pg_settings WHERE name = 'synchronized_standby_slots' AND setting = $1", slot) == 1, nil
		})
	}
	named := func(t *testing.T, r running, logs *lines, reason string) {
		t.Helper()
		testkit.Wait(t, "the reason", func() (bool, error) {
			err := r.Ready()
			return err != nil && strings.Contains(err.Error(), reason), nil
		})
		require.Contains(t, r.Status().LastError, reason)
		require.Contains(t, logs.String(), reason)
	}
	t.Run("in a stream", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		cfg, logs := s.wal(), &lines{}
		cfg.Log = logs.logger(t)
		r := s.start(cfg)
		s.waitStream()
		s.exec("SELECT pg_create_physical_replication_slot('standby_b', true)")
		waitsFor(s, "standby_b")
		s.insert(s.topic, "k", "0")
		named(t, r, logs, "synchronized_standby_slots names standby_b, and no standby streams this slot: start that standby")
		s.exec("SELECT pg_drop_replication_slot('standby_b')")
		testkit.Wait(t, "the other reason", func() (bool, error) {
			return strings.Contains(r.Status().LastError, "synchronized_standby_slots names standby_b, and there is no such physical slot"), nil
		})
		waitsFor(s, "")
		require.Equal(t, []string{"0"}, values(s.gather(1, s.topic)))
		testkit.Wait(t, "readiness", func() (bool, error) { return r.Ready() == nil, r.Ready() })
	})
	t.Run("at the checkpoint", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		first := s.startStreaming(s.exactly())
		require.NoError(t, first.stop())
		s.insert(s.topic, "k", "0")
		victim := s.spawn(childConfig{Holder: "victim", Lease: 1500 * time.Millisecond, KillAt: "after delete", KillNth: 1, Exactly: time.Minute})
		require.Equal(t, syscall.SIGKILL, victim.wait(waitLimit).Signal())
		s.exec("SELECT pg_create_physical_replication_slot('standby_b', true)")
		waitsFor(s, "standby_b")
		cfg, logs := s.exactly(), &lines{}
		cfg.Log = logs.logger(t)
		r := s.start(cfg)
		named(t, r, logs, "synchronized_standby_slots names standby_b, and no standby streams this slot: start that standby")
		waitsFor(s, "")
		s.insert(s.topic, "k", "1")
		s.settleExactly(r, map[string]int{"k": 2})
	})
}
