package participant_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/topics"
)

// holdLong makes a key that failed wait until a test makes it due.
func holdLong(c *participant.Config) {
	c.Immediate = -1
	c.Retry = retry.Policy{Initial: time.Hour, Cap: time.Hour, NoJitter: true, Attempts: 1000}
}

// due makes the held messages due now.
func (s *stage) due() {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), "UPDATE troupe.held SET next_try = now() WHERE attempts > 0")
	require.NoError(s.t, err)
}

// TestOnlyAForwardCommandIsOvertaken checks an event with the saga and step of the command that it answers, and messages
// without a saga or a step.
func TestOnlyAForwardCommandIsOvertaken(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name       string
		events     bool
		saga, step string
	}{
		{"the event of a step that was compensated", true, "s", "charge"},
		{"an event without a saga", true, "", ""},
		{"a command without a step", false, "s", ""},
		{"a command without a saga", false, "", "charge"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			order := topics.MustHop(s.hop.Flow(), "order")
			p := s.new(onePartition, holdLong)
			var mu sync.Mutex
			var handled []int
			broken := true
			handle := func(n int) error {
				mu.Lock()
				defer mu.Unlock()
				if broken {
					return errAsked
				}
				handled = append(handled, n)
				return nil
			}
			participant.Handle(p, func(_ context.Context, _ pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
				return participant.Succeed(Counted{}), handle(c.Body.N)
			})
			participant.On(p, order, func(_ context.Context, _ pgx.Tx, e participant.Event[Count]) error { return handle(e.Body.N) })
			s.provision(1)
			s.topic(order.Events())
			s.start(p)
			first, second := s.command("a", Count{N: 1}), s.command("a", Count{N: 2})
			for _, m := range []*envelope.Message{&first, &second} {
				m.SagaID, m.SagaStep, m.SagaOperation = test.saga, test.step, "forward"
				if test.events {
					m.Topic, m.Outcome = order.Events(), envelope.Success
				}
			}
			second.SagaOperation = "compensate"
			s.send(first)
			s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts = 1")
			s.send(second)
			s.waitCount(2, "SELECT count(*) FROM troupe.held")
			mu.Lock()
			broken = false
			mu.Unlock()
			s.due()
			waitFor(t, "both", func() bool { mu.Lock(); defer mu.Unlock(); return len(handled) >= 2 })
			s.waitCount(0, "SELECT count(*) FROM troupe.held")
			require.Equal(t, []int{1, 2}, handled)
		})
	}
}

