//go:build unix

package relay_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// silence is longer than the server's keepalives are apart, and shorter than it is in production.
const silence = 4 * time.Second

// walsender is the process that streams, and whether it works on the log.
func (s *stage) walsender() (pid int, busy bool) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(context.Background(), `SELECT a.pid, coalesce(a.wait_event_type, '') NOT IN ('Activity', 'Client')
		FROM pg_stat_activity a JOIN pg_replication_slots r ON r.active_pid = a.pid`).Scan(&pid, &busy))
	return pid, busy
}

// freeze stops the process that streams, while it works on the log or while it waits for more, until thaw.
func (s *stage) freeze(working bool) (thaw func()) {
	s.t.Helper()
	var stopped int
	testkit.Wait(s.t, "a walsender to stop", func() (bool, error) {
		pid, busy := s.walsender()
		if busy != working {
			return false, nil
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return false, err
		}
		if _, still := s.walsender(); still == working {
			stopped = pid
			return true, nil
		}
		return false, syscall.Kill(pid, syscall.SIGCONT)
	})
	thaw = func() { _ = syscall.Kill(stopped, syscall.SIGCONT) }
	s.t.Cleanup(thaw)
	return thaw
}

// silentStage streams, with a server whose large transactions take long to decode.
func silentStage(t *testing.T) (s *stage, r running, logs *lines) {
	s, _ = newServer(t, map[string]string{"logical_decoding_work_mem": "64kB", "fsync": "off"})
	cfg := s.wal()
	logs = &lines{}
	cfg.Log = logs.logger(t)
	made, err := relay.New(cfg)
	require.NoError(t, err)
	made.Silence(silence)
	r = s.run(made)
	s.waitStream()
	s.insert(s.topic, "k", "before")
	s.waitProven()
	return s, r, logs
}

// Up to Postgres 15 a server sends not even keepalives while it decodes what a REFRESH MATERIALIZED VIEW wrote. Begun
// again, it would decode the same again, for ever.
func TestAServerThatDecodesForLongIsWaitedFor(t *testing.T) {
	t.Parallel()
	s, _, logs := silentStage(t)
	s.exec("CREATE MATERIALIZED VIEW big AS SELECT g FROM generate_series(1, 1000000) g WITH NO DATA")
	s.exec("REFRESH MATERIALIZED VIEW big")
	thaw := s.freeze(true)
	testkit.Wait(t, "the relay to ask", func() (bool, error) {
		return strings.Contains(logs.String(), "decodes a large transaction") || strings.Contains(logs.String(), "was silent"), nil
	})
	thaw()
	s.insert(s.topic, "k", "after")
	require.Equal(t, []string{"before", "after"}, values(s.gather(2, s.topic)))
	require.NotContains(t, logs.String(), "was silent")
	require.Equal(t, 1, strings.Count(logs.String(), `"streaming"`))
}

func TestAStreamWhoseServerIsSilentAndIdleBeginsAgain(t *testing.T) {
	t.Parallel()
	s, _, logs := silentStage(t)
	thaw := s.freeze(false)
	testkit.Wait(t, "the end of the stream", func() (bool, error) { return strings.Contains(logs.String(), "was silent"), nil })
	thaw()
	s.insert(s.topic, "k", "after")
	require.Equal(t, []string{"before", "after"}, values(s.gather(2, s.topic)))
}
