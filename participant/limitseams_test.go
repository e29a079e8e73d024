package participant_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// Plainly is a command of a handler without limits.
type Plainly struct{ N int }

func (s *stage) plainly(key string, n int) envelope.Message {
	m := s.command(key, Count{N: n})
	m.Type = "Plainly"
	return m
}

func freed(_ context.Context, _ pgx.Tx, c participant.Command[Freely]) (participant.Outcome, error) {
	return participant.Succeed(Counted{N: c.Body.N}), nil
}

// limitedKeys waits until that many keys wait for a limit.
func limitedKeys(t *testing.T, p *participant.Participant, n int) {
	t.Helper()
	testkit.Wait(t, fmt.Sprintf("%d keys that wait for a limit", n), func() (bool, error) {
		waiting := 0
		for _, part := range p.Stats().Partitions {
			waiting += part.Limited
		}
		return waiting == n, nil
	})
}

// partitionOf returns the partition of a key.
func (s *stage) partitionOf(key string, partitions int) int {
	return kgo.StickyKeyPartitioner(nil).ForTopic("").Partition(&kgo.Record{Key: []byte(key)}, partitions)
}

// blocker is a function that runs until it is let go.
type blocker struct {
	began, goes chan struct{}
	once        sync.Once
}

func newBlocker() *blocker { return &blocker{began: make(chan struct{}), goes: make(chan struct{})} }

func (b *blocker) run(ctx context.Context) error {
	b.once.Do(func() { close(b.began) })
	select {
	case <-b.goes:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestASlotIsPassedOnByAKeyThatLacksTheOtherPermit has a key that gets the only slot of a dependency, but has no permit of its rate: the
// next key that waits for the slot runs.
func TestASlotIsPassedOnByAKeyThatLacksTheOtherPermit(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	first := newBlocker()
	p := s.new(onePartition, func(c *participant.Config) { c.Concurrency, c.Timeout = 3, time.Hour })
	participant.Call(p, func(ctx context.Context, c participant.Command[Count]) (int, error) {
		return c.Body.N, first.run(ctx)
	}, decideCounted, participant.RateLimit(1, time.Hour), participant.ConcurrencyLimit("the bank", 1))
	participant.Handle(p, freed, participant.ConcurrencyLimit("the bank", 1))
	s.start(p)
	s.send(s.command("a", Count{N: 1}))
	<-first.began
	s.send(s.command("b", Count{N: 2}))
	limitedKeys(t, p, 1)
	s.send(s.freely("c", 3), s.freely("d", 4))
	limitedKeys(t, p, 3)
	close(first.goes)
	s.waitEvents(3)
	limitedKeys(t, p, 1)
}

// TestASlotIsPassedOnByAPartitionThatWaits lets a key of a partition run that is shut before the key has its turn: the keys of other
// partitions get the slot.
func TestASlotIsPassedOnByAPartitionThatWaits(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(3)
	keys := s.keys(3)
	holder, shutter, filler := newBlocker(), newBlocker(), newBlocker()
	p := s.new(func(c *participant.Config) { c.Partitions, c.Concurrency, c.Timeout = 3, 2, time.Hour })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Freely]) (participant.Outcome, error) {
		if c.Body.N == 1 {
			if err := holder.run(ctx); err != nil {
				return participant.Outcome{}, err
			}
		}
		return freed(ctx, tx, c)
	}, participant.ConcurrencyLimit("the bank", 1))
	participant.Handle(p, func(ctx context.Context, _ pgx.Tx, c participant.Command[Plainly]) (participant.Outcome, error) {
		if c.Body.N == 4 {
			if err := shutter.run(ctx); err != nil {
				return participant.Outcome{}, err
			}
			return participant.Outcome{}, retry.Unavailable("the desk", errAsked)
		}
		return participant.Succeed(Counted{N: c.Body.N}), filler.run(ctx)
	})
	s.start(p)
	key := func(partition int, n int) string { // another key of the partition
		for i := 0; ; i++ {
			if k := fmt.Sprintf("%s-%d-%d", keys[partition], n, i); s.partitionOf(k, 3) == partition {
				return k
			}
		}
	}
	s.send(s.freely(key(1, 1), 1))
	<-holder.began
	s.send(s.freely(key(0, 2), 2))
	limitedKeys(t, p, 1)
	s.send(s.freely(key(1, 3), 3))
	limitedKeys(t, p, 2)
	s.send(s.plainly(key(0, 4), 4))
	<-shutter.began
	s.send(s.plainly(key(2, 5), 5))
	testkit.Wait(t, "a message that waits for a turn", func() (bool, error) {
		for _, part := range p.Stats().Partitions {
			if part.Partition == 2 && part.Waiting == 1 {
				return true, nil
			}
		}
		return false, nil
	})
	close(holder.goes)
	<-filler.began
	close(shutter.goes)
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE key = $1", key(1, 3))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox WHERE key = $1", key(0, 2)))
	close(filler.goes)
}

