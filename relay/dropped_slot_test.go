package relay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// A relay waits until the server has room for its slot. Meanwhile another relay takes the lease, and creates the slot: it is not dropped by
// the first one, which does not know yet that its term is over.
func TestARelayWithoutTheLeaseDropsNoSlot(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, map[string]string{"max_replication_slots": "1"})
	s.exec(debeziumTable)
	s.exec("SELECT pg_create_logical_replication_slot('filler', 'pgoutput')")
	logs := &lines{}
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Slot, cfg.Lease, cfg.Log = "shared", time.Minute, logs.logger(t) // it renews the lease after it has tried again
	s.start(cfg)
	testkit.Wait(t, "a server without room", func() (bool, error) { return strings.Contains(logs.String(), "slot: failed"), nil })
	s.exec("UPDATE troupe.relay_leases SET holder = 'another', term = term + 1, expires_at = clock_timestamp() + interval '1 minute'")
	s.exec("SELECT pg_drop_replication_slot('filler')")
	s.exec("SELECT pg_create_logical_replication_slot('shared', 'pgoutput')")
	confirmed := func() (lsn string) {
		require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = 'shared'").Scan(&lsn))
		return lsn
	}
	before := confirmed()
	testkit.Wait(t, "the end of the term", func() (bool, error) { return strings.Contains(logs.String(), "no longer the active relay"), nil })
	require.Equal(t, before, confirmed())
}
