package participant_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// TestATopicBecomesLocalAndBackAndLosesNothing checks it under load: waiting rows of the outbox move too, in their order.
func TestATopicBecomesLocalAndBackAndLosesNothing(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	const keys, each = 4, 150
	var writers sync.WaitGroup
	for k := range keys {
		writers.Go(func() {
			for n := range each {
				s.write(fmt.Sprintf("k-%d", k), Count{N: n + 1})
			}
		})
	}
	written := func(where string, n int) {
		t.Helper()
		testkit.Wait(t, where, func() (bool, error) {
			return s.count("SELECT count(*) FROM troupe."+where+" WHERE topic = $1", s.hop.Commands()) >= n, nil
		})
	}
	order := func(table string) {
		t.Helper()
		require.Zero(t, s.count(`
			SELECT count(*)
			FROM (SELECT (convert_from(payload, 'UTF8')::jsonb->>'n')::int AS n,
			             lag((convert_from(payload, 'UTF8')::jsonb->>'n')::int) OVER (PARTITION BY key ORDER BY position) AS before
			      FROM troupe.`+table+` WHERE topic = $1) AS rows
			WHERE n <> before + 1`, s.hop.Commands()), "out of order in "+table)
	}
	for range 3 {
		written("outbox", 10)
		s.makeLocal()
		require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Commands()))
		order("local_work")
		written("local_work", 10)
		_, err := s.pool.Exec(t.Context(), "SELECT troupe.end_local($1)", s.hop.Commands())
		require.NoError(t, err)
		require.Zero(t, s.count("SELECT count(*) FROM troupe.local_work"))
		order("outbox")
	}
	writers.Wait()
	require.Equal(t, keys*each, s.count("SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Commands()))
	order("outbox")
	require.Zero(t, s.count("SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'local%'"))
	p := s.new(onlyOnce)
	participant.Handle(p, count)
	s.start(p)
	s.expectAll(keys, each)
}

// TestAWriterWithAnOldSnapshotWritesLocally checks a transaction that cannot see that the topic is local.
func TestAWriterWithAnOldSnapshotWritesLocally(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	tx, err := s.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	_, err = tx.Exec(t.Context(), "SELECT count(*) FROM counters")
	require.NoError(t, err)
	s.makeLocal()
	_, err = tx.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'a', 'Count', '{}')", s.hop.Commands())
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.local_work"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox"))
}

// TestAnOpenWriterHoldsTheChangeUp checks that it delays nothing else, and that its entry is moved too.
func TestAnOpenWriterHoldsTheChangeUp(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	insert := func() {
		_, err = tx.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'a', 'Count', $2)", s.hop.Commands(), marshal(Count{N: 1}))
		require.NoError(t, err)
	}
	insert()
	p := s.new()
	participant.Handle(p, count)
	s.start(p)
	s.waitCount(1, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'troupe.outbox'::regclass AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
	require.ErrorContains(t, p.Ready(), "not local yet")
	require.NoError(t, tx.Commit(t.Context()))
	s.waitCount(1, "SELECT count(*) FROM done")
}

// TestPartitionsMadeLaterAreLocalToo checks partitions of the outbox that are created after the topic became local.
func TestPartitionsMadeLaterAreLocalToo(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	_, err := retention.Partitions{Size: 5_000_000, Ahead: 6}.Ensure(t.Context(), s.pool)
	require.NoError(t, err)
	_, err = s.pool.Exec(t.Context(), "SELECT setval('troupe.outbox_position_seq', 25000001)")
	require.NoError(t, err)
	s.write("a", Count{N: 1})
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.local_work WHERE position > 25000000"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox"))
}

// TestALocalTopicRefusesTheRowsThatTheOutboxRefuses checks rows that no participant could read, and that could not go back to Kafka.
func TestALocalTopicRefusesTheRowsThatTheOutboxRefuses(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	refused := func(sql string) {
		t.Helper()
		_, err := s.pool.Exec(t.Context(), sql, s.hop.Commands())
		require.ErrorContains(t, err, "violates check constraint", sql)
	}
	for range 2 {
		refused("INSERT INTO troupe.outbox (topic, type, payload) VALUES ($1, '', '{}')")
		refused("INSERT INTO troupe.outbox (topic, type, headers) VALUES ($1, 'Count', '[]')")
		s.makeLocal()
	}
}