// TestALimitedRunWaitsForNoOtherMessage sends a message without a limit, and in the same batch one with a limit that must end first.
func TestALimitedRunWaitsForNoOtherMessage(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	limited := newBlocker()
	p := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Concurrency, c.Timeout = 2, 2, time.Hour })
	participant.Handle(p, func(ctx context.Context, _ pgx.Tx, c participant.Command[Plainly]) (participant.Outcome, error) {
		return participant.Succeed(Counted{N: c.Body.N}), limited.run(ctx)
	})
	participant.Handle(p, func(_ context.Context, _ pgx.Tx, c participant.Command[Freely]) (participant.Outcome, error) {
		close(limited.goes)
		return participant.Succeed(Counted{N: c.Body.N}), nil
	}, participant.ConcurrencyLimit("the bank", 1))
	s.send(s.plainly("a", 1), s.freely("b", 2))
	s.start(p)
	s.waitEvents(2)
}

// TestTriesBeforeARetryTopicNeedPermits fails a message whose handler has retry topics: its tries at once wait for permits.
func TestTriesBeforeARetryTopicNeedPermits(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	var calls atomic.Int32
	p := s.new(onePartition)
	participant.Call(p, func(context.Context, participant.Command[Count]) (int, error) {
		calls.Add(1)
		return 0, errAsked
	}, decideCounted, participant.RateLimit(1, time.Hour), participant.RetryTopics(time.Second))
	s.send(s.command("a", Count{N: 1}))
	s.start(p)
	testkit.Wait(t, "a message that waits for its second try, or its retry topic", func() (bool, error) {
		for _, part := range p.Stats().Partitions {
			if part.Limited == 1 && calls.Load() > 0 {
				return true, nil
			}
		}
		return s.count("SELECT count(*) FROM troupe.outbox") > 0, nil
	})
	require.EqualValues(t, 1, calls.Load())
}

// TestTriesBeforeARetryTopicEnd counts the tries of a message that fails, with a limit that has permits.
func TestTriesBeforeARetryTopicEnd(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	var mu sync.Mutex
	var attempts []int
	p := s.new(onePartition, func(c *participant.Config) { c.Immediate = 2 })
	participant.Call(p, func(_ context.Context, c participant.Command[Count]) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		attempts = append(attempts, c.Attempt)
		return 0, errAsked
	}, decideCounted, participant.RateLimit(1000, time.Minute), participant.RetryTopics(time.Second))
	s.send(s.command("a", Count{N: 1}))
	s.start(p)
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox")
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []int{1, 2, 3}, attempts)
}

// TestAnAnswerThatIsThereNeedsNoPermit rolls a run back after its call: it continues with the answer, although the limit allows no call.
func TestAnAnswerThatIsThereNeedsNoPermit(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	var calls, decisions atomic.Int32
	p := s.new(onePartition)
	participant.Call(p, func(context.Context, participant.Command[Count]) (int, error) {
		return int(calls.Add(1)), nil
	}, func(_ context.Context, _ pgx.Tx, c participant.Command[Count], n int) (participant.Outcome, error) {
		if decisions.Add(1) == 1 {
			return participant.Outcome{}, retry.Unavailable("the desk", errAsked)
		}
		return participant.Succeed(Counted{N: n}), nil
	}, participant.RateLimit(1, time.Hour))
	s.send(s.command("a", Count{N: 1}))
	s.start(p)
	s.waitEvents(1)
	require.EqualValues(t, 1, calls.Load())
}

// TestACallThatEndsItsGoroutineCountsOnce checks that a call that ends with runtime.Goexit is one attempt, and gives its slot back.
func TestACallThatEndsItsGoroutineCountsOnce(t *testing.T) {
	t.Parallel()
	for name, batch := range map[string]int{"alone": 1, "in a batch": 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.provision(1)
			var calls atomic.Int32
			p := s.new(onePartition, func(c *participant.Config) { c.Batch = batch })
			participant.Call(p, func(_ context.Context, c participant.Command[Count]) (int, error) {
				if c.Body.Fail == "" {
					return c.Body.N, nil
				}
				calls.Add(1)
				runtime.Goexit()
				return 0, nil
			}, decideCounted, participant.ConcurrencyLimit("the bank", 2))
			s.send(s.command("a", Count{N: 1, Fail: "exit"}), s.command("b", Count{N: 2}), s.command("c", Count{N: 3}))
			s.start(p)
			s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'panic' AND attempts = 4")
			s.waitCount(2, "SELECT count(*) FROM troupe.outbox WHERE topic = $1 AND type = 'Counted'", s.hop.Events())
			require.EqualValues(t, 4, calls.Load())
		})
	}
}

