package participant_test

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
)

// forwardCall and undoCall return the two commands of one step.
func (s *stage) forwardCall(key string) envelope.Message {
	return call{saga: "order/o-1", step: "charge", operation: "forward", key: "f:1", n: 1}.message(s, key)
}

func (s *stage) undoCall(key string) envelope.Message {
	return call{saga: "order/o-1", step: "charge", operation: "compensate", key: "c:1", n: 1, doubt: true}.message(s, key)
}

const undone = "SELECT count(*) FROM done WHERE n = -1"

// TestACompensationInDoubtUndoesTheFirstCallOfAFrozenMember checks a call that took effect outside: the new owner of the
// partition handles the compensation, which has another key, before it handles the call.
func TestACompensationInDoubtUndoesTheFirstCallOfAFrozenMember(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	_, err := s.pool.Exec(t.Context(), "CREATE TABLE charges (key text NOT NULL)")
	require.NoError(t, err)
	frozen := s.memberOf(task{Charges: true, Die: "after the call", Nth: 1, Freeze: true, Batch: 10, Concurrency: 1})
	s.send(s.forwardCall("b"))
	s.waitFrozen(frozen)
	s.send(s.undoCall("a"))
	second := s.memberOf(task{Charges: true, Batch: 10, Concurrency: 1})
	s.waitCount(1, undone)
	s.waitEvents(2)
	require.NoError(t, frozen.Process.Signal(syscall.SIGCONT))
	frozen.terminate(t)
	second.terminate(t)
	s.waitEvents(2)
	require.Equal(t, 1, s.count(undone))
}

// TestACompensationInDoubtUndoesAFirstCallThatWasCancelled checks a member that released its partition cleanly: with the next
// one the call waits behind another message of its key, without an attempt of its own.
func TestACompensationInDoubtUndoesAFirstCallThatWasCancelled(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	var broken atomic.Bool
	called := make(chan struct{}, 1)
	member := func() *participant.Participant {
		p := s.new(onePartition, holdLong, func(c *participant.Config) { c.Batch, c.Concurrency, c.Drain = 10, 1, time.Millisecond })
		participant.Ask(p, "Count", func(ctx context.Context, c participant.Command[[]byte]) (struct{}, error) {
			switch {
			case broken.Load():
				return struct{}{}, errAsked
			case c.Message.SagaID != "":
				called <- struct{}{}
				<-ctx.Done()
			}
			return struct{}{}, ctx.Err()
		}, (*bank)(nil).take)
		participant.Handle(p, undo)
		return p
	}
	s.send(s.command("a", Count{N: 7}), s.forwardCall("a"))
	stop := s.start(member())
	<-called
	stop()
	broken.Store(true)
	s.start(member())
	s.waitCount(2, "SELECT count(*) FROM troupe.held")
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.held WHERE attempts = 0"))
	s.send(s.undoCall("a"))
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE position('compensate'::bytea IN headers) > 0")
	broken.Store(false)
	s.due()
	s.waitCount(1, undone)
}

// TestACompensationInDoubtUndoesAFirstCallWhoseBatchWasRolledBack checks a call that then waits behind another message of the
// batch, which has failed, and has no attempt of its own.
func TestACompensationInDoubtUndoesAFirstCallWhoseBatchWasRolledBack(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	var charged, first atomic.Int32
	p := s.new(onePartition, holdLong, func(c *participant.Config) { c.Batch, c.Concurrency = 10, 1 })
	participant.Ask(p, "Count", func(_ context.Context, c participant.Command[[]byte]) (struct{}, error) {
		if c.Message.SagaID != "" {
			charged.Add(1)
			return struct{}{}, errAsked
		}
		return struct{}{}, nil
	}, func(_ context.Context, _ pgx.Tx, c participant.Command[[]byte], _ struct{}) (participant.Outcome, error) {
		if first.Add(1) > 1 {
			return participant.Outcome{}, errAsked
		}
		return participant.Succeed(Counted{}), nil
	})
	participant.Handle(p, undo)
	s.send(s.command("a", Count{N: 7}), s.forwardCall("a"))
	s.start(p)
	s.waitCount(2, "SELECT count(*) FROM troupe.held")
	require.EqualValues(t, 1, charged.Load())
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.held WHERE attempts = 0"))
	s.send(s.undoCall("a"))
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE position('compensate'::bytea IN headers) > 0")
	first.Store(0)
	s.due()
	s.waitCount(1, undone)
}

// blocked counts the sessions of the test's database that wait for a row.
const blocked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

