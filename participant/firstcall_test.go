package participant_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

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

// waits counts the held messages that wait for a call that is under way. None of them has an attempt.
const waits = "SELECT count(*) FROM troupe.held WHERE attempts = 0 AND last_error LIKE '%is under way%'"

// TestACompensationWaitsForACallThatIsUnderWay checks two partitions: without the wait the compensation would undo a call that has
// not taken effect yet. The wait counts no attempt, and other messages of the compensation's batch go on.
func TestACompensationWaitsForACallThatIsUnderWay(t *testing.T) {
	t.Parallel()
	for _, doubt := range []bool{true, false} {
		for _, fails := range []bool{true, false} {
			t.Run(fmt.Sprintf("in doubt %t, it fails %t", doubt, fails), func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				s.provision(2)
				keys := s.keys(2)
				called, goes := make(chan struct{}), make(chan struct{})
				var ended atomic.Bool
				p := s.new(long, func(c *participant.Config) { c.Batch, c.Retry.Attempts = 10, 1 })
				participant.Ask(p, "Count", func(_ context.Context, c participant.Command[[]byte]) (struct{}, error) {
					if c.Message.SagaID == "" {
						return struct{}{}, nil
					}
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
				undo := s.undoCall(keys[1])
				if !doubt {
					undo.Extra = nil
				}
				sent := []envelope.Message{undo}
				pick := kgo.StickyKeyPartitioner(nil).ForTopic("")
				for n := 0; len(sent) < 5; n++ {
					key := fmt.Sprintf("other-%d", n)
					if pick.Partition(&kgo.Record{Key: []byte(key)}, 2) == 1 { // as the compensation
						sent = append(sent, s.command(key, Count{}))
					}
				}
				s.send(sent...)
				s.waitCount(1, waits)
				s.waitEvents(4)
				close(goes)
				s.waitCount(1, undone)
				require.True(t, <-after)
				require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters WHERE message_type = 'Undo'"))
			})
		}
	}
}

// long sets a time-out after which Postgres does not end a transaction that waits for the test.
func long(c *participant.Config) { c.Timeout = 10 * time.Minute }

// TestLocalWorkWaitsForACallThatIsUnderWay checks that the wait counts no attempt, and no crash, there either.
func TestLocalWorkWaitsForACallThatIsUnderWay(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	called, goes := make(chan struct{}), make(chan struct{})
	p := s.new(long, func(c *participant.Config) { c.Batch, c.Retry.Attempts = 10, 1 })
	participant.Ask(p, "Count", func(context.Context, participant.Command[[]byte]) (struct{}, error) {
		close(called)
		<-goes
		return struct{}{}, nil
	}, (*bank)(nil).take)
	participant.Handle(p, undo)
	s.start(p)
	s.give(s.forwardCall("a"))
	<-called
	s.give(s.undoCall("b"))
	s.waitCount(1, "SELECT count(*) FROM troupe.local_work WHERE attempts = 0 AND crashes = 0 AND last_error LIKE '%is under way%' AND status = 'pending'")
	close(goes)
	s.waitCount(1, undone)
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
}

// TestACallThatMeetsItsCompensationIsUndone begins the call after the compensation has found no mark and before it commits.
func TestACallThatMeetsItsCompensationIsUndone(t *testing.T) {
	t.Parallel()
	for _, doubt := range []bool{true, false} {
		t.Run(fmt.Sprintf("in doubt %t", doubt), func(t *testing.T) {
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
			undo := s.undoCall(keys[1])
			if !doubt {
				undo.Extra = nil
			}
			s.send(undo)
			<-found
			s.send(s.forwardCall(keys[0]))
			<-called
			close(commits)
			s.waitCount(1, waits)
			close(responds)
			events := s.waitEvents(2)
			require.Equal(t, []string{"Counted", "Undone"}, []string{events[0].Type, events[1].Type})
			require.Equal(t, 1, s.count(undone))
		})
	}
}

// TestACallIsNotMadeAfterItsCompensation checks a compensation without doubt whose call comes while it runs, or later.
func TestACallIsNotMadeAfterItsCompensation(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, s *stage) {
		var b bank
		p := s.new(s.batched)
		participant.Ask(p, "Count", b.ask, b.take)
		participant.Handle(p, undo)
		s.start(p)
		undo := s.undoCall("a")
		undo.Extra = nil
		s.give(undo)
		s.waitEvents(1)
		require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.answers WHERE outcome = 'barred'"))
		s.give(s.forwardCall("b"))
		require.Equal(t, "troupe.Nothing", s.waitEvents(2)[1].Type)
		require.Zero(t, b.charged.Load())
	})
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
