package relay_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// replaceSlot changes the slot in the moment after its holder's stream ends and before the next begins. It retries until that
// succeeds, since the relay ends any session that uses its slot.
func (s *stage) replaceSlot(statements ...string) {
	s.t.Helper()
	testkit.Wait(s.t, "the slot to be free", func() (bool, error) {
		conn, err := pgx.ConnectConfig(s.t.Context(), s.pool.Config().ConnConfig)
		if err != nil {
			return false, err
		}
		defer conn.Close(context.Background())
		for _, statement := range append([]string{"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1"}, statements...) {
			if _, err := conn.Exec(s.t.Context(), statement, slotName); err != nil {
				return false, err
			}
		}
		return true, nil
	})
}

// After its slot is lost the relay reads the missing rows from the table, under load.
func TestASlotThatIsLostIsHealedUnderLoad(t *testing.T) {
	t.Parallel()
	needsLog(t)
	const drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1"
	for _, c := range []struct {
		name string
		lose []string
		told string
	}{
		{"dropped", []string{drop}, "the slot is gone"},
		{"dropped and created again by another program", []string{drop, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')"},
			"the slot was created again"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, _ := newServer(t, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			loaded := make(chan map[string]int)
			go func() { loaded <- s.hardLoad(ctx, 3) }()
			cfg := s.wal()
			logs := &lines{}
			cfg.Log = logs.logger(t)
			r := s.start(cfg)
			for range 3 {
				s.waitStream()
				from := r.Status().Deleted
				testkit.Wait(t, "rows", func() (bool, error) { return r.Status().Deleted > from+200, nil })
				s.replaceSlot(c.lose...)
				s.waitStream()
			}
			cancel()
			committed := <-loaded
			v := judge(s.gather(total(committed), s.topic), committed)
			t.Logf("%d rows", total(committed))
			v.requireSound(t)
			require.Contains(t, logs.String(), c.told)
		})
	}
}

// The server removes WAL before its disk is full: the slot is invalid, and created again.
func TestASlotThatTheServerInvalidatedIsHealed(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, map[string]string{
		"max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB", "min_wal_size": "32MB", "wal_keep_size": "0",
	})
	cfg := s.wal()
	r := s.start(cfg)
	s.waitStream()
	committed := s.fill(s.topic, 10, 20)
	s.waitProven()
	require.NoError(t, r.stop())
	for key := range committed { // while no relay runs
		s.insert(s.topic, key, "20")
		committed[key]++
	}
	testkit.Wait(t, "the server to give the slot up", func() (bool, error) {
		s.exec("SELECT pg_logical_emit_message(false, 'noise', repeat('x', 4000000)) FROM generate_series(1, 5); ")
		s.exec("SELECT pg_switch_wal()")
		s.exec("CHECKPOINT")
		return s.count("SELECT count(*) FROM pg_replication_slots WHERE wal_status = 'lost'") == 1, nil
	})
	r = s.start(cfg)
	s.waitStream()
	v := judge(s.gather(total(committed), s.topic), committed)
	v.requireSound(t)
	v.requireOnce(t, r.Status().LastError) // rows that were published and proven are not repeated
	s.insert(s.topic, "k1", "21")
	committed["k1"]++
	judge(s.gather(total(committed), s.topic), committed).requireSound(t)
	testkit.Wait(t, "readiness", func() (bool, error) { return r.Ready() == nil, r.Ready() })
}

