package relay_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

func TestPartitionsAreMadeAtTheStart(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec("SELECT setval('troupe.outbox_position_seq', 19999999)")
	r := s.start(s.config())
	testkit.Wait(t, "headroom", func() (bool, error) { return r.Status().Headroom > 15_000_000, nil })
	s.fill(s.topic, 1, 10) // across the bound
	require.Len(t, s.collect(10, s.topic), 10)
}

// A relay that does not own the tables publishes and parks all the same; it only cannot make partitions.
func TestARelayWithNoMoreThanItsGrantsWorks(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	pool := grantstest.New(t, s.pool, grants.Relay).Pool()
	// State that another cluster's relay stored: to detect that, the relay must query the cluster's identifier.
	s.exec(`INSERT INTO troupe.relay_state (slot, source, system_id, timeline, published)
		VALUES ('troupe_' || current_database(), 'poll', '1', 1, '4000000000:4000000000:')`)
	cfg := s.config()
	cfg.Pool, cfg.Source = pool, relay.Auto // which selects poll, without the right to replicate
	seen := publishFailures(&cfg)
	r := s.start(cfg)
	s.insert(s.flow+".none.commands", "a", "0")
	require.False(t, (<-seen).Parked)
	committed := s.fill(s.topic, 10, 1100) // enough for a low mark
	testkit.Wait(t, "all but the failed one", func() (bool, error) { return r.Status().Deleted == 11_000, nil })
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.outbox"))
	s.insert(s.topic, "k1", "1100")
	committed["k1"]++
	testkit.Wait(t, "the row behind the mark that is none", func() (bool, error) { return r.Status().Deleted == 11_001, nil })
	judge(testkit.Consume(t, s.brokers, s.topic).WaitN(11_001), committed).requireSound(t)
}

func TestADatabaseThatIsNotMigratedIsWaitedFor(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(context.Background(), testkit.EmptyDatabase(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s := &stage{t: t, pool: pool, brokers: testkit.Kafka(t)}
	r := s.start(s.config())
	testkit.Wait(t, "the reason", func() (bool, error) {
		err := r.Ready()
		return err != nil && strings.Contains(err.Error(), "not migrated"), nil
	})
	require.Equal(t, relay.Starting, r.Status().Role)
}

func TestSettingsThatCannotBeMeantAreRefused(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	good := relay.Config{Pool: pool, Brokers: []string{"127.0.0.1:1"}, Service: "shop"}
	_, err := relay.New(good)
	require.NoError(t, err)
	for _, c := range []struct {
		want   string
		change func(*relay.Config)
	}{
		{"no pool", func(c *relay.Config) { c.Pool = nil }},
		{"no broker addresses", func(c *relay.Config) { c.Brokers = nil }},
		{"no service name", func(c *relay.Config) { c.Service = "" }},
		{"batch -1", func(c *relay.Config) { c.Batch = -1 }},
		{"batch 10001", func(c *relay.Config) { c.Batch = 10_001 }},
		{"interval 1ms", func(c *relay.Config) { c.Interval = 1_000_000 }},
		{"lease 1ms", func(c *relay.Config) { c.Lease = 1_000_000 }},
		{"drain -1ns", func(c *relay.Config) { c.Drain = -1 }},
		{"attempts -1", func(c *relay.Config) { c.Retry.Attempts = -1 }},
	} {
		bad := good
		c.change(&bad)
		_, err := relay.New(bad)
		require.ErrorContains(t, err, c.want)
	}
}
