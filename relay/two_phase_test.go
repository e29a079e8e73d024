package relay_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// With two_phase, a slot delivers the rows of a transaction when it is prepared, also if it is rolled back later.
func TestASlotWithTwoPhaseIsRefused(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, nil)
	s.exec(debeziumTable)
	topic := s.eventTopic("order")
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Slot, cfg.Publication = "by_hand", "by_hand"
	s.exec("CREATE PUBLICATION by_hand FOR TABLE public.outbox WITH (publish = 'insert', publish_via_partition_root = true)")
	s.exec("SELECT pg_create_logical_replication_slot('by_hand', 'pgoutput', false, true)")
	const row = "INSERT INTO public.outbox VALUES (troupe.uuidv7(), 'order', 'k', 'T', "
	conn, err := s.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for _, statement := range []string{"BEGIN", row + `'"rolled back"')`, "PREPARE TRANSACTION 'p'", row + `'"committed"')`} {
		_, err := conn.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	r := s.start(cfg)
	consumer := testkit.Consume(t, s.brokers, topic)
	testkit.Wait(t, "the reason", func() (bool, error) {
		require.Empty(t, consumer.Records())
		return strings.Contains(r.Status().LastError, "slot by_hand was created with two_phase"), nil
	})
	s.exec("ROLLBACK PREPARED 'p'")
	s.exec("SELECT pg_drop_replication_slot('by_hand')")
	require.Equal(t, []string{`"committed"`}, values(s.gatherEvents(1, topic)))
}
