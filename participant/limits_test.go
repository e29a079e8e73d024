package participant_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// Freely is a command of a handler with other limits.
type Freely struct{ N int }

func (s *stage) freely(key string, n int) envelope.Message {
	m := s.command(key, Count{N: n})
	m.Type = "Freely"
	return m
}

// clocked is a service that records when it was called, by the key of the command.
type clocked struct {
	mu    sync.Mutex
	at    []time.Time
	order map[string][]int
}

func (s *clocked) call(_ context.Context, c participant.Command[Count]) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Now())
	if s.order == nil {
		s.order = make(map[string][]int)
	}
	key := string(c.Message.Key)
	s.order[key] = append(s.order[key], c.Body.N)
	return c.Body.N, nil
}

func (s *clocked) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

func decideCounted(_ context.Context, _ pgx.Tx, _ participant.Command[Count], n int) (participant.Outcome, error) {
	return participant.Succeed(Counted{N: n}), nil
}

// most returns the largest number of moments within a time of length per.
func most(at []time.Time, per time.Duration) (n int) {
	first := 0
	for i := range at {
		for at[i].Sub(at[first]) >= per {
			first++
		}
		n = max(n, i-first+1)
	}
	return n
}

func TestARateLimitMayBeAnyNumber(t *testing.T) {
	t.Parallel()
	for _, n := range []int{math.MaxInt, math.MaxInt32 + 1, math.MaxInt32} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			p := s.new(onePartition)
			participant.Call(p, new(clocked).call, decideCounted, participant.RateLimit(n, time.Second))
			s.start(p)
			s.send(s.command("a", Count{N: 1}), s.command("b", Count{N: 1}), s.command("a", Count{N: 2}))
			s.waitEvents(3)
		})
	}
}

// TestARateLimitHoldsOverAllMembers has two members handle messages of many keys. No time of the limit's length has more calls than the
// limit allows, the keys are in order, no attempt is counted, and messages of another handler do not wait.
func TestARateLimitHoldsOverAllMembers(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(4)
	const n, per, messages = 20, time.Second, 60
	service := new(clocked)
	var failed sync.Map
	for range 2 {
		p := s.new(func(c *participant.Config) {
			c.Partitions, c.Batch = 4, 10
			c.Hooks.Failed = func(d participant.Delivery) { failed.Store(d.Message.ID, d.Err) }
		})
		participant.Call(p, service.call, decideCounted, participant.RateLimit(n, per))
		participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Freely]) (participant.Outcome, error) {
			return participant.Succeed(Counted{N: c.Body.N}), nil
		})
		s.start(p)
	}
	var all []envelope.Message
	for i := range messages {
		all = append(all, s.command(fmt.Sprintf("k-%d", i%20), Count{N: i + 1}))
	}
	s.send(all...)
	s.send(s.freely("free", 1000))
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE key = 'free'")
	require.Less(t, service.calls(), messages, "the other handler does not wait")
	s.waitCount(messages+1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Events())
	require.Zero(t, s.count("SELECT count(*) FROM troupe.held"))
	failed.Range(func(id, err any) bool { t.Errorf("%s failed: %v", id, err); return true })
	require.Equal(t, messages, service.calls())
	for key, ns := range service.order {
		require.IsIncreasing(t, ns, key)
	}
	// Between a permit and its call are a transaction and this machine's other work: calls may come closer together than permits.
	t.Logf("at most %d calls in %s", most(service.at, per), per)
	first, last := service.at[0], service.at[len(service.at)-1]
	require.Greater(t, last.Sub(first), (messages-1-n)*per/n, "the whole takes as long as the limit says")
}

