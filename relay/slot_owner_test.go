package relay_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// The relays of two outboxes of a database are configured with one slot, in two processes. The second one leaves the slot alone, also while
// no relay streams it: rows of the first outbox may be in its log alone.
func TestARelayLeavesTheSlotOfAnotherOutboxAlone(t *testing.T) {
	t.Parallel()
	needsLog(t)
	for _, c := range []struct {
		name  string
		other func(s *stage) relay.Config
	}{
		{"a table with a mapping", func(s *stage) relay.Config {
			s.exec("CREATE TABLE public.events (LIKE public.outbox)")
			cfg := s.mapped("public.events", s.routed(nil))
			cfg.Publication = "events"
			return cfg
		}},
		{"troupe.outbox", func(s *stage) relay.Config { return s.wal() }},
		{"troupe.outbox, exactly once", func(s *stage) relay.Config { return s.exactly() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, _ := newServer(t, nil)
			s.exec(debeziumTable)
			topic := s.eventTopic("order")
			cfg := s.mapped("public.outbox", s.routed(nil))
			slot := strings.ReplaceAll(s.flow, "-", "_")
			cfg.Slot, cfg.Publication, cfg.Lease, cfg.Holder = slot, "mapped", time.Second, "first"
			cfg.Delivery = relay.AtLeastOnce
			first := s.start(cfg)
			s.waitTable(first)
			s.insertEvent("order", "k", "0")
			require.Equal(t, []string{"0"}, values(s.gatherEvents(1, topic)))
			require.NoError(t, first.stop())
			testkit.Wait(t, "the end of the stream", func() (bool, error) {
				return s.count("SELECT count(*) FROM pg_replication_slots WHERE active") == 0, nil
			})
			s.insertEvent("order", "k", "1") // only the log has it

			other := c.other(s)
			other.Slot, other.Lease, other.Holder = slot, time.Second, "other"
			second := s.start(other)
			waitUnready(t, second, "slot "+slot, "public.outbox")
			client, err := kafka.NewClient(s.brokers)
			require.NoError(t, err)
			defer client.Close()
			found, err := kadm.NewClient(client).ListTopics(t.Context(), topics.Relay(slot))
			require.NoError(t, err)
			require.False(t, found.Has(topics.Relay(slot)), "it takes no transactional id, which has the slot's name")

			cfg.Holder = "another host"
			first = s.start(cfg)
			s.waitTable(first)
			require.Equal(t, []string{"0", "1"}, values(s.gatherEvents(2, topic)))
			waitUnready(t, second, "slot "+slot, "public.outbox")
			require.NoError(t, first.Ready())
			require.NoError(t, second.stop())
		})
	}
}

// The relay of troupe.outbox streamed the slot. A table with a mapping does not take it over while no relay streams it.
func TestAMappedTableLeavesTheSlotOfTheOutboxAlone(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	s.exec(debeziumTable)
	first := s.startStreaming(s.wal())
	require.NoError(t, first.stop())
	confirmed := func() (now string) {
		require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT confirmed_flush_lsn::text FROM pg_replication_slots").Scan(&now))
		return now
	}
	lsn := confirmed()
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Slot, cfg.Publication, cfg.Lease = slotName, "mapped", time.Second
	second := s.start(cfg)
	waitUnready(t, second, "slot "+slotName, "troupe.outbox")
	require.Equal(t, lsn, confirmed())
	cfg.Slot = "another"
	require.NoError(t, second.stop())
	second = s.start(cfg)
	s.waitTable(second)
}

// The error of a relay has the statement that releases the slot of troupe.outbox. The slot may have been released before.
func TestASlotIsReleasedByTheStatementOfTheErrorEachTime(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	s.exec(debeziumTable)
	require.NoError(t, s.startStreaming(s.wal()).stop())
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Slot, cfg.Publication = slotName, "mapped"
	cfg.Lease = time.Second
	r := s.start(cfg)
	waitUnready(t, r, "slot "+slotName, "troupe.outbox")
	_, release, _ := strings.Cut(r.Ready().Error(), "from the slot any more: ")
	require.NoError(t, r.stop())
	s.exec(release)
	require.Zero(t, s.count("SELECT count(*) FROM troupe.relay_state WHERE slot = $1", slotName))
	s.exec("INSERT INTO troupe.relay_state (slot, source, system_id, timeline) SELECT $1, source, system_id, timeline FROM troupe.relay_state", slotName)
	s.exec(release)
	require.Zero(t, s.count("SELECT count(*) FROM troupe.relay_state WHERE slot = $1", slotName))
}

