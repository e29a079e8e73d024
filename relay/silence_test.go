//go:build unix

package relay_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// silence is longer than the server's keepalives are apart, and shorter than it is in production.
const silence = 10 * time.Second

// walsender returns the process that streams, and whether it works on the log.
func (s *stage) walsender() (pid int, busy bool, err error) {
	err = s.pool.QueryRow(context.Background(), `SELECT a.pid, coalesce(a.wait_event_type, '') NOT IN ('Activity', 'Client')
		FROM pg_stat_activity a JOIN pg_replication_slots r ON r.active_pid = a.pid`).Scan(&pid, &busy)
	return pid, busy, err
}

// freeze stops the process that streams, while it works on the log or while it waits for more, until thaw.
func (s *stage) freeze(working bool) (thaw func()) {
	s.t.Helper()
	var stopped int
	testkit.Wait(s.t, "a walsender to stop", func() (bool, error) {
		pid, busy, err := s.walsender()
		if err != nil || busy != working {
			return false, err
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return false, err
		}
		now, still, err := s.walsender()
		if err == nil && now == pid && still == working {
			stopped = pid
			return true, nil
		}
		return false, errors.Join(err, syscall.Kill(pid, syscall.SIGCONT))
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
	made.Silence(silence, time.Minute) // a walsender that is stopped waits for no reports
	r = s.run(made)
	s.waitStream()
	s.insert(s.topic, "k", "before")
	s.waitProven()
	return s, r, logs
}

// Up to Postgres 15 a server sends not even keepalives while it decodes the rows of a REFRESH MATERIALIZED VIEW. A new stream
// would decode the same again, forever.
func TestAServerThatDecodesForLongIsWaitedFor(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, r, logs := silentStage(t)
	s.exec("CREATE MATERIALIZED VIEW big AS SELECT g FROM generate_series(1, 100000) g WITH NO DATA")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var refreshing sync.WaitGroup
	refreshing.Go(func() {
		for ctx.Err() == nil { // the server has something to decode until it is frozen
			_, _ = s.pool.Exec(ctx, "REFRESH MATERIALIZED VIEW big")
		}
	})
	thaw := s.freeze(true)
	stop()
	refreshing.Wait()
	before := len(logs.String())
	testkit.Wait(t, "the relay to ask", func() (bool, error) {
		since := logs.String()[before:]
		return strings.Contains(since, "decodes a large transaction") || strings.Contains(since, "was silent"), nil
	})
	require.NotContains(t, logs.String()[before:], "was silent")
	require.NotContains(t, logs.String()[before:], `"streaming"`)
	waitUnready(t, r, "the server has sent no part of its log")
	thaw()
	s.insert(s.topic, "k", "after")
	require.Equal(t, []string{"before", "after"}, values(s.gather(2, s.topic)))
	testkit.Wait(t, "readiness", func() (bool, error) { return r.Ready() == nil, r.Ready() })
}

// A long transaction of another table in the publication arrives slowly: nothing can be published meanwhile, but the server is not silent.
func TestALongTransactionOfAnotherTableThatArrivesIsNoSilence(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	s.exec("CREATE TABLE big (text text); CREATE PUBLICATION wide FOR TABLE troupe.outbox, big WITH (publish = 'insert', publish_via_partition_root = true)")
	config := s.pool.Config()
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &slowConn{Conn: conn}, err
	}
	cfg := s.wal()
	logs := &lines{}
	cfg.Log, cfg.Pool, cfg.Publication = logs.logger(t), poolWith(t, config), "wide"
	made, err := relay.New(cfg)
	require.NoError(t, err)
	made.Silence(silence/2, time.Minute)
	s.run(made)
	s.waitStream()
	s.exec("INSERT INTO big SELECT repeat(md5(g::text), 32) FROM generate_series(1, 2000) g") // 2 MB: 25 s
	s.insert(s.topic, "k", "after")
	require.Equal(t, []string{"after"}, values(s.gather(1, s.topic)))
	require.NotContains(t, logs.String(), "the server has sent no part of its log")
}

// A slowConn takes 80 kB of a stream of the log in a second.
type slowConn struct {
	net.Conn
	slow atomic.Bool
}

func (c *slowConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("START_REPLICATION")) {
		c.slow.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *slowConn) Read(b []byte) (int, error) {
	if c.slow.Load() {
		<-time.After(50 * time.Millisecond)
		b = b[:min(len(b), 4<<10)]
	}
	return c.Conn.Read(b)
}

func TestAStreamWhoseServerIsSilentAndIdleBeginsAgain(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _, logs := silentStage(t)
	thaw := s.freeze(false)
	testkit.Wait(t, "the end of the stream", func() (bool, error) { return strings.Contains(logs.String(), "was silent"), nil })
	thaw()
	s.insert(s.topic, "k", "after")
	require.Equal(t, []string{"before", "after"}, values(s.gather(2, s.topic)))
}
