package relay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A slot of another program exists, and the configured publication does not: its name was left out of the configuration. The relay would create
// it, and the slot has no row for it that was written before.
func TestASlotIsNotTakenOverWithoutItsPublication(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(debeziumTable)
	topic := s.eventTopic("order")
	var slot string
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT 'dbz_' || substr(md5(current_database()), 1, 20)").Scan(&slot))
	s.exec("CREATE PUBLICATION dbz FOR TABLE public.outbox WITH (publish = 'insert')")
	s.exec("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot)
	s.insertEvent("order", "k", "0") // only the log has it
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Slot, cfg.Lease = slot, time.Second
	r := s.start(cfg)
	waitUnready(t, r, "slot "+slot+" exists", "To create it now is no remedy")
	require.NoError(t, r.stop())
	require.Zero(t, s.count("SELECT count(*) FROM pg_publication WHERE pubname LIKE '%public\\_outbox%'"))

	cfg.Publication = "dbz"
	s.waitTable(s.start(cfg))
	require.Equal(t, []string{"0"}, values(s.gatherEvents(1, topic)))
}
