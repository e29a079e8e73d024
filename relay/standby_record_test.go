//go:build unix

package relay_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// A pair is a primary and a connected standby that copies its slots.
type pair struct {
	*stage
	primary, standby *devstack.Postgres
	onStandby        *stage
}

func newPair(t *testing.T) *pair {
	t.Helper()
	binaries, err := devstack.FetchPostgres(t.Context(), devstack.Postgres17) // whichever is installed
	require.NoError(t, err)
	home, err := os.MkdirTemp("", "pair") // not t.TempDir: root runs a server as another user, and that user could not read it
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(home)) })
	require.NoError(t, os.Chmod(home, 0o755))
	start := func(name string, settings map[string]string) *devstack.Postgres {
		settings["shared_buffers"] = "32MB"
		server, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{
			Dir: filepath.Join(home, name), Binaries: binaries, Password: "pair", Settings: settings,
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, server.Close()) })
		return server
	}
	p := &pair{stage: &stage{t: t, brokers: testkit.Kafka(t), flow: testkit.Flow(t)}}
	p.primary = start("a", map[string]string{"wal_sender_timeout": "0"}) // a receiver that is stopped stays connected
	address, err := p.primary.CreateDatabase(t.Context(), "shop", "")
	require.NoError(t, err)
	require.NoError(t, migrations.Up(t.Context(), address))
	p.pool = poolOf(t, address)
	require.NoError(t, p.primary.Stop(t.Context()))
	require.NoError(t, exec.Command("cp", "-a", filepath.Join(home, "a"), filepath.Join(home, "b")).Run())
	signal := filepath.Join(home, "b", "data", "standby.signal")
	require.NoError(t, exec.Command("cp", "-a", filepath.Join(home, "b", "data", "PG_VERSION"), signal).Run()) // with its owner
	require.NoError(t, p.primary.Start(t.Context()))
	p.exec("SELECT pg_create_physical_replication_slot('standby_b', true)")
	p.standby = start("b", map[string]string{
		"primary_conninfo": p.primary.URL("postgres"), "primary_slot_name": "standby_b",
		"sync_replication_slots": "on", "hot_standby_feedback": "on",
	})
	p.onStandby = &stage{t: t, brokers: p.brokers, flow: p.flow, pool: poolOf(t, p.standby.URL("shop"))}
	testkit.Wait(t, "the standby", func() (bool, error) {
		return p.count("SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'standby_b' AND active AND restart_lsn IS NOT NULL") == 1, nil
	})
	return p
}

// syncSlots makes the standby copy the slots now: its worker may sleep for 30 s.
func (p *pair) syncSlots() {
	p.t.Helper()
	p.onStandby.exec("SELECT pg_reload_conf()")
}

// stopReceiver stops the standby's process that receives the log. The returned function lets it continue.
func (p *pair) stopReceiver() (resume func()) {
	p.t.Helper()
	var pid int
	require.NoError(p.t, p.onStandby.pool.QueryRow(p.t.Context(), "SELECT pid FROM pg_stat_wal_receiver").Scan(&pid))
	require.NoError(p.t, syscall.Kill(pid, syscall.SIGSTOP))
	resume = func() { _ = syscall.Kill(pid, syscall.SIGCONT) } // it may have ended
	p.t.Cleanup(resume)
	return resume
}

// startHolding starts a relay that waits for a standby for as long as limit.
func (p *pair) startHolding(cfg relay.Config, limit time.Duration) running {
	p.t.Helper()
	r, err := relay.New(cfg)
	require.NoError(p.t, err)
	r.Holding(limit)
	return p.run(r)
}

// passed counts the failed rows that a slot has passed.
const passed = `SELECT count(*) FROM troupe.mapped_failures f, pg_replication_slots s WHERE s.slot_type = 'logical' AND s.confirmed_flush_lsn > f.commit_lsn`

// The record of a failed row, and the state of the relay, are later in the log than the row. A standby that has the log only up to the row,
// and has copied a slot behind it, would have neither the row nor its record after a failover. So the slot does not pass the row before a
// connected standby has the record and the state: after a failover the relay continues without a person, and retries the row.
func TestASlotDoesNotPassAFailedRowWhoseRecordAStandbyLacks(t *testing.T) {
	t.Parallel()
	needsLog(t)
	p := newPair(t)
	p.exec(debeziumTable)
	cfg := p.mapped("public.outbox", p.routed(nil))
	cfg.Lease = 2 * time.Second
	r := p.startHolding(cfg, time.Hour)
	p.waitTable(r)
	written, topic := 0, p.eventTopic("order")
	testkit.Wait(t, "a copy of the slot", func() (bool, error) {
		p.exec("SELECT pg_log_standby_snapshot()") // the slot must pass one before it is copied first
		p.insertEvent("order", "k", strconv.Itoa(written))
		written++
		p.syncSlots()
		return p.onStandby.count("SELECT count(*) FROM pg_replication_slots WHERE synced AND NOT temporary") == 1, nil
	})
	resume := p.stopReceiver()
	p.insertEvent("missing", "failing", "0") // its topic does not exist
	const recorded = `FROM troupe.mapped_failures f, troupe.mapped_tables m WHERE m.lsn > f.commit_lsn`
	testkit.Wait(t, "a checkpoint behind the failed row", func() (bool, error) { return p.count("SELECT count(*) "+recorded) == 1, nil })
	testkit.Wait(t, "a report after this checkpoint", func() (bool, error) {
		return p.count(`SELECT count(*) FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid AND s.slot_type = 'logical'
			WHERE r.reply_time > (SELECT m.updated_at `+recorded+`)`) == 1, nil
	})
	require.Zero(t, p.count(passed))

	resume()
	testkit.Wait(t, "the slot to pass the row", func() (bool, error) { return p.count(passed) == 1, nil })
	testkit.Wait(t, "the copy of the slot to pass the row", func() (bool, error) {
		p.syncSlots()
		return p.onStandby.count(passed) == 1, nil
	})
	require.NoError(t, p.primary.Kill())
	_ = r.stop() // the database is away
	p.onStandby.exec("SELECT pg_promote()")
	cfg.Pool = p.onStandby.pool
	r = p.onStandby.start(cfg)
	p.onStandby.waitTable(r)
	p.onStandby.insertEvent("order", "k2", strconv.Itoa(written))
	p.gatherEvents(written+1, topic)
	require.Equal(t, 1, p.onStandby.count("SELECT count(*) FROM troupe.mapped_failures"))
	require.NoError(t, r.Ready(), fmt.Sprint(r.Status().LastError))
	require.NoError(t, r.stop())
}

// A physical slot may be one that never has the newest log, such as the slot of pg_receivewal. The relay does not wait for it for ever.
func TestASlotPassesAStandbyThatStaysBehind(t *testing.T) {
	t.Parallel()
	needsLog(t)
	p := newPair(t)
	p.exec(debeziumTable)
	r := p.startHolding(p.mapped("public.outbox", p.routed(nil)), time.Second)
	p.waitTable(r)
	p.stopReceiver()
	p.insertEvent("missing", "failing", "0") // its topic does not exist
	testkit.Wait(t, "the slot to pass the row", func() (bool, error) { return p.count(passed) == 1, nil })
	require.NoError(t, r.stop())
}
