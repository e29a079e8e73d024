package participant_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// other does the same as count.
func other(ctx context.Context, tx pgx.Tx, c participant.Command[Other]) (participant.Outcome, error) {
	return count(ctx, tx, participant.Command[Count]{Body: Count{N: c.Body.N}, Message: c.Message, Attempt: c.Attempt})
}

// ofType sets another type on a command.
func ofType(typ string, m envelope.Message) envelope.Message {
	m.Type = typ
	return m
}

const (
	inOrder    = "SELECT count(*) FROM (SELECT n, lag(n, 1, 0) OVER (PARTITION BY key ORDER BY position) AS before FROM done) AS d WHERE n <> before + 1"
	waitInHeld = "SELECT count(*) FROM troupe.held WHERE unhandled_since IS NOT NULL AND attempts = 0 AND error_class = 'transient'"
)

// TestATypeOfANewerVersionWaitsForAMemberThatHandlesIt checks that its key is held, other keys continue, and the first member
// of the new version handles everything in its order.
func TestATypeOfANewerVersionWaitsForAMemberThatHandlesIt(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 100} {
		t.Run(fmt.Sprint("batch ", batch), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			var log safeBuffer
			older := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Log = batch, zerolog.New(&log) })
			participant.Handle(older, count)
			s.provision(1)
			s.send(s.command("a", Count{N: 1}), ofType("Other", s.command("a", Count{N: 2})), s.command("b", Count{N: 1}),
				s.command("a", Count{N: 3}), ofType("Other", s.command("a", Count{N: 4})), s.command("b", Count{N: 2}))
			stop := s.start(older)
			s.waitCount(1, waitInHeld)
			s.waitCount(3, "SELECT count(*) FROM troupe.held")
			s.waitCount(2, "SELECT count(*) FROM done WHERE key = 'b'")
			var waits []participant.UnhandledType
			waitFor(t, "stats", func() bool { waits = older.Stats().Unhandled; return len(waits) == 1 })
			require.Equal(t, []any{s.hop.Commands(), "Other", "", 1, 5 * time.Minute},
				[]any{waits[0].Topic, waits[0].Type, waits[0].Deadline, waits[0].Messages, waits[0].Until.Sub(waits[0].Since)})
			require.Equal(t, 1, strings.Count(log.String(), "no handler here for messages of this type"))
			stop()

			newer := s.new(onePartition, func(c *participant.Config) { c.Batch = batch })
			participant.Handle(newer, count)
			participant.Handle(newer, other)
			s.start(newer)
			s.waitCount(0, "SELECT count(*) FROM troupe.held")
			s.waitCount(4, "SELECT count(*) FROM done WHERE key = 'a' AND attempt = 1")
			require.Zero(t, s.count(inOrder))
			require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
		})
	}
}

// TestADeadlineThatANewerMemberFiredWaitsForAMemberThatHandlesIt checks that it waits as a command does.
func TestADeadlineThatANewerMemberFiredWaitsForAMemberThatHandlesIt(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	newer := s.expecting()
	require.NoError(t, s.schedule(newer, participant.Deadline{Name: overdueName, Key: "a", Body: Overdue{N: 1}}))
	s.provision(1)
	stop := s.start(newer)
	fired := s.fired(1)[0]
	stop()
	older := s.new(onePartition)
	participant.Handle(older, count)
	stop = s.start(older)
	s.send(fired, s.command("a", Count{N: 1}))
	s.waitCount(1, waitInHeld)
	s.waitCount(2, "SELECT count(*) FROM troupe.held")
	var waits []participant.UnhandledType
	waitFor(t, "stats", func() bool { waits = older.Stats().Unhandled; return len(waits) == 1 })
	require.Equal(t, overdueName, waits[0].Deadline)
	stop()
	s.start(s.expecting())
	s.waitCount(1, "SELECT count(*) FROM met")
	s.waitCount(0, "SELECT count(*) FROM troupe.held")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
}