// TestPermitsThatNobodyNeedsAnyMoreAreNoTrouble takes the messages away from a member that cannot claim permits: it is ready again.
func TestPermitsThatNobodyNeedsAnyMoreAreNoTrouble(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	s.exec("ALTER TABLE troupe.rate_limits RENAME TO away")
	p := s.new(onePartition)
	participant.Call(p, new(clocked).call, decideCounted, participant.RateLimit(1, time.Hour))
	s.start(p)
	s.send(s.command("a", Count{N: 1}))
	testkit.Wait(t, "trouble", func() (bool, error) {
		err := p.Ready()
		return err != nil && strings.Contains(err.Error(), "no permits"), nil
	})
	end := make(kadm.Offsets)
	end.AddOffset(s.hop.Commands(), 0, 1, -1)
	_, err := kadm.NewClient(s.client).DeleteRecords(t.Context(), end)
	require.NoError(t, err)
	s.exec("UPDATE troupe.leases SET term = term + 1") // the member joins again
	testkit.Wait(t, "no trouble", func() (bool, error) { return p.Ready() == nil, p.Ready() })
}

// TestARunThatBeginsLateNeedsAnotherPermit delays a run until its permit has expired: it does not begin, counts no attempt, and begins
// with another permit.
func TestARunThatBeginsLateNeedsAnotherPermit(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	var entered, ran atomic.Int32
	p := s.new(onePartition, func(c *participant.Config) {
		c.Hooks.Handler = func(ctx context.Context, _ participant.Delivery) (context.Context, func(participant.Delivery)) {
			if entered.Add(1) == 1 {
				began := time.Now()
				waitFor(t, "the end of the permit", func() bool { return time.Since(began) > time.Second })
			}
			return ctx, nil
		}
		c.Hooks.Failed = func(d participant.Delivery) { t.Errorf("failed: %v", d.Err) }
	})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Freely]) (participant.Outcome, error) {
		ran.Add(1)
		return freed(ctx, tx, c)
	}, participant.RateLimit(10, time.Second))
	s.send(s.freely("a", 1))
	s.start(p)
	s.waitEvents(1)
	require.GreaterOrEqual(t, entered.Load(), int32(2))
	require.EqualValues(t, 1, ran.Load())
}

// TestACallThatCancelsItselfCountsAttempts has a call that always returns context.Canceled, first in a batch with another message: it
// becomes a dead letter, and each attempt is one call.
func TestACallThatCancelsItselfCountsAttempts(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	s.exec("ALTER TABLE troupe.rate_limits RENAME TO away")
	var calls atomic.Int32
	other := newBlocker()
	p := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Concurrency, c.Timeout = 10, 1, time.Hour })
	participant.Call(p, func(context.Context, participant.Command[Count]) (int, error) {
		calls.Add(1)
		return 0, context.Canceled
	}, decideCounted, participant.RateLimit(6000, time.Minute))
	participant.Handle(p, func(ctx context.Context, _ pgx.Tx, c participant.Command[Plainly]) (participant.Outcome, error) {
		return participant.Succeed(Counted{N: c.Body.N}), other.run(ctx)
	})
	s.start(p)
	s.send(s.command("a", Count{N: 1}))
	limitedKeys(t, p, 1)
	s.send(s.plainly("b", 2))
	<-other.began
	s.send(s.plainly("c", 3))
	s.exec("ALTER TABLE troupe.away RENAME TO rate_limits")
	limitedKeys(t, p, 0) // it has its turn together with the other message, unless its permit expires before
	close(other.goes)
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE attempts = 4")
	s.waitCount(2, "SELECT count(*) FROM troupe.outbox WHERE topic = $1 AND type = 'Counted'", s.hop.Events())
	require.EqualValues(t, 4, calls.Load())
}