// Another program's slot of that name is not changed.
func TestAForeignSlotIsRefused(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, server := newServer(t, nil)
	other, err := server.CreateDatabase(t.Context(), "other", "")
	require.NoError(t, err)
	_, err = poolOf(t, other).Exec(t.Context(), "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slotName)
	require.NoError(t, err)
	cfg := s.wal()
	r := s.start(cfg)
	testkit.Wait(t, "a word of it", func() (bool, error) { return r.Status().LastError != "", nil })
	require.Contains(t, r.Status().LastError, `give this relay a slot of another name`)
	require.Equal(t, 1, s.count("SELECT count(*) FROM pg_replication_slots WHERE database = 'other'"))
}

// A physical slot of that name is not changed either, and does not delay a relay that polls.
func TestAPhysicalSlotOfOurNameIsRefused(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	s.exec("SELECT pg_create_physical_replication_slot($1)", slotName)
	cfg := s.wal()
	r := s.start(cfg)
	testkit.Wait(t, "why", func() (bool, error) { return strings.Contains(r.Status().LastError, "is a physical one"), nil })
	require.NoError(t, r.stop())
	s.exec("INSERT INTO troupe.relay_state (slot, source, system_id, timeline) VALUES ($1, 'wal', '', 0)", slotName)
	cfg.Source = relay.Poll
	s.start(cfg)
	s.insert(s.topic, "k", "1")
	testkit.Consume(t, s.brokers, s.topic).WaitN(1)
	require.Equal(t, 1, s.count("SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical'"))
}

// A crash undoes commits that were not on disk yet, and their transaction ids and positions are given out again.
func TestACrashWithAsynchronousCommitsLosesNothing(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, server := newServer(t, map[string]string{"fsync": "on", "wal_writer_delay": "10s"})
	cfg := s.wal()
	r := s.start(cfg)
	s.waitStream()
	write := func(key string, n int, how string) {
		tx, err := s.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "SET LOCAL synchronous_commit = "+how)
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, 'Thing', $3)`,
			s.topic, key, fmt.Append(nil, n))
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context()))
	}
	for round := range 3 {
		for n := range 50 {
			write(fmt.Sprintf("sync-%d", round), n, "on")
		}
		for n := range 50 {
			write(fmt.Sprintf("async-%d", round), n, "off")
		}
		require.NoError(t, server.Kill())
		require.NoError(t, server.Start(t.Context()))
		testkit.Wait(t, "an answer", func() (bool, error) { return s.pool.Ping(t.Context()) == nil, nil })
		for n := range 50 {
			write(fmt.Sprintf("again-%d", round), n, "on")
		}
	}
	committed := s.committedNow()
	t.Logf("%d of 450 rows survived", total(committed))
	judge(s.gather(total(committed), s.topic), committed).requireSound(t)
	require.NoError(t, r.stop())
}

// A server that shuts down waits until its streaming clients have confirmed everything, which a relay cannot do while its
// statements are refused. The relay must not delay the shutdown.
func TestAServerCanBeRestartedUnderLoad(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, server := newServer(t, nil)
	r := s.start(s.wal())
	s.waitStream()
	for round := range 3 {
		s.fill(s.topic, 10, 200)
		if round == 2 {
			s.waitProven()
		}
		began := time.Now()
		require.NoError(t, server.Stop(t.Context()))
		require.Less(t, time.Since(began), waitLimit, "the relay held the server up") // the server would wait forever
		require.NoError(t, server.Start(t.Context()))
		testkit.Wait(t, "an answer", func() (bool, error) { return s.pool.Ping(t.Context()) == nil, nil })
		s.waitStream()
	}
	s.gather(6000, s.topic)
	require.NoError(t, r.stop())
}

// The documented rights are sufficient: to poll, to create a slot, to stream, to record failure and to read missing rows from
// the table.
func TestARelayThatStreamsNeedsNoMoreThanItsGrants(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	role := grantstest.New(t, s.pool, grants.Relay)
	s.exec("ALTER ROLE " + role.Name + " REPLICATION")
	pool := role.Pool()
	cfg := s.wal()
	cfg.Pool = pool
	seen := publishFailures(&cfg)
	r := s.start(cfg)
	s.waitStream()
	committed := s.fill(s.topic, 10, 20)
	s.insert(s.flow+".none.commands", "a", "0")
	require.False(t, (<-seen).Parked)
	s.waitProven()
	s.replaceSlot("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1")
	s.waitStream()
	s.insert(s.topic, "k1", "20")
	committed["k1"]++
	judge(s.gather(total(committed), s.topic), committed).requireSound(t)
	require.NoError(t, r.stop())
}