// TestAMessageThatWaitsForItsRateIsVisible uses a limit that lets one message run.
func TestAMessageThatWaitsForItsRateIsVisible(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	service := new(clocked)
	p := s.new(onePartition)
	p.Patience(time.Millisecond)
	participant.Call(p, service.call, decideCounted, participant.RateLimit(1, time.Hour))
	s.send(s.command("a", Count{N: 1}), s.command("b", Count{N: 2}), s.command("a", Count{N: 3}), s.command("c", Count{N: 4}))
	stop := s.start(p)
	testkit.Wait(t, "keys that wait for the limit", func() (bool, error) {
		for _, part := range p.Stats().Partitions {
			if part.Limited == 3 && !part.LimitedSince.IsZero() {
				return true, nil
			}
		}
		return false, nil
	})
	s.waitEvents(1)
	require.Equal(t, 1, service.calls())
	testkit.Wait(t, "readiness: a limit is no stall", func() (bool, error) { return p.Ready() == nil, nil }) // the fetch may have been one
	s.waitCount(1, "SELECT count(*) FROM troupe.rate_limits WHERE waiting_since IS NOT NULL AND calls = 1 AND span = '1 hour'")
	stop()
	require.Zero(t, s.count("SELECT count(*) FROM troupe.held"))

	// A member that comes later continues with the limit of the first one. A row that is further ahead than it can be is of a clock that
	// was set back.
	s.exec("UPDATE troupe.rate_limits SET next_start = clock_timestamp() + interval '30 days'")
	p = s.new(onePartition)
	participant.Call(p, service.call, decideCounted, participant.RateLimit(1, time.Hour))
	s.start(p)
	s.waitEvents(2)
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.rate_limits WHERE next_start BETWEEN clock_timestamp() + interval '59 min' AND clock_timestamp() + interval '61 min'"))
}

// TestEachTryNeedsAPermit fails each message twice: its tries wait for the limit in troupe.held, in order per key, and other held keys
// do not wait for them.
func TestEachTryNeedsAPermit(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	service := new(clocked)
	var mu sync.Mutex
	tries := make(map[int][]int)
	p := s.new(onePartition, func(c *participant.Config) { c.Retry.Attempts = 5 })
	participant.Call(p, func(ctx context.Context, c participant.Command[Count]) (int, error) {
		n, _ := service.call(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		tries[n] = append(tries[n], c.Attempt)
		if c.Attempt < 3 {
			return 0, errors.New("not yet")
		}
		return n, nil
	}, decideCounted, participant.RateLimit(10, time.Second))
	var all []envelope.Message
	for i := range 6 {
		all = append(all, s.command(fmt.Sprintf("k-%d", i%3), Count{N: i + 1}))
	}
	s.send(all...)
	s.start(p)
	s.waitEvents(6)
	mu.Lock()
	defer mu.Unlock()
	for n := range 6 {
		require.Equal(t, []int{1, 2, 3}, tries[n+1])
	}
	require.Greater(t, service.at[17].Sub(service.at[0]), 7*time.Second/10)
}

// TestAConcurrencyLimitHoldsOverHandlers has two handlers of one dependency.
func TestAConcurrencyLimitHoldsOverHandlers(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(4)
	var mu sync.Mutex
	active, top := 0, 0
	gate := make(chan struct{})
	enter := func(ctx context.Context, fail bool) error {
		mu.Lock()
		active++
		top = max(top, active)
		mu.Unlock()
		select {
		case <-gate:
		case <-ctx.Done():
		}
		mu.Lock()
		defer mu.Unlock()
		active--
		if fail {
			return errors.New("not yet")
		}
		return ctx.Err()
	}
	p := s.new(func(c *participant.Config) { c.Partitions, c.Concurrency, c.Batch = 4, 10, 5 })
	participant.Call(p, func(ctx context.Context, c participant.Command[Count]) (int, error) {
		return c.Body.N, enter(ctx, c.Body.N == 3 && c.Attempt == 1)
	}, decideCounted, participant.ConcurrencyLimit("the bank", 2))
	participant.Handle(p, func(ctx context.Context, _ pgx.Tx, c participant.Command[Freely]) (participant.Outcome, error) {
		return participant.Succeed(Counted{N: c.Body.N}), enter(ctx, false)
	}, participant.ConcurrencyLimit("the bank", 3))
	var all []envelope.Message
	for i := range 11 {
		all = append(all, s.command(fmt.Sprintf("k-%d", i), Count{N: i + 1}), s.freely(fmt.Sprintf("l-%d", i), i+1))
	}
	s.send(all...)
	s.start(p)
	testkit.Wait(t, "two runs, and others that wait", func() (bool, error) {
		waiting := 0
		for _, part := range p.Stats().Partitions {
			waiting += part.Limited
		}
		mu.Lock()
		defer mu.Unlock()
		return active == 2 && waiting == 20, nil
	})
	close(gate)
	s.waitEvents(22)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, 2, top)
}

