package coordinator_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// TestAFullStopSoak kills all processes at once with 1,000 sagas under way (with TROUPE_SOAK 10,000), and starts them again:
// all sagas continue where they were. The time this takes is logged.
func TestAFullStopSoak(t *testing.T) {
	t.Parallel()
	sagas := 1000
	if os.Getenv("TROUPE_SOAK") != "" {
		sagas = 10_000
	}
	s := newCrew(t, order(t))
	s.task.Batch = 100
	keys := make([]string, sagas)
	for i := range keys {
		keys[i] = fmt.Sprint("o-", i)
		if i%10 == 0 {
			keys[i] = fmt.Sprintf("o-%d-refuse-shipping", i)
		}
	}
	s.callAll(keys)
	open := s.gate(sagas / 4)
	const moved = "SELECT count(*) FROM troupe.sagas WHERE version > 1"
	const ended = "SELECT count(*) FROM troupe.sagas WHERE ended_at IS NOT NULL"
	s.spawn(1, hops...)
	testkit.Wait(t, "sagas at all steps", func() (bool, error) {
		return s.count("order", moved) > sagas/4 && s.count("shipping", "SELECT count(*) FROM effects") > 0, nil
	})
	for _, m := range s.members {
		require.NoError(t, m.Process.Kill())
	}
	for _, m := range s.members {
		m.killed(t)
	}
	s.members = nil
	open()
	before := s.count("order", ended)
	require.Less(t, before, sagas/2, "killed too late to show anything")
	began := time.Now()
	s.spawn(1, hops...)
	testkit.Wait(t, "a saga to end", func() (bool, error) { return s.count("order", ended) > before, nil })
	first := time.Since(began)
	s.settle(sagas, func(saga.State) bool { return false })
	all := time.Since(began)
	t.Logf("%s; %d of %d under way at the stop; the next one ended after %s, all after %s", s.judge(keys), sagas-before, sagas,
		first.Round(time.Millisecond), all.Round(time.Millisecond))
	s.dismiss()
}

// gate lets a number of shipments through, and keeps the others waiting until it is opened: however late a process is killed,
// most sagas are under way.
func (s *crew) gate(most int) (open func()) {
	s.t.Helper()
	const gate = `
		CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
		  IF NEW.at > TG_ARGV[0]::bigint THEN
		    PERFORM pg_advisory_xact_lock_shared(1);
		  END IF;
		  RETURN NEW;
		END $$;
		CREATE TRIGGER gate BEFORE INSERT ON effects FOR EACH ROW EXECUTE FUNCTION wait_at_gate(%d)`
	_, err := s.pools["shipping"].Exec(s.t.Context(), fmt.Sprintf(gate, most))
	require.NoError(s.t, err)
	conn, err := s.pools["shipping"].Acquire(s.t.Context())
	require.NoError(s.t, err)
	s.t.Cleanup(conn.Release) // releases the lock of a test that failed, when the pool closes
	_, err = conn.Exec(s.t.Context(), "SELECT pg_advisory_lock(1)")
	require.NoError(s.t, err)
	return func() {
		_, err := conn.Exec(s.t.Context(), "SELECT pg_advisory_unlock(1)")
		require.NoError(s.t, err)
	}
}

// callAll starts a saga for each key, many in one transaction.
func (s *crew) callAll(keys []string) {
	s.t.Helper()
	const some = 100
	for len(keys) > 0 {
		n := min(some, len(keys))
		require.NoError(s.t, pgx.BeginFunc(s.t.Context(), s.pools["order"], func(tx pgx.Tx) error {
			for _, key := range keys[:n] {
				_, err := s.c.Start(s.t.Context(), tx, "order", map[string]any{
					"order_id": key, "customer_id": key, "amount_cents": 500, "title": 7, "quantity": 1,
				})
				if err != nil {
					return err
				}
			}
			return nil
		}))
		keys = keys[n:]
	}
}