// TestACompensationOvertakesAlsoWhatWaitsBehindManyOthers checks 1,200 of its key, among them commands of other sagas that name
// its saga and step elsewhere.
func TestACompensationOvertakesAlsoWhatWaitsBehindManyOthers(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition, holdLong)
	var broken atomic.Bool
	broken.Store(true)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if broken.Load() {
			return participant.Outcome{}, errAsked
		}
		return count(ctx, tx, c)
	})
	participant.Handle(p, undo)
	s.provision(1)
	s.start(p)
	s.send(s.command("a", Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts = 1")
	_, err := s.pool.Exec(t.Context(), `
		INSERT INTO troupe.held (consumer_group, topic_id, partition, "offset", topic, hold_key, key, headers, payload, message_time, max_attempts)
		SELECT consumer_group, topic_id, partition, 1000000 + n, topic, hold_key, key, headers, payload, message_time, max_attempts
		FROM troupe.held, generate_series(1, 1200) AS n`)
	require.NoError(t, err)
	forward := call{saga: "s-4711", step: "charge", operation: "forward", key: "k", n: 2}.message(s, "a")
	named := call{saga: "another", step: "charge", operation: "forward", key: "s-4711", n: 3}.message(s, "a")
	s.send(forward, named)
	s.waitCount(1203, "SELECT count(*) FROM troupe.held")
	s.send(call{saga: "s-4711", step: "charge", operation: "compensate", key: "c", n: 9}.message(s, "a"))
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE position('compensate'::bytea IN headers) > 0")
	const of = "SELECT count(*) FROM troupe.held WHERE position($1 IN headers) > 0"
	require.Zero(t, s.count(of, []byte(forward.ID)), "its forward call is gone")
	require.Equal(t, 1, s.count(of, []byte(named.ID)), "the other saga's is there")
	require.Equal(t, 1203, s.count("SELECT count(*) FROM troupe.held"))
}

// TestACompensationCancelsAnyNumberOfCommands: a producer that may write to the commands may send any number of calls of one step, and headers of
// 64 KiB with each. They are read and cancelled in parts. If the participant ends after a part, the compensation comes again.
func TestACompensationCancelsAnyNumberOfCommands(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	newParticipant := func() *participant.Participant {
		p := s.new(onePartition, holdLong)
		participant.Handle(p, count)
		participant.Handle(p, undo)
		return p
	}
	stop := s.start(newParticipant())
	s.send(s.command("a", Count{N: 1, Fail: "error"}))
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts = 1")
	const calls = 250
	for n := range calls {
		s.send(call{saga: "s-4711", step: "charge", operation: "forward", key: fmt.Sprint("k-", n), n: 2 + n}.message(s, "a"))
	}
	s.waitCount(1+calls, "SELECT count(*) FROM troupe.held")
	_, err := s.pool.Exec(t.Context(), `
		CREATE TABLE cancelled (xid xid8 NOT NULL);
		CREATE FUNCTION note_cancelled() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
		  INSERT INTO cancelled VALUES (pg_current_xact_id());
		  IF (SELECT count(DISTINCT xid) FROM cancelled) = 2 AND to_regclass('ended_once') IS NULL THEN
		    RAISE deadlock_detected;
		  END IF;
		  RETURN NULL;
		END $$;
		CREATE TRIGGER note_cancelled AFTER DELETE ON troupe.held FOR EACH ROW EXECUTE FUNCTION note_cancelled();`)
	require.NoError(t, err)
	s.send(call{saga: "s-4711", step: "charge", operation: "compensate", key: "c", n: 9}.message(s, "a"))
	s.waitCount(100, "SELECT count(*) FROM cancelled")
	stop()
	require.Zero(t, s.count("SELECT count(*) FROM troupe.held WHERE position('compensate'::bytea IN headers) > 0"))
	_, err = s.pool.Exec(t.Context(), "CREATE TABLE ended_once ()")
	require.NoError(t, err)
	s.start(newParticipant())
	s.waitCount(2, "SELECT count(*) FROM troupe.held")
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.held WHERE position('compensate'::bytea IN headers) > 0"))
	require.Equal(t, 100, s.count("SELECT max(n) FROM (SELECT count(*) AS n FROM cancelled GROUP BY xid) AS t"))
}

// TestACompensationOvertakesACommandWhoseIDTheEncodingLacks: the held command was identified by its place, and the compensation is valid.
func TestACompensationOvertakesACommandWhoseIDTheEncodingLacks(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.inEncoding("LATIN1", map[string]string{"client_encoding": "UTF8"})
	s.provision(1)
	p := s.new(onePartition, holdLong)
	participant.Handle(p, count)
	s.start(p)
	s.send(s.command("a", Count{N: 1, Fail: "error"}))
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts = 1")
	forward, compensation := s.command("a", Count{N: 2}), s.command("a", Count{N: 3})
	forward.SagaID, forward.SagaStep, forward.SagaOperation, forward.ID = "s", "charge", "forward", "λ-1"
	compensation.SagaID, compensation.SagaStep, compensation.SagaOperation = "s", "charge", "compensate"
	s.send(forward)
	s.waitCount(2, "SELECT count(*) FROM troupe.held")
	s.send(compensation)
	s.waitCount(1, `SELECT count(*) FROM troupe.held WHERE "offset" = 2`)
	require.Zero(t, s.count(`SELECT count(*) FROM troupe.held WHERE "offset" = 1`))
}