// TestACompensationInDoubtWaitsForACallThatIsUnderWay checks two partitions: without the wait the compensation would undo a
// call that has not taken effect yet.
func TestACompensationInDoubtWaitsForACallThatIsUnderWay(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]bool{"it succeeds": false, "it fails": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.provision(2)
			keys := s.keys(2)
			called, goes := make(chan struct{}), make(chan struct{})
			var ended atomic.Bool
			p := s.new(holdLong, long)
			participant.Ask(p, "Count", func(context.Context, participant.Command[[]byte]) (struct{}, error) {
				close(called)
				<-goes
				ended.Store(true)
				if fails {
					return struct{}{}, retry.Permanent(errAsked)
				}
				return struct{}{}, nil
			}, (*bank)(nil).take)
			after := make(chan bool, 10)
			participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Undo]) (participant.Outcome, error) {
				after <- ended.Load()
				return undo(ctx, tx, c)
			})
			s.start(p)
			s.send(s.forwardCall(keys[0]))
			<-called
			s.send(s.undoCall(keys[1]))
			s.waitCount(1, blocked)
			close(goes)
			s.waitCount(1, undone)
			require.True(t, <-after)
		})
	}
}

// long sets a time-out after which Postgres does not end a transaction that waits for the test.
func long(c *participant.Config) { c.Timeout = 10 * time.Minute }

// TestACallThatMeetsItsCompensationInDoubtIsUndone begins the call after the compensation has found no mark and before it
// commits.
func TestACallThatMeetsItsCompensationInDoubtIsUndone(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(2)
	keys := s.keys(2)
	found, commits, called, responds := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	var once sync.Once
	p := s.new(long, func(c *participant.Config) {
		c.Hooks.BeforeCommit = func(d participant.Delivery) {
			if d.Message.SagaOperation == "compensate" {
				once.Do(func() { close(found); <-commits })
			}
		}
	})
	participant.Ask(p, "Count", func(context.Context, participant.Command[[]byte]) (struct{}, error) {
		close(called)
		<-responds
		return struct{}{}, nil
	}, (*bank)(nil).take)
	participant.Handle(p, undo)
	s.start(p)
	s.send(s.undoCall(keys[1]))
	<-found
	s.send(s.forwardCall(keys[0]))
	<-called
	close(commits)
	waitFor(t, "the compensation to wait for the call", func() bool {
		return s.count(blocked) > 0 || len(s.entries(s.hop.Events())) > 0
	})
	close(responds)
	s.waitEvents(2)
	require.Equal(t, 1, s.count(undone))
}

// TestOnlyARunAfterTheLastAnswerOfTheCallIsInDoubt checks that an answer of the handler ends the doubt of the runs before it.
func TestOnlyARunAfterTheLastAnswerOfTheCallIsInDoubt(t *testing.T) {
	t.Parallel()
	const forward, back = "forward", "compensate"
	for name, story := range map[string][]call{
		"it fails, and is refused": {
			{operation: forward, key: "f:1", fail: "once"}, {operation: forward, key: "f:1", fail: "refuse", want: "failure TooMany"},
			{operation: back, key: "c:1", want: "success troupe.Nothing"},
		},
		"it is refused, asked again, and fails": {
			{operation: forward, key: "f:1", fail: "refuse", want: "failure TooMany"}, {operation: forward, key: "f:2", fail: "once"},
			{operation: back, key: "c:1", want: "success Undone"},
		},
		"it fails, and its compensation is refused and asked again": {
			{operation: forward, key: "f:1", fail: "once"}, {operation: back, key: "c:1", fail: "refuse", want: "failure TooMany"},
			{operation: back, key: "c:2", want: "success Undone"},
		},
		"it is refused, and comes again": {
			{operation: forward, key: "f:1", fail: "refuse", want: "failure TooMany"},
			{operation: forward, key: "f:1", fail: "refuse", want: "failure TooMany"},
			{operation: back, key: "c:1", want: "success troupe.Nothing"},
		},
		"it succeeds": {
			{operation: forward, key: "f:1", want: "success Counted"}, {operation: back, key: "c:1", want: "success Undone"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, s *stage) {
				p := s.new(s.batched)
				participant.Ask(p, "Count", func(_ context.Context, c participant.Command[[]byte]) (body Count, err error) {
					if err = json.Unmarshal(c.Body, &body); body.Fail == "once" {
						err = retry.Permanent(errAsked)
					}
					return body, err
				}, func(_ context.Context, _ pgx.Tx, _ participant.Command[[]byte], body Count) (participant.Outcome, error) {
					if body.Fail == "refuse" {
						return participant.Refuse(TooMany{Limit: 1}), nil
					}
					return participant.Succeed(Counted{}), nil
				})
				participant.Handle(p, undo)
				s.start(p)
				for n, c := range story {
					c.saga, c.step, c.n, c.doubt = "order/o-1", "charge", n, c.operation == back
					s.give(c.message(s, "a"))
					if c.want == "" {
						c.want = "exhausted troupe.Exhausted"
					}
					events := s.waitEvents(n + 1)
					require.Equal(t, c.want, string(events[n].Outcome)+" "+events[n].Type)
				}
				if name == "it succeeds" {
					require.Zero(t, s.count("SELECT count(*) FROM troupe.answers WHERE outcome = 'begun'"))
				}
			})
		})
	}
}
