package relay_test

import (
	"strings"
	"testing"
	"time"

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

// While a person decides about a table with a mapping, nothing streams its slot. The server must not give the slot up meanwhile: it may have
// rows that the table no longer has.
func TestAnIdleSlotOfAMappedTableIsKeptInUse(t *testing.T) {
	t.Parallel()
	needsLog(t)
	binaries, err := devstack.FetchPostgres(t.Context(), devstack.Postgres18)
	require.NoError(t, err)
	s, _ := newServerOf(t, binaries, map[string]string{"idle_replication_slot_timeout": "2min"})
	s.exec(debeziumTable)
	topic := s.eventTopic("order")
	cfg := s.mapped("public.outbox", s.routed(nil))
	r := s.start(cfg)
	s.waitTable(r)
	require.NoError(t, r.stop())
	s.exec("UPDATE troupe.mapped_tables SET publication = 'another one'")
	s.insertEvent("order", "k", "1") // only the log has it

	r = s.start(cfg)
	testkit.Wait(t, "the relay to wait for a person", func() (bool, error) {
		err := r.Ready()
		return err != nil && strings.Contains(err.Error(), "the publication was altered"), nil
	})
	var before time.Time
	later := func() (bool, error) {
		var since *time.Time // null during a use
		err := s.pool.QueryRow(t.Context(), "SELECT inactive_since FROM pg_replication_slots").Scan(&since)
		if err != nil || since == nil || !since.After(before) {
			return false, err
		}
		before = *since
		return true, nil
	}
	testkit.Wait(t, "the slot to be idle", later)
	testkit.Wait(t, "the server to count the time from a later use", later)
	s.exec("UPDATE troupe.mapped_tables SET publication = NULL")
	require.Equal(t, []string{"1"}, values(s.gatherEvents(1, topic)))
}