func TestMistakenLimits(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]participant.HandlerOption{
		"no run":        participant.RateLimit(0, time.Second),
		"a short time":  participant.RateLimit(1, time.Millisecond),
		"a long time":   participant.RateLimit(1, 25*time.Hour),
		"no slot":       participant.ConcurrencyLimit("the bank", 0),
		"no dependency": participant.ConcurrencyLimit("", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			p := s.new(onePartition)
			participant.Call(p, new(clocked).call, decideCounted, o)
			require.ErrorContains(t, p.Run(t.Context()), "limit")
		})
	}
	s := newLocalStage(t)
	p := s.new()
	participant.Call(p, new(clocked).call, decideCounted, participant.RateLimit(1, time.Second))
	require.ErrorContains(t, p.Run(t.Context()), "which local work has not")
}

// TestPermitsAreSpacedForAnyTimeOfTheLimit has three members claim permits at once, and one of them pause. However late each permit is
// used, no time of the limit's length has more than n.
func TestPermitsAreSpacedForAnyTimeOfTheLimit(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const n, per = 200, time.Second
	p := s.new()
	var mu sync.Mutex
	var permits [][2]time.Time
	var members sync.WaitGroup
	until := time.Now().Add(3 * time.Second)
	for i := range 3 {
		members.Go(func() {
			c := participant.NewRateClaimer(p, "bank", n, per)
			for k := 0; time.Now().Before(until); k++ {
				got, wait, err := c.Claim(t.Context(), 1+(i+1)*(k%20))
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				mu.Lock()
				permits = append(permits, got...)
				mu.Unlock()
				timer := time.NewTimer(wait)
				select {
				case <-timer.C:
				case <-t.Context().Done():
				}
			}
		})
	}
	members.Wait()
	require.Greater(t, len(permits), n, "the limit is used")
	requireAtMost(t, n, per, permits)
}

// TestTheHigherLimitHoldsWhileVersionsHaveDifferentOnes has a member with a limit and one with a lower one claim permits, as in a rolling
// deploy. Each of them gets some.
func TestTheHigherLimitHoldsWhileVersionsHaveDifferentOnes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new()
	type limit struct {
		n   int
		per time.Duration
	}
	for _, limits := range [][2]limit{ // the higher one first
		{{10, time.Second}, {2, time.Second}}, {{100, time.Second}, {90, time.Second}}, {{5, time.Second}, {100, time.Minute}},
	} {
		var mu sync.Mutex
		var permits [][2]time.Time
		var members sync.WaitGroup
		until := time.Now().Add(3 * time.Second)
		for _, l := range limits {
			members.Go(func() {
				c := participant.NewRateClaimer(p, fmt.Sprint("bank ", limits), l.n, l.per)
				all := 0
				for k := 0; all == 0 || time.Now().Before(until); k++ {
					got, wait, err := c.Claim(t.Context(), 1+k%8)
					if err != nil {
						t.Errorf("claim: %v", err)
						return
					}
					all += len(got)
					mu.Lock()
					permits = append(permits, got...)
					mu.Unlock()
					timer := time.NewTimer(wait)
					select {
					case <-timer.C:
					case <-t.Context().Done():
						return
					}
				}
			})
		}
		members.Wait()
		requireAtMost(t, limits[0].n, limits[0].per, permits)
	}
}

// requireAtMost checks that no time of the length per has more than n of the permits, however late each of them is used.
func requireAtMost(t *testing.T, n int, per time.Duration, permits [][2]time.Time) {
	t.Helper()
	begins, ends := make([]time.Time, len(permits)), make([]time.Time, len(permits))
	for i, p := range permits {
		begins[i], ends[i] = p[0], p[1]
	}
	slices.SortFunc(begins, time.Time.Compare)
	slices.SortFunc(ends, time.Time.Compare)
	// All permits that can be used in [from, from+per): they end after from and begin before from+per. The worst case is right before an end.
	for _, end := range ends {
		from := end.Add(-1)
		began := sort.Search(len(begins), func(i int) bool { return !begins[i].Before(from.Add(per)) })
		over := sort.Search(len(ends), func(i int) bool { return ends[i].After(from) })
		require.LessOrEqual(t, began-over, n)
	}
}
