package participant_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// listens returns a participant of another hop that takes its commands, and with events also the hop's events.
func (s *stage) listens(events func(ctx context.Context, tx pgx.Tx, e participant.Event[Counted]) error, change ...func(*participant.Config)) *participant.Participant {
	p := s.new(append(change, func(c *participant.Config) { c.Hop = s.listener() })...)
	participant.Handle(p, count)
	if events != nil {
		participant.On(p, s.hop, events)
	}
	return p
}

func (s *stage) listener() topics.Hop { return topics.MustHop(s.hop.Flow(), "order") }

// emit writes an event of the hop, for a key of its own.
func (s *stage) emit(key string, n int) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), `INSERT INTO troupe.outbox (topic, key, type, headers, payload)
		VALUES ($1, $2, 'Counted', '{"ce_outcome": "success"}', $3)`, s.hop.Events(), key, marshal(Counted{N: n}))
	require.NoError(s.t, err)
}

// makeEventsLocal makes the hop's events local, as of an hour ago.
func (s *stage) makeEventsLocal() {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), "SELECT troupe.make_local($1, $2)", s.hop.Events(), s.listener().String())
	require.NoError(s.t, err)
	_, err = s.pool.Exec(s.t.Context(), "UPDATE troupe.local_topics SET created_at = now() - interval '1 h'")
	require.NoError(s.t, err)
}

// order writes a command for the listener and waits until it is handled.
func (s *stage) order(key string) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, 'Count', $3)",
		s.listener().Commands(), key, marshal(Count{N: 1}))
	require.NoError(s.t, err)
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = $1", key)
}

func noteEvent(ctx context.Context, tx pgx.Tx, e participant.Event[Counted]) error {
	_, err := tx.Exec(ctx, "INSERT INTO done (key, n, attempt) VALUES ('events', $1, $2)", e.Body.N, e.Attempt)
	return err
}

// TestALocalTopicThatOnlyANewerVersionConsumesIsLeftToIt runs both versions at once, and the older one alone for a while: as in
// Kafka, a member takes no message of a topic that it does not consume.
func TestALocalTopicThatOnlyANewerVersionConsumesIsLeftToIt(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.start(s.listens(nil))
	s.order("a")
	stop := s.start(s.listens(noteEvent))
	s.waitCount(1, "SELECT count(*) FROM troupe.local_topics WHERE topic = $1", s.hop.Events())
	const each = 20
	for n := range each {
		s.emit(string(rune('a'+n)), n)
	}
	s.waitCount(0, "SELECT count(*) FROM troupe.local_work WHERE ended_at IS NULL")
	require.Equal(t, each, s.count("SELECT count(*) FROM done WHERE key = 'events'"))
	stop()
	s.emit("z", each)
	s.order("b")
	s.start(s.listens(noteEvent))
	s.waitCount(0, "SELECT count(*) FROM troupe.local_work WHERE ended_at IS NULL")
	require.Equal(t, each+1, s.count("SELECT count(*) FROM done WHERE key = 'events'"))
}

// TestALocalTopicThatAnotherMemberConsumesIsLeftToIt checks a topic that became local long ago.
func TestALocalTopicThatAnotherMemberConsumesIsLeftToIt(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeEventsLocal()
	blocked := make(chan struct{})
	newer := s.listens(func(ctx context.Context, tx pgx.Tx, e participant.Event[Counted]) error {
		<-blocked
		return noteEvent(ctx, tx, e)
	}, func(c *participant.Config) { c.Concurrency = 1 })
	s.start(newer)
	s.emit("a", 1)
	s.waitCount(1, "SELECT count(*) FROM troupe.local_work WHERE status = 'in progress'")
	s.emit("b", 2)
	s.start(s.listens(nil))
	for _, key := range []string{"c", "d", "e"} {
		s.order(key)
	}
	close(blocked)
	s.waitCount(0, "SELECT count(*) FROM troupe.local_work WHERE ended_at IS NULL")
	require.Equal(t, 2, s.count("SELECT count(*) FROM done WHERE key = 'events'"))
}

// TestALocalTopicOfANewerVersionIsLeftToItWhenTheOlderOneStartsAlone rolls a version back and out again: for a moment only members of
// the older version run, which have never seen a consumer of the topic.
func TestALocalTopicOfANewerVersionIsLeftToItWhenTheOlderOneStartsAlone(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeEventsLocal()
	s.emit("a", 1)
	stop := s.start(s.listens(nil))
	for _, key := range []string{"b", "c", "d"} {
		s.order(key)
	}
	stop()
	s.start(s.listens(noteEvent))
	s.waitCount(0, "SELECT count(*) FROM troupe.local_work WHERE ended_at IS NULL")
	require.Equal(t, 1, s.count("SELECT count(*) FROM done WHERE key = 'events'"))
}

