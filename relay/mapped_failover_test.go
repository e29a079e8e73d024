package relay_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// After a failover to a standby that lagged, a slot that was synchronised there may be ahead of the stored checkpoint: its confirmed LSN
// came faster than the row of the checkpoint, which is later in the log. Rows behind it are in the slot alone if the service deletes them.
// So the slot is not dropped: a person decides, and the relay continues where the slot is.
func TestAPersonDecidesOnASlotOfAMappedTableThatIsAheadOfTheCheckpoint(t *testing.T) {
	t.Parallel()
	needsLog(t)
	for name, options := range map[string]map[string]string{
		"with a column of transaction ids": {"table.field.xid": "xid", "table.field.position": "position"},
		"without":                          {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.exec(debeziumTable + `; ALTER TABLE public.outbox ADD position bigint GENERATED ALWAYS AS IDENTITY,
				ADD xid xid8 NOT NULL DEFAULT pg_current_xact_id()`)
			topic := s.eventTopic("order")
			cfg := s.mapped("public.outbox", s.routed(options))
			r := s.start(cfg)
			s.waitTable(r)
			written := 0
			insert := func() {
				s.insertEvent("order", "k", strconv.Itoa(written))
				written++
			}
			insert()
			s.gatherEvents(written, topic)
			require.NoError(t, r.stop())
			s.exec("CREATE TABLE public.lagged AS SELECT lsn, published FROM troupe.mapped_tables")

			r = s.start(cfg)
			s.waitTable(r)
			insert()
			s.gatherEvents(written, topic)
			require.NoError(t, r.stop())
			testkit.Wait(t, "the slot to be ahead of the older checkpoint", func() (bool, error) {
				return s.count(`SELECT count(*) FROM pg_replication_slots, public.lagged
					WHERE database = current_database() AND NOT active AND confirmed_flush_lsn > lsn`) == 1, nil
			})
			s.exec("UPDATE troupe.mapped_tables SET lsn = lagged.lsn, published = lagged.published FROM public.lagged")
			insert() // in the log alone
			s.exec("INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload) VALUES (troupe.uuidv7(), 'order', 'k', 'T', '3')")
			written++

			cfg.Lease = 2 * time.Second
			r = s.start(cfg)
			var statement string
			testkit.Wait(t, "the reason", func() (bool, error) {
				err := r.Ready()
				if err == nil || !strings.Contains(err.Error(), "drop it, and the relay publishes the rows that table public.outbox holds") {
					return false, nil
				}
				_, statement, _ = strings.Cut(err.Error(), "synchronised: ")
				statement, _, _ = strings.Cut(statement, ". ")
				return true, nil
			})
			s.exec(statement)
			s.waitTable(r)
			insert()
			judgeEvents(s.gatherEvents(written, topic), map[string]int{"k": written}).requireSound(t)
		})
	}
}

// The record of a failed row is later in the log than the row itself. So a failover may keep the slot's LSN behind the row, and lose the record:
// then neither the slot nor troupe.mapped_failures has the row, and the operator who lets the relay continue must know that.
func TestTheErrorOfASlotAheadOfTheCheckpointNamesLostRecordsOfFailedRows(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(debeziumTable)
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Lease = 2 * time.Second
	r := s.start(cfg)
	s.waitTable(r)
	s.exec("CREATE TABLE public.lagged AS SELECT lsn FROM troupe.mapped_tables")
	s.insertEvent("missing", "k", "0") // its topic does not exist
	testkit.Wait(t, "the slot to be ahead of the row", func() (bool, error) {
		return s.count(`SELECT count(*) FROM troupe.mapped_failures f, pg_replication_slots s
			WHERE s.database = current_database() AND s.confirmed_flush_lsn > f.commit_lsn`) == 1, nil
	})
	require.NoError(t, r.stop())
	s.exec("UPDATE troupe.mapped_tables SET lsn = lagged.lsn FROM public.lagged; DELETE FROM troupe.mapped_failures")
	waitUnready(t, s.start(cfg), "UPDATE troupe.mapped_tables SET lsn", "recorded as failed", "may have lost their record", "updated_at of troupe.mapped_tables")
}

// TestARowOfTheLogAloneIsNotTakenForASweptOne has a row that was written, and deleted, between the creation of the slot and the snapshot of
// the rows that are read from the table, as the relay stores them: the table does not hold it, and the slot delivers it.
func TestARowOfTheLogAloneIsNotTakenForASweptOne(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	s.exec(debeziumTable + "; ALTER TABLE public.outbox ADD xid xid8 NOT NULL DEFAULT pg_current_xact_id()")
	topic := s.eventTopic("order")
	cfg := s.mapped("public.outbox", s.routed(map[string]string{"table.field.xid": "xid"}))
	r := s.start(cfg)
	s.waitTable(r)
	require.NoError(t, r.stop())
	s.insertEvent("order", "k", "0")
	s.exec(`UPDATE troupe.mapped_tables SET published = NULL, sweep = pg_current_snapshot()`)
	r = s.start(cfg)
	s.waitTable(r)
	s.insertEvent("order", "k", "1")
	require.Equal(t, []string{"0", "1"}, values(s.gatherEvents(2, topic)))
}

// After pg_upgrade, which copies slots from Postgres 17 on, the cluster has another name, and services may write before the relay is there.
func TestAPersonDecidesOnASlotOfAMappedTableThatAnUpgradeCopied(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	s.exec(debeziumTable)
	topic := s.eventTopic("order")
	cfg := s.mapped("public.outbox", s.routed(nil))
	r := s.start(cfg)
	s.waitTable(r)
	s.insertEvent("order", "k", "0")
	s.gatherEvents(1, topic)
	require.NoError(t, r.stop())
	s.exec("UPDATE troupe.mapped_tables SET system_id = '1'")
	s.insertEvent("order", "k", "1") // in the log alone

	cfg.Lease = 2 * time.Second
	r = s.start(cfg)
	waitUnready(t, r, "After pg_upgrade", "drop it, and the relay publishes the rows that table public.outbox holds")
	_, statement, _ := strings.Cut(r.Ready().Error(), "copied the slot: ")
	statement, _, _ = strings.Cut(statement, ". ")
	s.exec(statement)
	s.waitTable(r)
	s.insertEvent("order", "k", "2")
	judgeEvents(s.gatherEvents(3, topic), map[string]int{"k": 3}).requireSound(t)
}