// TestAnUnknownTypeIsPoisonAfterItsWait checks also that messages that waited behind it meanwhile do not begin to wait then.
func TestAnUnknownTypeIsPoisonAfterItsWait(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	_, err := s.pool.Exec(t.Context(), `
		CREATE TABLE waits ("offset" bigint);
		CREATE FUNCTION note_wait() RETURNS trigger LANGUAGE plpgsql
			AS $$ BEGIN INSERT INTO public.waits VALUES (NEW."offset"); RETURN NULL; END $$;
		CREATE TRIGGER note_wait AFTER INSERT OR UPDATE ON troupe.held
			FOR EACH ROW WHEN (NEW.unhandled_since IS NOT NULL) EXECUTE FUNCTION note_wait()`)
	require.NoError(t, err)
	var mended atomic.Bool
	p := s.new(onePartition, func(c *participant.Config) { c.UnknownTypeWait, c.Retry.Attempts = 3*time.Second, 1<<20 })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if !mended.Load() {
			return participant.Outcome{}, errAsked
		}
		return count(ctx, tx, c)
	})
	s.provision(1)
	s.send(s.command("a", Count{N: 1}))
	for range 5 {
		s.send(ofType("Other", s.command("a", Count{})))
	}
	s.start(p)
	s.waitCount(6, "SELECT count(*) FROM troupe.held")
	mended.Store(true)
	s.waitCount(5, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'poison' AND attempts = 1 AND error LIKE '%no handler for type%'")
	s.waitCount(0, "SELECT count(*) FROM troupe.held")
	require.Equal(t, 1, s.count(`SELECT count(DISTINCT "offset") FROM waits`))
	require.Equal(t, 1, s.count(`SELECT count(*) FROM troupe.dead_letters
		WHERE "offset" = (SELECT min("offset") FROM waits) AND last_failed_at - first_failed_at > interval '2.9 s'`))
	require.Empty(t, p.Stats().Unhandled)
	s.send(s.command("a", Count{N: 2})) // the key continues
	s.waitCount(2, "SELECT count(*) FROM done")
}

func TestANegativeWaitMakesAnUnknownTypePoisonAtOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var held atomic.Bool
	p := s.new(onePartition, atOnce, func(c *participant.Config) { c.Hooks.Held = func(participant.Delivery) { held.Store(true) } })
	participant.Handle(p, count)
	s.provision(1)
	s.start(p)
	s.send(ofType("Other", s.command("a", Count{})))
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'poison'")
	require.False(t, held.Load())
}

// TestTheWaitOfAnUnknownTypeBeginsAgainAfterAMemberKnewIt checks a version with a handler for the type that was deployed and
// rolled back.
func TestTheWaitOfAnUnknownTypeBeginsAgainAfterAMemberKnewIt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	s.send(ofType("Other", s.command("a", Count{N: 1})))
	older := func() (stop func()) {
		p := s.new(onePartition)
		participant.Handle(p, count)
		return s.start(p)
	}
	stop := older()
	s.waitCount(1, waitInHeld)
	stop()
	_, err := s.pool.Exec(t.Context(), "UPDATE troupe.held SET unhandled_since = now() - interval '1 h', next_try = now()")
	require.NoError(t, err)
	newer := s.new(onePartition, func(c *participant.Config) { c.Retry.Attempts = 1 << 20 })
	participant.Handle(newer, func(context.Context, pgx.Tx, participant.Command[Other]) (participant.Outcome, error) {
		return participant.Outcome{}, errAsked
	})
	stop = s.start(newer)
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts > 0 AND unhandled_since IS NULL")
	stop()
	attempts := s.count("SELECT attempts FROM troupe.held")
	stop = older()
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE unhandled_since > now() - interval '30 min' AND attempts = $1", attempts)
	stop()

	// While no member has a handler for the type, another owner does not begin the wait again.
	_, err = s.pool.Exec(t.Context(), "UPDATE troupe.held SET unhandled_since = now() - interval '1 h', next_try = now()")
	require.NoError(t, err)
	older()
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'poison'")
}

// TestAMessageOnARetryTopicWaitsThereForAMemberThatHandlesItsType checks a version that sent it there and was rolled back for a
// while.
func TestAMessageOnARetryTopicWaitsThereForAMemberThatHandlesItsType(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	topic := s.hop.Retry(time.Second)
	newer := func() (stop func()) {
		p := s.new(onePartition, func(c *participant.Config) { c.Immediate = 1 })
		participant.Handle(p, count)
		participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Other]) (participant.Outcome, error) {
			if c.Attempt < 3 {
				return participant.Outcome{}, errAsked
			}
			require.Equal(t, s.hop.Commands(), c.Message.Topic)
			return other(ctx, tx, c)
		}, participant.RetryTopics(time.Second))
		return s.start(p)
	}
	s.provision(1)
	stop := newer()
	m := ofType("Other", s.command("a", Count{N: 1}))
	s.send(m)
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", topic)
	waitFor(t, "the lease of the retry topic", func() bool { return s.count("SELECT count(*) FROM troupe.leases WHERE topic = $1", topic) > 0 })
	stop()
	older := s.new(onePartition)
	participant.Handle(older, count)
	stop = s.start(older)
	require.Equal(t, 1, s.publish(topic, 1))
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE topic = $1 AND unhandled_since IS NOT NULL AND attempts = 2", topic)
	stop()
	newer()
	s.waitCount(1, "SELECT count(*) FROM done WHERE attempt = 3")
	s.waitCount(0, "SELECT count(*) FROM troupe.held")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
}

