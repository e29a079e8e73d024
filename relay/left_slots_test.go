package relay_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/doctor"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

func TestARelayWarnsOfTheSlotThatItUsedUnderAnotherName(t *testing.T) {
	t.Parallel()
	needsLog(t)
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

// The retained rows were published under the first name. They are published again neither under the second, nor when the first is
// configured again, and a replay knows them.
func TestAnotherSlotNamePublishesNoRetainedRowAgain(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	records := testkit.Consume(t, s.brokers, s.topic)
	sent := 0
	send := func(kind string) string {
		sent++
		text := fmt.Sprintf("%s %d", kind, sent)
		s.insert(s.topic, "k", text)
		return text
	}
	run := func(slot string) {
		t.Helper()
		logs := &lines{}
		cfg := s.wal()
		cfg.Slot, cfg.Log = slot, logs.logger(t)
		r := s.start(cfg)
		testkit.Wait(t, "the stream", func() (bool, error) { return strings.Contains(logs.String(), `"message":"streaming"`), nil })
		for range 5 {
			send("kept")
		}
		testkit.Wait(t, "a checkpoint behind the kept rows", func() (bool, error) {
			send("later") // a quiet relay stores none
			return s.count(`SELECT count(*) FROM troupe.outbox o WHERE convert_from(payload, 'UTF8') LIKE 'kept%'
				AND NOT EXISTS (SELECT FROM troupe.relay_state r WHERE pg_visible_in_snapshot(o.xid, r.published))`) == 0, nil
		})
		last := send("later")
		testkit.Wait(t, last, func() (bool, error) { return slices.Contains(texts(records.Records()), last), nil })
		require.NoError(t, r.stop())
		testkit.Wait(t, "the end of the stream", func() (bool, error) {
			return s.count("SELECT count(*) FROM pg_replication_slots WHERE active") == 0, nil
		})
	}
	run("troupe_first")
	s.exec("UPDATE troupe.relay_state SET updated_at = updated_at + interval '20 days'") // by a server whose clock was ahead
	run("troupe_second")
	run("troupe_second")
	run("troupe_first")
	seen := make(map[string]int)
	for _, text := range texts(records.Records()) {
		seen[text]++
	}
	require.Len(t, seen, sent)
	for text, times := range seen {
		if strings.HasPrefix(text, "kept") {
			require.Equal(t, 1, times, text)
		}
	}
	p, err := relay.Replay{}.Run(t.Context(), s.config(), nil)
	require.NoError(t, err)
	require.GreaterOrEqual(t, p.Published, int64(20))
}

// Rows of a table with a mapping may be in its slot's log alone. A relay with another slot does not leave them behind, whether the slot was
// given another name or the table, whose name the default slot has.
func TestAMappedTableIsNotLeftBehindInASlotOfAnotherName(t *testing.T) {
	t.Parallel()
	needsLog(t)
	for _, c := range []struct{ name, change, table string }{
		{name: "another slot", table: "public.outbox"},
		{name: "another table", table: "public.events", change: "ALTER TABLE public.outbox RENAME TO events"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, _ := newServer(t, nil)
			s.exec(debeziumTable)
			topic := s.eventTopic("order")
			cfg := s.mapped("public.outbox", s.routed(nil))
			cfg.Slot, cfg.Publication, cfg.Lease = "troupe_first", "troupe_first", time.Second
			r := s.start(cfg)
			s.waitTable(r)
			s.insertEvent("order", "k", "0")
			require.Equal(t, []string{"0"}, values(s.gatherEvents(1, topic)))
			end := func() {
				require.NoError(t, r.stop())
				testkit.Wait(t, "the end of the stream", func() (bool, error) {
					return s.count("SELECT count(*) FROM pg_replication_slots WHERE active") == 0, nil
				})
			}
			end()
			s.insertEvent("order", "k", "1")
			if c.change != "" {
				s.exec(c.change)
			}

			cfg.Table = c.table
			other := cfg
			other.Slot, other.Publication = "troupe_second", "troupe_second"
			r = s.start(other)
			waitUnready(t, r, "public.outbox", "troupe_first", "SELECT pg_drop_replication_slot('troupe_first')")
			end()
			r = s.start(cfg)
			require.Equal(t, []string{"0", "1"}, values(s.gatherEvents(2, topic)))
			end()
			r = s.start(other)
			waitUnready(t, r, "troupe_first")
			s.exec("SELECT pg_drop_replication_slot('troupe_first')")
			testkit.Wait(t, "readiness", func() (bool, error) { return r.Ready() == nil, r.Ready() })
			s.waitTable(r)
		})
	}
}

// Before a person decides on the former slot of a table with a mapping, the server must not give it up: its rows may be in that slot alone.
func TestTheFormerSlotOfAMappedTableIsKeptInUse(t *testing.T) {
	t.Parallel()
	needsLog(t)
	binaries, err := devstack.FetchPostgres(t.Context(), devstack.Postgres18) // before it, slots have no idle time-out
	require.NoError(t, err)
	s, _ := newServerOf(t, binaries, map[string]string{"idle_replication_slot_timeout": "2min"})
	s.exec(debeziumTable)
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Slot = "troupe_first"
	r := s.start(cfg)
	s.waitTable(r)
	require.NoError(t, r.stop())
	cfg.Slot = "troupe_second"
	r = s.start(cfg)
	waitUnready(t, r, "troupe_first")
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
}

