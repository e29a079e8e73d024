package relay_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/testkit"
)

// The server writes the position of a slot to its disk when the relay confirms it. The checkpoint must be on disk before that,
// also if the role does not wait for the disk: after a crash the slot of a table with a mapping would else be ahead of the
// checkpoint, as if another program had created it, and the relay would wait for an operator.
func TestTheCheckpointOfAMappedTableOutlivesACrashWhateverTheRoleSays(t *testing.T) {
	t.Parallel()
	needsLog(t)
	server, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{Settings: map[string]string{
		"shared_buffers": "32MB", "synchronous_commit": "off", "wal_writer_delay": "10s",
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	s := &stage{t: t, brokers: testkit.Kafka(t), flow: testkit.Flow(t)}
	address, err := server.CreateDatabase(t.Context(), "shop", "")
	require.NoError(t, err)
	require.NoError(t, migrations.Up(t.Context(), address))
	s.pool = poolOf(t, address)
	s.exec(debeziumTable)
	cfg := s.mapped("public.outbox", s.routed(nil))
	topic := s.eventTopic("order")
	r := s.start(cfg)
	s.waitTable(r)
	insert := func(payload string) {
		s.exec(`BEGIN; SET LOCAL synchronous_commit = on; INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload)
			VALUES (troupe.uuidv7(), 'order', 'k', 'T', '` + payload + `'); COMMIT`)
	}
	state := func() (digest string) {
		require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT md5(pg_read_binary_file('pg_replslot/' || slot_name || '/state'))
			FROM pg_replication_slots WHERE active AND plugin = 'pgoutput' AND NOT temporary`).Scan(&digest))
		return digest
	}
	before := state()
	// The log gets a list of the running transactions, at which the server moves the start of the slot, and writes the slot to
	// its disk.
	s.exec("SELECT pg_create_logical_replication_slot('other', 'pgoutput', true)")
	insert("1")
	testkit.Wait(t, "the slot on disk", func() (bool, error) { return state() != before, nil })
	require.NoError(t, server.Kill())
	_ = r.stop() // the database is away

	require.NoError(t, server.Start(t.Context()))
	s.pool = poolOf(t, address)
	cfg.Pool = s.pool
	r = s.start(cfg)
	insert("2")
	testkit.Wait(t, "the row behind the crash", func() (bool, error) {
		for _, value := range texts(s.committed(topic)) {
			if value == "2" {
				return true, nil
			}
		}
		return false, r.Ready()
	})
	require.NoError(t, r.stop())
}
