package relay_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/testkit"
)

// TestARelayOfAMappedTableWithNoMoreThanItsGrantsWorks: its rows come from the table and then from the
// stream, for which it renews its lease.
func TestARelayOfAMappedTableWithNoMoreThanItsGrantsWorks(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	role := grantstest.New(t, s.pool, grants.MappedRelay)
	s.exec(debeziumTable + "; GRANT SELECT ON public.outbox TO " + role.Name + "; ALTER ROLE " + role.Name + " REPLICATION")
	s.exec("CREATE PUBLICATION legacy FOR TABLE public.outbox WITH (publish = 'insert', publish_via_partition_root = true)")
	s.exec("INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload) VALUES (troupe.uuidv7(), 'order', 'k', 'T', '0')")
	topic := s.eventTopic("order")
	cfg := s.mapped("public.outbox", s.routed(nil))
	cfg.Pool, cfg.Publication = role.Pool(), "legacy"
	seen := publishFailures(&cfg)
	r := s.start(cfg)
	s.waitTable(r)
	s.insertEvent("order", "k", "1")
	s.insertEvent("none", "parked", "2")
	require.Equal(t, []string{"0", "1"}, values(s.gatherEvents(2, topic)))
	require.Equal(t, s.flow+".none.events", (<-seen).Topic)
	require.Equal(t, 1, s.count("SELECT max(term)::int FROM troupe.relay_leases WHERE shard < 0"))
}

// TestAPolicyOfAMappedTableRunsNoCodeAsTheRelay: the owner of a table with a mapping could give it a row-level policy whose function
// runs with the rights of the role that reads, such as the right to read the failed rows of other tables. A policy could also hide rows
// from a sweep, so that they were never published. The
// relay logs the error of each attempt instead, and goes on when the policy is gone.
func TestAPolicyOfAMappedTableRunsNoCodeAsTheRelay(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	owner, reader := grantstest.New(t, s.pool), grantstest.New(t, s.pool, grants.MappedRelay)
	s.exec("ALTER ROLE " + reader.Name + " REPLICATION; CREATE SCHEMA legacy AUTHORIZATION " + owner.Name)
	_, err := owner.Pool().Exec(t.Context(), `
		CREATE TABLE legacy.outbox (id uuid NOT NULL, aggregatetype text, aggregateid text, type text, payload jsonb);
		INSERT INTO legacy.outbox VALUES (gen_random_uuid(), 'order', 'k', 'T', '1');
		CREATE TABLE legacy.trapped (role text, leases bigint);
		GRANT INSERT ON legacy.trapped TO PUBLIC;
		CREATE FUNCTION legacy.steal() RETURNS boolean LANGUAGE plpgsql AS $$
		BEGIN
		  INSERT INTO legacy.trapped SELECT current_user, count(*) FROM troupe.relay_leases;
		  RETURN true;
		END $$;
		ALTER TABLE legacy.outbox ENABLE ROW LEVEL SECURITY;
		CREATE POLICY trap ON legacy.outbox USING (legacy.steal());
		GRANT USAGE ON SCHEMA legacy TO `+reader.Name+`;
		GRANT SELECT ON legacy.outbox TO `+reader.Name)
	require.NoError(t, err)
	s.exec("CREATE PUBLICATION legacy FOR TABLE legacy.outbox WITH (publish = 'insert', publish_via_partition_root = true)")
	topic := s.eventTopic("order")
	cfg := s.mapped("legacy.outbox", s.routed(nil))
	cfg.Pool, cfg.Publication = reader.Pool(), "legacy"
	var refused atomic.Bool
	cfg.Log = cfg.Log.Hook(zerolog.HookFunc(func(_ *zerolog.Event, _ zerolog.Level, message string) {
		refused.Store(refused.Load() || strings.HasPrefix(message, "publish: failed"))
	}))
	s.start(cfg)
	testkit.Wait(t, "a sweep, which fails", func() (bool, error) {
		return refused.Load() || s.count("SELECT count(*) FROM legacy.trapped") > 0, nil
	})
	require.Zero(t, s.count("SELECT count(*) FROM legacy.trapped"))
	_, err = owner.Pool().Exec(t.Context(), "ALTER TABLE legacy.outbox DISABLE ROW LEVEL SECURITY")
	require.NoError(t, err)
	require.Equal(t, []string{"1"}, values(s.gatherEvents(1, topic)))
}
