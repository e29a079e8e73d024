package participant_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// TestATopicThatBecomesLocalTakesNoPublishedRowAlong checks that only rows that a stored snapshot does not contain move, and
// failed rows.
func TestATopicThatBecomesLocalTakesNoPublishedRowAlong(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	state := func(slot, system, published string) {
		t.Helper()
		_, err := s.pool.Exec(t.Context(), `
			INSERT INTO troupe.relay_state (slot, source, system_id, timeline, published)
			SELECT $1, 'wal', `+system+`, 1, `+published+` FROM pg_control_system()`, slot)
		require.NoError(t, err)
	}
	s.write("published", Count{N: 1}, Count{N: 2})
	s.write("parked", Count{N: 3})
	_, err := s.pool.Exec(t.Context(), `
		INSERT INTO troupe.outbox_failures (position, id, topic, status, attempts, max_attempts, last_error)
		SELECT position, id, topic, 'parked', 1, 1, 'refused' FROM troupe.outbox WHERE key = 'parked'`)
	require.NoError(t, err)
	restored := func(key, xid string) {
		t.Helper()
		_, err := s.pool.Exec(t.Context(), "UPDATE troupe.outbox SET xid = $2::text::xid8 WHERE key = $1", key, xid)
		require.NoError(t, err)
	}
	restored("published", "4000000000") // this cluster has not assigned that one yet
	state("stream", "system_identifier::text", "pg_current_snapshot()")
	state("begun", "system_identifier::text", "NULL")
	s.write("pending", Count{N: 4})
	s.write("restored", Count{N: 5})
	restored("restored", "3")                          // this cluster has assigned that one long ago
	state("elsewhere", "'1'", "pg_current_snapshot()") // as in a dump of another cluster
	s.makeLocal()
	keys := func(table string) []string {
		t.Helper()
		rows, err := s.pool.Query(t.Context(), "SELECT key FROM troupe."+table+" WHERE topic = $1 ORDER BY position", s.hop.Commands())
		require.NoError(t, err)
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return all
	}
	require.Equal(t, []string{"published", "published"}, keys("outbox"))
	require.Equal(t, []string{"parked", "pending", "restored"}, keys("local_work"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox_failures"))
}

// TestATopicBecomesLocalBehindAStream checks it long after, when the inbox has deleted the commands that the relay published.
func TestATopicBecomesLocalBehindAStream(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(2)
	r, err := relay.New(relay.Config{Pool: s.pool, Brokers: s.brokers, Service: "shop", Source: relay.WAL, Log: testkit.Logger(t)})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	defer func() {
		cancel()
		require.NoError(t, <-ended)
	}()
	s.writeAll(2, 5)
	p := s.new()
	participant.Handle(p, count)
	stop := s.start(p)
	s.waitCount(10, "SELECT count(*) FROM done")
	testkit.Wait(t, "all to be known as published", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.outbox_status WHERE status <> 'done' AND topic = '"+s.hop.Commands()+"'") == 0, nil
	})
	stop()
	_, err = s.pool.Exec(t.Context(), forget)
	require.NoError(t, err)
	s.local, s.brokers = true, nil
	p = s.new()
	participant.Handle(p, count)
	s.start(p)
	testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, p.Ready() })
	s.write("later", Count{N: 1})
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'later'")
	s.waitCount(0, "SELECT count(*) FROM troupe.local_work WHERE ended_at IS NULL")
	require.Equal(t, 11, s.count("SELECT count(*) FROM done"))
}