// TestAFlowOfTwoLocalHops checks that commands and events are local, and that each group gets its own, without a broker.
func TestAFlowOfTwoLocalHops(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	p := s.new(onlyOnce)
	participant.Handle(p, count)
	watcher := func(name string) *participant.Participant {
		w := s.new(func(c *participant.Config) { c.Hop = topics.MustHop(s.hop.Flow(), name) })
		participant.On(w, s.hop, func(ctx context.Context, tx pgx.Tx, e participant.Event[Counted]) error {
			_, err := tx.Exec(ctx, "INSERT INTO done (key, n, attempt) VALUES ($1, $2, $3)", name, e.Body.N, e.Attempt)
			return err
		})
		return w
	}
	for _, each := range []*participant.Participant{watcher("order"), watcher("audit"), p} {
		s.start(each)
		testkit.Wait(t, "ready", func() (bool, error) { return each.Ready() == nil, each.Ready() })
	}
	s.write("a", Count{N: 7}, Count{N: 8, Fail: "refuse"}) // the watchers handle no refusals
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'order' AND n = 7")
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'audit' AND n = 7")
	s.waitCount(2+2*2, "SELECT count(*) FROM troupe.local_work WHERE status = 'done'")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox"))
	s.expectLegal()
}

// TestARedriveOfALocalDeadLetterIsLocal redrives as package repair does, to the outbox under the topic it came from.
func TestARedriveOfALocalDeadLetterIsLocal(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	broken := true
	var mu sync.Mutex
	p := s.new(onlyOnce)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		mu.Lock()
		defer mu.Unlock()
		if broken {
			return participant.Outcome{}, errAsked
		}
		return count(ctx, tx, c)
	})
	s.start(p)
	testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, p.Ready() })
	s.write("a", Count{N: 1})
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters")
	mu.Lock()
	broken = false
	mu.Unlock()
	var key, headers, payload []byte
	var id, typ string
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT message_id, message_type, key, headers, payload FROM troupe.dead_letters").
		Scan(&id, &typ, &key, &headers, &payload))
	hs, err := envelope.UnmarshalHeaders(headers)
	require.NoError(t, err)
	hs = append(hs, envelope.Header{Key: deadletter.HeaderRedrive, Value: []byte("1")})
	for range 2 { // the second is its duplicate
		_, err = s.pool.Exec(t.Context(), "INSERT INTO troupe.outbox (id, topic, key_bytes, type, raw_headers, payload) VALUES ($1, $2, $3, $4, $5, $6)",
			id, s.hop.Commands(), key, typ, envelope.MarshalHeaders(hs), payload)
		require.NoError(t, err)
	}
	s.waitCount(2, "SELECT count(*) FROM troupe.local_work WHERE status = 'done'")
	require.Equal(t, 1, s.count("SELECT count(*) FROM done"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.outbox WHERE headers->>'ce_outcome' = 'success'"))
}

// TestLocalWorkNeedsFewRights checks a service that writes with only the right to insert into the outbox, and handles with the
// documented rights; it may not make a topic local unless it is granted the right to.
func TestLocalWorkNeedsFewRights(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	role := grantstest.New(t, s.pool, grants.LocalWork)
	_, err := s.pool.Exec(t.Context(), "GRANT SELECT, INSERT, UPDATE ON counters, done, steps, claims TO "+role.Name)
	require.NoError(t, err)
	pool := role.Pool()

	s.makeLocal()
	_, err = grantstest.New(t, s.pool, grants.Writer).Pool().Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'a', 'Count', $2)", s.hop.Commands(), marshal(Count{N: 1}))
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "SELECT troupe.make_local('a.b.commands', 'a.b')")
	require.ErrorContains(t, err, "permission denied")

	p := s.new(func(c *participant.Config) { c.Pool = pool })
	participant.Handle(p, count)
	stop := s.start(p)
	s.waitCount(1, "SELECT count(*) FROM done")
	stop()

	other := s.new(func(c *participant.Config) { c.Pool, c.Hop = pool, topics.MustHop(s.hop.Flow(), "other") })
	participant.Handle(other, count)
	err = other.Run(t.Context())
	require.ErrorContains(t, err, "have the owner of Troupe's tables run SELECT troupe.make_local('"+s.hop.Flow()+".other.commands'")
}