// TestLocalWorkOfATypeOfANewerVersionWaitsForAMemberThatHandlesIt runs both versions at once.
func TestLocalWorkOfATypeOfANewerVersionWaitsForAMemberThatHandlesIt(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	older := s.new()
	participant.Handle(older, count)
	s.start(older)
	s.writeOther("a", "Count", "Other", "Count")
	s.write("b", Count{N: 1})
	s.waitCount(1, "SELECT count(*) FROM troupe.local_work WHERE unhandled_since IS NOT NULL AND attempts = 0 AND next_try IS NOT NULL")
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'b'")
	waitFor(t, "stats", func() bool { return len(older.Stats().Unhandled) == 1 })
	newer := s.new()
	participant.Handle(newer, count)
	participant.Handle(newer, other)
	s.start(newer)
	s.waitCount(4, "SELECT count(*) FROM troupe.local_work WHERE status = 'done' AND unhandled_since IS NULL")
	require.Zero(t, s.count(inOrder))
	require.Equal(t, 4, s.count("SELECT count(*) FROM done WHERE attempt = 1"))
}

// TestALocalEventThatFailedWaitsForAMemberThatHandlesItsType checks an event that a member of the newer version has tried, and that
// a member of the older one, which has no handler for it, claims next.
func TestALocalEventThatFailedWaitsForAMemberThatHandlesItsType(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	listener := topics.MustHop(s.hop.Flow(), "order")
	_, err := s.pool.Exec(t.Context(), "SELECT troupe.make_local($1, $2)", s.hop.Events(), listener.String())
	require.NoError(t, err)
	_, err = s.pool.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, headers, payload)
		VALUES ($1, 'a', 'Counted', '{"ce_outcome": "success"}', '{"n": 1}')`, s.hop.Events())
	require.NoError(t, err)
	version := func(newer, fails bool) *participant.Participant {
		p := s.new(func(c *participant.Config) {
			c.Hop = listener
			c.Immediate, c.Retry = -1, retry.Policy{Initial: 100 * time.Millisecond, Cap: 100 * time.Millisecond, Attempts: 100}
		})
		participant.On(p, s.hop, func(context.Context, pgx.Tx, participant.Event[TooMany]) error { return nil })
		if newer {
			participant.On(p, s.hop, func(ctx context.Context, tx pgx.Tx, e participant.Event[Counted]) error {
				if fails {
					return errAsked
				}
				_, err := tx.Exec(ctx, "INSERT INTO done (key, n, attempt) VALUES ('a', $1, $2)", e.Body.N, e.Attempt)
				return err
			})
		}
		return p
	}
	stop := s.start(version(true, true))
	testkit.Wait(t, "a failed attempt", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.local_work WHERE attempts > 0") == 1, nil
	})
	stop()
	older := version(false, false)
	stop = s.start(older)
	testkit.Wait(t, "a try of the older version", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.local_work WHERE unhandled_since IS NOT NULL OR status = 'done'") == 1, nil
	})
	waitFor(t, "stats", func() bool { return len(older.Stats().Unhandled) == 1 })
	stop()
	s.start(version(true, false))
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 1 AND attempt > 1")
	s.waitCount(1, "SELECT count(*) FROM troupe.local_work WHERE status = 'done'")
}

// TestLocalWorkOfAnUnknownTypeIsPoisonAfterItsWait checks also that an entry that waited behind it does not begin to wait then.
func TestLocalWorkOfAnUnknownTypeIsPoisonAfterItsWait(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	p := s.new(func(c *participant.Config) { c.UnknownTypeWait = time.Hour })
	participant.Handle(p, count)
	stop := s.start(p)
	s.writeOther("a", "Other", "Other", "Count", "Other")
	s.waitCount(1, "SELECT count(*) FROM troupe.local_work WHERE unhandled_since IS NOT NULL")
	stop()
	_, err := s.pool.Exec(t.Context(), `UPDATE troupe.local_work
		SET created_at = created_at - interval '1 h', unhandled_since = unhandled_since - interval '1 h', next_try = NULL`)
	require.NoError(t, err)
	_, err = s.pool.Exec(t.Context(), "UPDATE troupe.local_work SET next_try = now() WHERE unhandled_since IS NOT NULL")
	require.NoError(t, err)
	p = s.new(func(c *participant.Config) { c.UnknownTypeWait = time.Hour })
	participant.Handle(p, count)
	s.start(p)
	s.waitCount(3, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'poison' AND attempts = 1")
	s.waitCount(1, "SELECT count(*) FROM done")
}

// writeOther writes commands of types for a key, numbered.
func (s *stage) writeOther(key string, types ...string) {
	s.t.Helper()
	var b pgx.Batch
	for i, typ := range types {
		b.Queue("INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, $3, $4)", s.hop.Commands(), key, typ, marshal(Count{N: i + 1}))
	}
	b.Queue("SELECT pg_notify('" + outboxrow.Channel + "', '')")
	require.NoError(s.t, s.pool.SendBatch(s.t.Context(), &b).Close())
}
