//go:build unix

package relay_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// A relay that streams and is stopped under load ends in time, and its successor repeats no row.
func TestAStopUnderLoadRepeatsNothing(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	loaded := make(chan map[string]int)
	go func() { loaded <- s.hardLoad(ctx, 4) }()
	child := func(n int) *process {
		p := s.spawn(childConfig{Holder: "child-" + strconv.Itoa(n), Source: relay.WAL})
		s.waitLeader("child-" + strconv.Itoa(n))
		s.waitStream()
		return p
	}
	var broke string
	for n := range 6 {
		p := child(n)
		committed := s.count("SELECT count(*) FROM troupe.outbox")
		testkit.Wait(t, "more rows", func() (bool, error) { return s.count("SELECT count(*) FROM troupe.outbox") > committed+50, nil })
		began := time.Now()
		p.signal(syscall.SIGTERM)
		require.Equal(t, 0, p.wait(15*time.Second).ExitStatus())
		t.Logf("ended after %s", time.Since(began).Round(time.Millisecond))
		broke = cmp.Or(broke, p.broke())
	}
	last := child(6)
	cancel()
	committed := <-loaded
	v := judge(s.gather(total(committed), s.topic), committed)
	t.Logf("%d rows", total(committed))
	v.requireSound(t)
	v.requireOnce(t, cmp.Or(broke, last.broke()))
}

// The leader is killed again and again while another relay is on standby.
func TestKillsWithAStandbyUnderLoadLoseNothing(t *testing.T) {
	t.Parallel()
	length := 5 * time.Second
	if text := os.Getenv("TROUPE_SOAK"); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	s, _ := newServer(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	loaded := make(chan map[string]int)
	go func() { loaded <- s.hardLoad(ctx, 3) }()
	spawn := func(n int) *process {
		return s.spawn(childConfig{Holder: "child-" + strconv.Itoa(n), Source: relay.WAL, Lease: 1500 * time.Millisecond})
	}
	leader, kills := spawn(0), 0
	for ; ctx.Err() == nil; kills++ {
		next := spawn(kills + 1)
		select {
		case <-time.After(600*time.Millisecond + time.Duration(kills%7)*53*time.Millisecond):
		case <-ctx.Done():
		}
		leader.signal(syscall.SIGKILL)
		require.Equal(t, syscall.SIGKILL, leader.wait(waitLimit).Signal())
		leader = next
	}
	committed := <-loaded
	v := judge(s.gather(total(committed), s.topic), committed)
	t.Logf("%d rows, %d kills in %s", total(committed), kills, length)
	v.requireSound(t)
}

// A leader that is frozen loses its slot within seconds, long before its lease expires. Once awake it can only repeat rows.
func TestAStreamingRelayThatWasFrozenOnlyRepeats(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	frozen := s.spawn(childConfig{Holder: "frozen", Source: relay.WAL, Batch: 20})
	s.waitLeader("frozen")
	s.waitStream()
	cfg := s.wal()
	cfg.Holder, cfg.Lease = "heir", 2*time.Second
	heir := s.start(cfg)
	waitRole(t, heir, relay.Standby)
	committed := s.fill(s.topic, 10, 2000)
	frozen.signal(syscall.SIGSTOP)
	s.exec("UPDATE troupe.relay_leases SET expires_at = clock_timestamp() + interval '1 hour'") // the slot decides, not the lease
	waitRole(t, heir, relay.Active)
	s.waitStream()
	frozen.signal(syscall.SIGCONT)
	for key := range committed { // rows of the new term, while the other finds out
		for range 20 {
			s.insert(s.topic, key, strconv.Itoa(committed[key]))
			committed[key]++
		}
	}
	v := judge(s.gather(total(committed), s.topic), committed)
	v.requireSound(t)
	require.Equal(t, relay.Active, heir.Status().Role, "the lease stays where it is")
	frozen.signal(syscall.SIGTERM)
	require.Equal(t, 0, frozen.wait(waitLimit).ExitStatus())
}

// A transaction of any size passes in bounded memory, without the rows that were rolled back inside it, and delays no other.
// TROUPE_SOAK makes it 1,000,000 rows.
func TestAHugeTransactionPassesInBoundedMemory(t *testing.T) {
	t.Parallel()
	rows := 60_000
	if os.Getenv("TROUPE_SOAK") != "" {
		rows = 1_000_000
	}
	s, _ := newServer(t, nil)
	p := s.spawn(childConfig{Holder: "child", Source: relay.WAL})
	s.waitLeader("child")
	s.waitStream()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	loaded := make(chan map[string]int)
	go func() { loaded <- s.hardLoad(ctx, 2) }()
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	part := func(from, to int, payload string) {
		_, err := tx.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, payload, headers)
			SELECT $1, 'huge' || n % 10, 'Thing', convert_to(`+payload+`, 'UTF8'), jsonb_build_object('pad', repeat('x', 200))
			FROM generate_series($2::int, $3::int) AS n`, s.topic, from, to)
		require.NoError(t, err)
	}
	part(0, rows/2-1, "(n / 10)::text")
	_, err = tx.Exec(t.Context(), "SAVEPOINT a")
	require.NoError(t, err)
	part(0, rows/4, "'never'")
	_, err = tx.Exec(t.Context(), "ROLLBACK TO a")
	require.NoError(t, err)
	part(rows/2, rows-1, "(n / 10)::text")
	require.NoError(t, tx.Commit(t.Context()))
	cancel()
	committed := <-loaded
	for n := range 10 {
		committed[fmt.Sprintf("huge%d", n)] = rows / 10
	}
	v := judge(s.gather(total(committed), s.topic), committed)
	v.requireSound(t)
	v.requireOnce(t, p.broke())
	if runtime.GOOS != "linux" {
		return
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(t, err)
	_, after, _ := bytes.Cut(status, []byte("VmHWM:"))
	var peak int
	_, err = fmt.Sscanf(string(after), "%d kB", &peak)
	require.NoError(t, err)
	t.Logf("peak memory %d MB", peak>>10)
	require.Less(t, peak, 160<<10, "kB: with this binary's tests in it")
}