// A polling relay of troupe.outbox drops the slot from which the table was streamed, but not if the slot is another outbox's by now.
func TestAPollLeavesTheSlotOfAnotherOutboxAlone(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	s.exec(debeziumTable)
	topic := s.eventTopic("order")
	outbox := s.startStreaming(s.wal())
	require.NoError(t, outbox.stop())
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Slot, cfg.Publication, cfg.Lease = "shared", "mapped", time.Second
	mapped := s.start(cfg)
	s.waitTable(mapped)
	require.NoError(t, mapped.stop())
	s.insertEvent("order", "k", "1") // only the log has it
	poll := s.config()
	poll.Source, poll.Slot = relay.Poll, "shared"
	r := s.start(poll)
	s.insert(s.topic, "k", "a")
	require.Equal(t, []string{"a"}, values(s.gather(1, s.topic)))
	require.NoError(t, r.stop())
	s.waitTable(s.start(cfg))
	require.Equal(t, []string{"1"}, values(s.gatherEvents(1, topic)))
}

// The connection of a relay is cut while it looks for the owner of the slot that it leaves. The slot is its own: it drops it.
func TestAPollDropsItsSlotAlsoIfItsConnectionWasCut(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	require.NoError(t, s.startStreaming(s.wal()).stop())
	lock, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = lock.Exec(t.Context(), "LOCK TABLE troupe.mapped_tables IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	cfg := s.config()
	cfg.Source = relay.Poll
	s.start(cfg)
	testkit.Wait(t, "the relay to look for the owner", func() (bool, error) {
		return s.count(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND query LIKE '%FROM troupe.mapped\_tables t%'`) > 0, nil
	})
	require.NoError(t, lock.Rollback(t.Context()))
	testkit.Wait(t, "the end of the slot", func() (bool, error) { return s.count("SELECT count(*) FROM pg_replication_slots") == 0, nil })
}

// withoutFreeSlot starts a server whose two slots are in use, with a relay of troupe.outbox that waits for one.
func withoutFreeSlot(t *testing.T) (*stage, running) {
	t.Helper()
	needsLog(t)
	s, _ := newServer(t, map[string]string{"max_replication_slots": "2"})
	s.exec(debeziumTable)
	s.exec("SELECT pg_create_physical_replication_slot('one'), pg_create_logical_replication_slot('two', 'pgoutput')")
	r := s.start(s.wal())
	testkit.Wait(t, "the relay to wait for a slot", func() (bool, error) { return s.count("SELECT count(*) FROM troupe.relay_state") == 1, nil })
	return s, r
}

// The relay of troupe.outbox is creating its slot, which takes as long as the server has no free one. A table with a mapping does not take
// the name meanwhile.
func TestAMappedTableLeavesTheSlotAloneThatTheOutboxIsCreating(t *testing.T) {
	t.Parallel()
	s, _ := withoutFreeSlot(t)
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Slot, cfg.Publication = slotName, "mapped"
	waitUnready(t, s.start(cfg), "slot "+slotName, "troupe.outbox")
}

// A relay waits for a free slot of the server. If the slot of its name is another outbox's by then, it does not drop that slot.
func TestARelayThatWaitsForASlotDropsNoneOfAnotherOutbox(t *testing.T) {
	t.Parallel()
	s, r := withoutFreeSlot(t)
	lock, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = lock.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = lock.Exec(t.Context(), "LOCK TABLE troupe.mapped_tables IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	testkit.Wait(t, "the relay to look for the owner of the slot, which it is about to create", func() (bool, error) {
		return s.count(`SELECT count(*) FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND query LIKE '%FROM troupe.mapped\_tables t%'`) > 0, nil
	})
	s.exec("SELECT pg_drop_replication_slot('one')")
	s.exec("SELECT pg_copy_logical_replication_slot('two', $1)", slotName) // unlike a creation, it does not wait for the end of lock
	_, err = lock.Exec(t.Context(), "INSERT INTO troupe.mapped_tables (name, source, slot, updated_at) VALUES ('public.outbox', 'wal', $1, clock_timestamp())", slotName)
	require.NoError(t, err)
	require.NoError(t, lock.Commit(t.Context()))
	lsn := func() (now string) {
		require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", slotName).Scan(&now))
		return now
	}
	before := lsn()
	waitUnready(t, r, "slot "+slotName, "public.outbox")
	require.Equal(t, before, lsn())
}

// A table takes its slot with it under a new name, also if another table has its former name later.
func TestARenamedTableKeepsItsSlot(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	s.exec(debeziumTable)
	topic := s.eventTopic("order")
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Slot, cfg.Publication, cfg.Lease = "shared", "mapped", time.Second
	r := s.start(cfg)
	s.waitTable(r)
	require.NoError(t, r.stop())
	s.insertEvent("order", "k", "1") // only the log has it
	s.exec("ALTER TABLE public.outbox RENAME TO events")
	cfg.Table = "public.events"
	r = s.start(cfg)
	s.waitTable(r)
	require.Equal(t, []string{"1"}, values(s.gatherEvents(1, topic)))
	require.NoError(t, r.stop())
	s.exec(debeziumTable)
	r = s.start(cfg)
	s.waitTable(r)
	require.NoError(t, r.stop())

	cfg.Table, cfg.Slot, cfg.Publication = "public.outbox", "another", "another"
	r = s.start(cfg)
	testkit.Wait(t, "readiness", func() (bool, error) { return r.Ready() == nil, r.Ready() })
	s.waitTable(r)
	s.insertEvent("order", "k", "2")
	require.Equal(t, []string{"1", "2"}, values(s.gatherEvents(2, topic)))
}

// A slot of the outbox is released by the statement of the error. The table that gets it publishes also the rows that the slot does not have:
// rows that are older than the slot, and rows that are older than the table's publication.
func TestATableThatGetsAReleasedSlotPublishesTheRowsThatItHolds(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	s.exec(debeziumTable)
	topic := s.eventTopic("order")
	insert := func(payload string) {
		s.exec("INSERT INTO public.outbox VALUES (troupe.uuidv7(), 'order', 'k', 'T', $1::text::jsonb)", payload)
	}
	insert("0")
	require.NoError(t, s.startStreaming(s.wal()).stop())
	insert("1")
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Slot, cfg.Publication, cfg.Lease = slotName, "mapped", time.Second
	r := s.start(cfg)
	waitUnready(t, r, "slot "+slotName, "troupe.outbox")
	_, release, _ := strings.Cut(r.Ready().Error(), "from the slot any more: ")
	insert("2")
	_, second, found := strings.Cut(release, "; ") // psql sends it also after an error of the first
	require.True(t, found)
	s.exec(second)
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.relay_state WHERE slot = $1", slotName))
	s.exec(release)
	s.waitTable(r)
	insert("3")
	require.Equal(t, []string{"0", "1", "2", "3"}, values(s.gatherEvents(4, topic)))
}

// A table is renamed, and another table gets its former name before a relay has read it under the new one. The error has the statement with
// which the relay continues with the slot, since only the slot has the rows that were deleted.
func TestARenamedTableGetsItsSlotBackByTheStatementOfTheError(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	s.exec(debeziumTable)
	topic := s.eventTopic("order")
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Slot, cfg.Publication, cfg.Lease = "shared", "mapped", time.Second
	r := s.start(cfg)
	s.waitTable(r)
	require.NoError(t, r.stop())
	s.insertEvent("order", "k", "1") // only the log has it
	s.exec("ALTER TABLE public.outbox RENAME TO events")
	s.exec(debeziumTable)
	cfg.Table = "public.events"
	r = s.start(cfg)
	waitUnready(t, r, "slot shared", "public.outbox")
	_, release, _ := strings.Cut(r.Ready().Error(), "a new table has that name now: ")
	release, _, found := strings.Cut(release, ". If no relay")
	require.True(t, found, r.Ready().Error())
	s.exec(release)
	s.waitTable(r)
	require.Equal(t, []string{"1"}, values(s.gatherEvents(1, topic)))
}