// Each of several tables that no longer exist may be the new table under its former name. The server must give up the slot of none.
func TestEachFormerSlotThatAPersonDecidesOnIsKeptInUse(t *testing.T) {
	t.Parallel()
	binaries, err := devstack.FetchPostgres(t.Context(), devstack.Postgres18) // before it, slots have no idle time-out
	require.NoError(t, err)
	s, _ := newServerOf(t, binaries, map[string]string{"idle_replication_slot_timeout": "2min"})
	s.exec(debeziumTable)
	var formers []string
	for _, name := range []string{"first", "second"} {
		s.exec("CREATE TABLE public." + name + " (LIKE public.outbox)")
		cfg := s.mapped("public."+name, s.routed(nil))
		cfg.Slot, cfg.Publication = "troupe_"+name, name
		r := s.start(cfg)
		s.waitTable(r)
		require.NoError(t, r.stop())
		formers = append(formers, cfg.Slot)
	}
	s.exec("DROP TABLE public.first, public.second")
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Slot = "troupe_third"
	waitUnready(t, s.start(cfg), "troupe_first")
	for _, slot := range formers {
		var before time.Time
		for range 2 {
			testkit.Wait(t, "the server to count the time of slot "+slot+" from a later use", func() (bool, error) {
				var since *time.Time // null during a use
				err := s.pool.QueryRow(t.Context(), "SELECT inactive_since FROM pg_replication_slots WHERE slot_name = $1", slot).Scan(&since)
				if err != nil || since == nil || !since.After(before) {
					return false, err
				}
				before = *since
				return true, nil
			})
		}
	}
}

// The rows that only the former slot of a table with a mapping had are gone with that slot. The relay does not pass over them in silence.
func TestALostFormerSlotOfAMappedTableIsNamed(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, map[string]string{
		"max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB", "min_wal_size": "32MB", "wal_keep_size": "0",
	})
	s.exec(debeziumTable)
	topic := s.eventTopic("order")
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Slot = "troupe_first"
	r := s.start(cfg)
	s.waitTable(r)
	require.NoError(t, r.stop())
	s.insertEvent("order", "k", "1") // it is deleted at once: only the log has it
	testkit.Wait(t, "the server to give the slot up", func() (bool, error) {
		s.exec("SELECT pg_logical_emit_message(false, 'noise', repeat('x', 4000000)) FROM generate_series(1, 5)")
		s.exec("SELECT pg_switch_wal()")
		s.exec("CHECKPOINT")
		return s.count("SELECT count(*) FROM pg_replication_slots WHERE wal_status = 'lost'") == 1, nil
	})
	var lsn string
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT lsn::text FROM troupe.mapped_tables").Scan(&lsn))
	cfg.Slot = "troupe_second"
	r = s.start(cfg)
	waitUnready(t, r, "public.outbox", "troupe_first", "is lost", "max_slot_wal_keep_size", lsn,
		"SELECT pg_drop_replication_slot('troupe_first')")
	require.Contains(t, r.Status().LastError, "is lost")
	examined, err := doctor.Examine(t.Context(), doctor.Config{
		Database: s.pool.Config().ConnConfig, Parts: []doctor.Part{doctor.MappedRelay}, Limit: 2 * time.Minute,
	})
	require.NoError(t, err)
	n := slices.IndexFunc(examined.Findings, func(f doctor.Finding) bool { return strings.HasPrefix(f.Found, "troupe_first is lost") })
	require.GreaterOrEqual(t, n, 0, examined.Findings)
	require.Contains(t, examined.Findings[n].Remedy, "SELECT pg_drop_replication_slot('troupe_first')", "check gives the remedy of the relay")
	require.Contains(t, examined.Findings[n].Remedy, "public.outbox")
	s.exec("SELECT pg_drop_replication_slot('troupe_first')")
	s.waitTable(r)
	s.insertEvent("order", "k", "2")
	require.Equal(t, []string{"2"}, values(s.gatherEvents(1, topic)))
}

// A table was dropped, and the relay of troupe.outbox has its slot since. Another table's relay must not advise to drop that slot, nor wait for it.
func TestASlotThatTheOutboxHasByNowIsNoFormerSlotOfAMappedTable(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	s.exec(debeziumTable)
	s.exec("CREATE TABLE public.former (LIKE public.outbox)")
	cfg := s.mapped("public.former", s.routed(nil))
	cfg.Slot, cfg.Publication = slotName, "former"
	r := s.start(cfg)
	s.waitTable(r)
	require.NoError(t, r.stop())
	s.exec("DROP TABLE public.former")
	s.startStreaming(s.wal())

	cfg = s.mapped("public.outbox", s.routed(nil))
	cfg.Slot, cfg.Publication = "another", "mapped"
	s.waitTable(s.start(cfg))
}

// The relay of troupe.outbox is configured with a table's slot and refuses it. That makes the slot no slot of troupe.outbox: the table, which is
// streamed from another slot by now, may have rows in it.
func TestASlotThatTheOutboxOnlyAsksForIsStillAFormerSlot(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	s.exec(debeziumTable)
	topic := s.eventTopic("order")
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Slot, cfg.Publication, cfg.Lease = slotName, "mapped", time.Second
	r := s.start(cfg)
	s.waitTable(r)
	require.NoError(t, r.stop())
	s.insertEvent("order", "k", "1") // only the log has it
	other := s.wal()
	other.Lease = time.Second
	second := s.start(other)
	waitUnready(t, second, "slot "+slotName, "public.outbox")

	cfg.Slot = "another"
	r = s.start(cfg)
	waitUnready(t, r, "table public.outbox was streamed from slot "+slotName)
	cfg.Slot = slotName
	require.NoError(t, r.stop())
	s.start(cfg)
	require.Equal(t, []string{"1"}, values(s.gatherEvents(1, topic)))
}