// TestALocalTopicThatNoMemberConsumesAnyMoreHoldsNothingUp checks a version that dropped a handler: its topic's events end without
// effect, with a log line, and later entries of their keys go on.
func TestALocalTopicThatNoMemberConsumesAnyMoreHoldsNothingUp(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeEventsLocal()
	var log safeBuffer
	s.emit("a", 1)
	s.start(s.listens(nil, func(c *participant.Config) { c.UnknownTypeWait, c.Log = time.Second, zerolog.New(&log) }))
	s.order("a")
	s.waitCount(0, "SELECT count(*) FROM troupe.local_work WHERE ended_at IS NULL")
	require.Contains(t, log.String(), s.hop.Events())
	require.Equal(t, 1, strings.Count(log.String(), "no member of the group consumes this local topic"))
}

// TestLocalCommandsOfAFormerHopBecomeDeadLetters renames a hop and keeps its group: the commands that the hop still had are answered, and
// can be sent again.
func TestLocalCommandsOfAFormerHopBecomeDeadLetters(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	s.exec("UPDATE troupe.local_topics SET created_at = created_at - interval '1 hour'")
	s.write("a", Count{N: 1})
	renamed := s.new(atOnce, func(c *participant.Config) { c.Group, c.Hop = s.hop.String(), topics.MustHop(s.hop.Flow(), "renamed") })
	participant.Handle(renamed, count)
	s.start(renamed)
	s.waitCount(0, "SELECT count(*) FROM troupe.local_work WHERE ended_at IS NULL")
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'poison' AND topic = $1", s.hop.Commands()))
}

// TestALocalTopicThatARunningMemberAddsIsLeftToIt adds a topic in one of two members, as a coordinator does for a new definition. The
// other one leaves it alone also when the topic has been local for long.
func TestALocalTopicThatARunningMemberAddsIsLeftToIt(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	adding := s.listens(nil)
	s.start(adding)
	s.start(s.listens(nil))
	s.order("a")
	participant.OnAll(adding, []topics.Hop{s.hop}, func(ctx context.Context, tx pgx.Tx, ms []participant.Taken) error {
		for range ms {
			if _, err := tx.Exec(ctx, "INSERT INTO done (key, n, attempt) VALUES ('events', 1, 1)"); err != nil {
				return err
			}
		}
		return nil
	})
	s.waitCount(1, "SELECT count(*) FROM troupe.local_topics WHERE topic = $1", s.hop.Events())
	s.waitCount(2, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = x'74727563'::int::oid
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid IN (
			SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = hashtext($1)::oid)`, s.listener().String()+" "+s.hop.Events())
	_, err := s.pool.Exec(t.Context(), "UPDATE troupe.local_topics SET created_at = now() - interval '1 h'")
	require.NoError(t, err)
	const each = 20
	for n := range each {
		s.emit(string(rune('a'+n)), n)
	}
	s.waitCount(0, "SELECT count(*) FROM troupe.local_work WHERE ended_at IS NULL")
	require.Equal(t, each, s.count("SELECT count(*) FROM done WHERE key = 'events'"))
}

// TestATimeInWhichAMemberCannotLookDoesNotMakeATopicUnconsumed checks a database that is away for longer than UnknownTypeWait, or a member
// that is frozen: at the first look after it, the topic's consumers may not have their locks again.
func TestATimeInWhichAMemberCannotLookDoesNotMakeATopicUnconsumed(t *testing.T) {
	t.Parallel()
	const wait = 5 * time.Minute
	var idle participant.IdleTopics
	now := time.Now()
	look := func(after time.Duration, consumed bool) []string {
		now = now.Add(after)
		return idle.Unconsumed(now, map[string]bool{"t": consumed}, wait)
	}
	require.Empty(t, look(0, false), "the first look")
	require.Empty(t, look(time.Second, true))
	require.Empty(t, look(time.Hour, false), "after an outage")
	for range 290 {
		require.Empty(t, look(time.Second, false))
	}
	require.Empty(t, look(time.Second, true))
	for range 299 {
		require.Empty(t, look(time.Second, false))
	}
	require.Equal(t, []string{"t"}, look(time.Second, false))
	require.Equal(t, []string{"t"}, look(time.Second, false))
	require.Empty(t, look(time.Second, true))
	require.Empty(t, idle.Unconsumed(now.Add(time.Second), nil, wait), "it is not local any more")
	require.Empty(t, look(time.Hour, false), "it is local again")
}

// TestAnEventBehindTheStartOfItsFirstConsumerIsLeftToIt checks the moment in which a consumer of an unconsumed topic starts, before a
// member of the older version looks again.
func TestAnEventBehindTheStartOfItsFirstConsumerIsLeftToIt(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeEventsLocal()
	var log safeBuffer
	s.start(s.listens(nil, func(c *participant.Config) { c.UnknownTypeWait, c.Log = time.Second, zerolog.New(&log) }))
	s.emit("a", 1)
	s.waitCount(1, "SELECT count(*) FROM troupe.local_work WHERE topic = $1 AND status = 'done'", s.hop.Events())
	newer, err := s.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer newer.Release()
	_, err = newer.Exec(t.Context(), "SELECT pg_advisory_lock_shared($1, hashtext($2))", participant.TopicClass, s.listener().String()+" "+s.hop.Events())
	require.NoError(t, err)
	s.emit("b", 2)
	for _, key := range []string{"c", "d", "e"} {
		s.order(key)
	}
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.local_work WHERE topic = $1 AND status = 'pending'", s.hop.Events()))
}
