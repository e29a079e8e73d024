package relay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/testkit"
)

// TestARelayOfAMappedTableSaysWhyItHasNoSlotYet: such a table is not polled meanwhile, so its rows wait for the slot.
func TestARelayOfAMappedTableSaysWhyItHasNoSlotYet(t *testing.T) {
	t.Parallel()
	needsLog(t)
	server, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{Settings: map[string]string{
		"shared_buffers": "32MB", "max_replication_slots": "1",
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	s := &stage{t: t, brokers: testkit.Kafka(t), flow: testkit.Flow(t)}
	address, err := server.CreateDatabase(t.Context(), "shop", "")
	require.NoError(t, err)
	require.NoError(t, migrations.Up(t.Context(), address))
	s.pool = poolOf(t, address)
	s.exec(debeziumTable + "; SELECT pg_create_physical_replication_slot('the_only_one')")
	topic := s.eventTopic("order")
	s.exec(`INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', 'k', 'T', '{}')`)
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Lease = 2 * time.Second
	r := s.start(cfg)
	reports := func(reason string) {
		t.Helper()
		testkit.Wait(t, "the reason "+reason, func() (bool, error) {
			if err := r.Ready(); err == nil || !strings.Contains(err.Error(), reason) {
				return false, err
			}
			return true, nil
		})
	}
	reports("all replication slots are in use")

	open, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = open.Exec(t.Context(), "SELECT pg_current_xact_id()")
	require.NoError(t, err)
	s.exec("SELECT pg_drop_replication_slot('the_only_one')")
	reports("waits for the end of each transaction that is open")

	require.NoError(t, open.Commit(t.Context()))
	s.gatherEvents(1, topic)
	testkit.Wait(t, "the relay to be ready", func() (bool, error) { return r.Ready() == nil, nil })
	require.NoError(t, r.stop())
}
