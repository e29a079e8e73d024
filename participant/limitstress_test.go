package participant_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
)

// TestLimitsUnderStress has members come and go while messages of many keys wait for small limits, and handlers fail in many ways. Each
// message takes effect once, in the order of its key, and no member has more active runs of a dependency than its limit.
func TestLimitsUnderStress(t *testing.T) {
	t.Parallel()
	const keys, each, slots = 40, 15, 3
	s := newStage(t)
	s.provision(6)
	var mu sync.Mutex
	var calls []time.Time
	fail := func(what string) error {
		switch rand.IntN(60) {
		case 0, 1, 2:
			return errors.New(what + " is moody")
		case 3:
			panic("as asked")
		case 4:
			runtime.Goexit()
		case 5:
			return retry.RateLimited(errAsked, time.Second)
		case 6:
			return retry.Unavailable(what, errAsked)
		case 7:
			return context.Canceled
		}
		return nil
	}
	store := func(ctx context.Context, tx pgx.Tx, key string, n int) error {
		_, err := tx.Exec(ctx, "INSERT INTO done (key, n, attempt) VALUES ($1, $2, 1)", key, n)
		return err
	}
	member := func() (leave func()) {
		var active atomic.Int32
		enter := func() (end func()) {
			if n := active.Add(1); n > slots {
				t.Errorf("%d runs are active", n)
			}
			runtime.Gosched()
			return func() { active.Add(-1) }
		}
		p := s.new(func(c *participant.Config) {
			c.Partitions, c.Batch, c.Concurrency = 6, 1+rand.IntN(20), 4
			c.Retry.Attempts, c.Log = 1000, testkit.Logger(t)
		})
		participant.Call(p, func(_ context.Context, c participant.Command[Count]) (int, error) {
			defer enter()()
			mu.Lock()
			calls = append(calls, time.Now())
			mu.Unlock()
			return c.Body.N, fail("the bank")
		}, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count], n int) (participant.Outcome, error) {
			return participant.Succeed(Counted{N: n}), errors.Join(store(ctx, tx, string(c.Message.Key), n), fail("the desk"))
		}, participant.RateLimit(6000, time.Minute), participant.ConcurrencyLimit("the bank", slots))
		participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Freely]) (participant.Outcome, error) {
			defer enter()()
			return participant.Succeed(Counted{N: c.Body.N}), errors.Join(store(ctx, tx, string(c.Message.Key), c.Body.N), fail("the bank"))
		}, participant.ConcurrencyLimit("the bank", slots))
		participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Plainly]) (participant.Outcome, error) {
			return participant.Succeed(Counted{N: c.Body.N}), errors.Join(store(ctx, tx, string(c.Message.Key), c.Body.N), fail("the desk"))
		})
		return s.start(p)
	}
	var all []envelope.Message
	for n := range each {
		for k := range keys {
			key := fmt.Sprintf("k-%d", k)
			switch rand.IntN(3) {
			case 0:
				all = append(all, s.command(key, Count{N: n + 1}))
			case 1:
				all = append(all, s.freely(key, n+1))
			case 2:
				all = append(all, s.plainly(key, n+1))
			}
		}
	}
	leaves := []func(){member(), member()}
	done := func() int { return s.count("SELECT count(*) FROM done") }
	for i := 0; len(all) > 0; i++ {
		n := min(len(all), 100)
		s.send(all[:n]...)
		all = all[n:]
		before := done()
		s.waitAll("effects", before+20, done)
		leaves = append(leaves, member())
		leaves[0]()
		leaves = leaves[1:]
	}
	s.waitAll("effects", keys*each, done)
	s.waitCount(0, "SELECT count(*) FROM troupe.held")
	for _, leave := range leaves {
		leave()
	}
	require.Equal(t, keys*each, done())
	require.Equal(t, keys*each, s.count("SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Events()))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
	require.Zero(t, s.count(`
		SELECT count(*) FROM (SELECT n, lag(n, 1, 0) OVER (PARTITION BY key ORDER BY position) AS before FROM done) AS d
		WHERE n <> before + 1`), "out of order within a key")
	t.Logf("%d calls, at most %d in a second", len(calls), most(calls, time.Second))
}