// TestLocalWorkThatEndedIsForgotten checks that old entries are deleted, and no others.
func TestLocalWorkThatEndedIsForgotten(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	_, err := s.pool.Exec(t.Context(), `
		INSERT INTO troupe.local_work (position, consumer_group, id, topic, type, headers, created_at, hold_key, status, ended_at)
		SELECT -n, $1, troupe.uuidv7(), 'x', 'Count', '{}', now(), 'k', 'done', now() - n * interval '20 minutes'
		FROM generate_series(1, 2500) AS n`, s.hop.String())
	require.NoError(t, err)
	p := s.new()
	participant.Handle(p, count)
	s.start(p)
	s.waitCount(2, "SELECT count(*) FROM troupe.local_work") // 20 and 40 minutes ago
}

// TestTheDatabaseGoesAwayUnderLocalWork checks that nothing is lost, doubled, or counted.
func TestTheDatabaseGoesAwayUnderLocalWork(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	var way network
	pool := s.through(&way)
	p := s.new(onlyOnce, func(c *participant.Config) { c.Pool, c.Batch = pool, 5 })
	participant.Handle(p, count)
	s.start(p)
	const keys, each = 8, 40
	go s.writeAll(keys, each)
	for n := range 4 {
		testkit.Wait(t, "some more", func() (bool, error) { return s.count("SELECT count(*) FROM done") >= (n+1)*30, nil })
		way.set(true)
		testkit.Wait(t, "not ready", func() (bool, error) { return p.Ready() != nil, nil })
		way.set(false)
	}
	s.expectAll(keys, each)
	s.waitCount(keys*each, "SELECT count(*) FROM troupe.local_work WHERE status = 'done'")
	s.expectLegal()
	testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, p.Ready() })
}

// TestLocalWorkOfOthersWakesNobodyHere checks that a participant claims when it is notified of its commands, of a topic that it
// handles, and of no topic in particular.
func TestLocalWorkOfOthersWakesNobodyHere(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	p := s.new()
	participant.Handle(p, count)
	other := topics.MustHop(s.hop.Flow(), "other")
	participant.On(p, other, func(context.Context, pgx.Tx, participant.Event[Counted]) error { return nil })
	s.start(p)
	testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, p.Ready() })
	for _, topic := range []string{s.hop.Commands(), other.Events(), ""} {
		require.True(t, p.Concerns(topic), topic)
	}
	for _, topic := range []string{s.hop.Events(), other.Commands(), "x"} {
		require.False(t, p.Concerns(topic), topic)
	}
}

// TestEventsThatNobodyHandlesEndTogether checks for one transaction: one for each would be a flush to the disk for nothing.
func TestEventsThatNobodyHandlesEndTogether(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	watcher := topics.MustHop(s.hop.Flow(), "order")
	_, err := s.pool.Exec(t.Context(), "SELECT troupe.make_local($1, $2)", s.hop.Events(), watcher.String())
	require.NoError(t, err)
	const events = 20
	_, err = s.pool.Exec(t.Context(), `
		INSERT INTO troupe.outbox (topic, key, type, headers, payload)
		SELECT $1, 'k-' || n, 'Forgotten', '{"ce_outcome": "success"}', '{}' FROM generate_series(1, $2) AS n`, s.hop.Events(), events)
	require.NoError(t, err)
	w := s.new(func(c *participant.Config) { c.Hop, c.Batch, c.Concurrency = watcher, 2*events, 1 })
	participant.On(w, s.hop, func(context.Context, pgx.Tx, participant.Event[Counted]) error { return nil })
	s.start(w)
	s.waitCount(events, "SELECT count(*) FROM troupe.local_work WHERE status = 'done'")
	// Two at most: the first claim begins at any key.
	require.LessOrEqual(t, s.count("SELECT count(DISTINCT xmin::text) FROM troupe.local_work"), 2)
}