// TestAPassedMessageLeavesAShutPartitionItsTries has a partition that is shut, since a dependency is away. Its next try finds no slot for the
// message that failed, and an event without a handler behind it, which ends without a run. The partition is tried again.
func TestAPassedMessageLeavesAShutPartitionItsTries(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	from := topics.MustHop(s.hop.Flow(), "order")
	testkit.Topics(t, s.client, 2, from.Events())
	keys := s.keys(2)
	event := func(typ string, partition, n int) envelope.Message {
		key := keys[partition]
		for i := 0; typ == "Unknown" && (key == keys[partition] || s.partitionOf(key, 2) != partition); i++ {
			key = fmt.Sprintf("other-%d", i)
		}
		m := s.command(key, Count{})
		m.Topic, m.Type, m.Payload, m.IdempotencyKey = from.Events(), typ, marshal(Counted{N: n}), ""
		return m
	}
	var works, done atomic.Bool
	var shut, passed sync.Once
	isShut, isPassed := make(chan struct{}), make(chan struct{})
	holder := newBlocker()
	p := s.new(func(c *participant.Config) {
		c.Timeout = time.Hour
		c.Hooks.Breaker = func(participant.Breaker) { shut.Do(func() { close(isShut) }) }
		c.Hooks.Passed = func(participant.Passed) { passed.Do(func() { close(isPassed) }) }
	})
	participant.On(p, from, func(ctx context.Context, _ pgx.Tx, e participant.Event[Counted]) error {
		switch {
		case e.Body.N == 2:
			return holder.run(ctx)
		case !works.Load():
			return retry.Unavailable("the bank", errAsked)
		}
		done.Store(true)
		return nil
	}, participant.ConcurrencyLimit("the bank", 1))
	s.start(p)
	s.send(event("Counted", 0, 1))
	<-isShut
	s.send(event("Counted", 1, 2))
	<-holder.began
	s.send(event("Unknown", 0, 3))
	<-isPassed
	works.Store(true)
	close(holder.goes)
	waitFor(t, "the message that failed to run again", done.Load)
}

// TestACompensationNeedsNoPermitOfTheCommandThatItCancels checks a held command whose handler has a rate limit: its compensation, which takes
// its place, runs at once.
func TestACompensationNeedsNoPermitOfTheCommandThatItCancels(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition, holdLong)
	participant.Handle(p, func(context.Context, pgx.Tx, participant.Command[Count]) (participant.Outcome, error) {
		return participant.Outcome{}, errAsked
	}, participant.RateLimit(1, 24*time.Hour))
	participant.Handle(p, undo)
	s.provision(1)
	s.start(p)
	first, back := s.command("a", Count{N: 1}), ofType("Undo", s.command("a", Count{N: 1}))
	for m, operation := range map[*envelope.Message]string{&first: "forward", &back: "compensate"} {
		m.SagaID, m.SagaStep, m.SagaOperation = "s", "charge", operation
	}
	s.send(first)
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts = 1")
	s.exec("UPDATE troupe.rate_limits SET next_start = clock_timestamp()") // another permit
	s.due()
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts = 2")
	s.send(back)
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = -1")
	s.waitCount(0, "SELECT count(*) FROM troupe.held")
	limitedKeys(t, p, 0)
}

// TestAMessageBehindALimitedOneNeedsNoPermitOfIt checks held messages of one key: the one behind a message whose handler has a rate limit is of
// a handler without limits, and runs as soon as that message has ended.
func TestAMessageBehindALimitedOneNeedsNoPermitOfIt(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 10} {
		t.Run(fmt.Sprint("batch ", batch), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			p := s.new(onePartition, holdLong, func(c *participant.Config) { c.Batch = batch })
			var works atomic.Bool
			participant.Handle(p, func(_ context.Context, _ pgx.Tx, c participant.Command[Plainly]) (participant.Outcome, error) {
				if !works.Load() {
					return participant.Outcome{}, errAsked
				}
				return participant.Succeed(Counted{N: c.Body.N}), nil
			})
			participant.Handle(p, count, participant.RateLimit(1, 24*time.Hour))
			participant.Handle(p, undo)
			s.provision(1)
			s.start(p)
			s.send(s.plainly("a", 1), s.command("a", Count{N: 2}), ofType("Undo", s.command("a", Count{N: 3})))
			s.waitCount(3, "SELECT count(*) FROM troupe.held")
			works.Store(true)
			s.due()
			s.waitCount(1, "SELECT count(*) FROM done WHERE n = 2")
			s.waitCount(1, "SELECT count(*) FROM done WHERE n = -3")
			s.waitCount(0, "SELECT count(*) FROM troupe.held")
			limitedKeys(t, p, 0)
		})
	}
}
