package participant_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
)

// failsOnce calls count, but the first attempt of each message that asks for it fails.
func failsOnce(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
	if c.Body.Fail == "once" && c.Attempt == 1 {
		return participant.Outcome{}, errAsked
	}
	return count(ctx, tx, c)
}

// TestHeldKeyDrainsWithoutWaitingForTheTick checks that each success makes the next message of the key due, without a timer.
func TestHeldKeyDrainsWithoutWaitingForTheTick(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 10} {
		s := newStage(t)
		p := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Concurrency = batch, 1 })
		p.Tick(time.Hour)
		participant.Handle(p, failsOnce)
		s.provision(1)
		var all []envelope.Message
		for n := range 40 {
			c := Count{N: n}
			if n == 0 || n == 25 { // the first one, and one behind others that wait
				c.Fail = "once"
			}
			all = append(all, s.command("a", c))
		}
		s.send(all...)
		s.start(p)
		s.waitCount(40, "SELECT count(*) FROM done")
		s.waitCount(0, "SELECT count(*) FROM troupe.held")
		require.Zero(t, s.count(`
			SELECT count(*) FROM (SELECT n, lag(n, 1, -1) OVER (ORDER BY position) AS before FROM done) AS d
			WHERE n <> before + 1`), "out of order within a key")
	}
}

// TestHeldMessagesOfAKeyShareATransaction checks that they share one as without a failure; the one that fails among them is
// found, and counts an attempt for itself only.
func TestHeldMessagesOfAKeyShareATransaction(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var mended atomic.Bool
	p := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Immediate, c.Retry.Attempts = 10, -1, 1<<20 })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if c.Body.N == 0 && !mended.Load() {
			return participant.Outcome{}, errAsked
		}
		return count(ctx, tx, c)
	})
	s.provision(1)
	s.start(p)
	var all []envelope.Message
	for n := range 31 {
		c := Count{N: n}
		if n == 15 {
			c.Fail = "permanent"
		}
		all = append(all, s.command("a", c))
	}
	s.send(all...)
	s.waitCount(31, "SELECT count(*) FROM troupe.held")
	mended.Store(true)
	s.waitCount(0, "SELECT count(*) FROM troupe.held")
	require.Equal(t, 30, s.count("SELECT count(*) FROM done"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters WHERE attempts = 1"))
	require.Zero(t, s.count("SELECT count(*) FROM (SELECT n, lag(n, 1, -1) OVER (ORDER BY position) AS before FROM done) AS d WHERE n <= before"))
	require.LessOrEqual(t, s.count("SELECT count(DISTINCT xmin::text) FROM done"), 6, "transactions")
}

// BenchmarkHeldKeyDrain empties a key behind a message that failed: read, inbox row, two writes, one answer, commit. An
// operation is 1,000 messages.
func BenchmarkHeldKeyDrain(b *testing.B) {
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			const each = 1000
			s := newStage(b)
			s.provision(1)
			var mended, handled atomic.Int64 // how many of the first messages succeed, and how many have in all
			drained := make(chan struct{}, 1)
			p := s.new(onePartition, func(c *participant.Config) {
				c.Log, c.Batch, c.Retry.Attempts = zerolog.Nop(), batch, 1_000_000
				c.Hooks.AfterCommit = func(participant.Delivery) {
					if handled.Add(1)%each == 0 {
						drained <- struct{}{}
					}
				}
			})
			participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
				if c.Body.Fail == "until mended" && mended.Load() < int64(c.Body.N) {
					return participant.Outcome{}, errAsked
				}
				return count(ctx, tx, c)
			})
			s.start(p)
			b.ResetTimer()
			for n := 1; n <= b.N; n++ {
				b.StopTimer()
				all := []envelope.Message{s.command("hot", Count{N: n, Fail: "until mended"})}
				for len(all) < each {
					all = append(all, s.command("hot", Count{N: n}))
				}
				s.send(all...)
				s.waitAll("held", each, func() int { return s.count("SELECT count(*) FROM troupe.held") })
				b.StartTimer()
				mended.Store(int64(n))
				<-drained
			}
			b.ReportMetric(float64(b.N*each)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// BenchmarkHotKeyRecovers sends a hundred messages a second to a key, of which one fails, and as many to other keys. An
// operation is one failure, 500 messages into 1,000; the reported metric is how long the key was held.
func BenchmarkHotKeyRecovers(b *testing.B) {
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			s := newStage(b)
			s.provision(1)
			p := s.new(onePartition, func(c *participant.Config) { c.Log, c.Batch = zerolog.Nop(), batch })
			participant.Handle(p, failsOnce)
			s.start(p)
			var held time.Duration
			for n := 1; n <= b.N; n++ {
				recovered := make(chan time.Duration)
				tick := time.NewTicker(10 * time.Millisecond)
				for i := range 1000 {
					c := Count{N: i}
					if i == 500 {
						c.Fail = "once"
					}
					s.send(s.command("hot", c), s.command(fmt.Sprint("k-", i), Count{}))
					if i == 500 {
						began := time.Now()
						go func() { // the key may be held for less time than a query of the table takes
							s.waitAll("recovered", n, func() int {
								return s.count("SELECT count(*) FROM done WHERE n = 500 AND NOT EXISTS (SELECT FROM troupe.held)")
							})
							recovered <- time.Since(began)
						}()
					}
					<-tick.C
				}
				tick.Stop()
				held += <-recovered
				s.waitAll("done", n*2000, func() int { return s.count("SELECT count(*) FROM done") })
			}
			b.ReportMetric(held.Seconds()/float64(b.N), "s-held/failure")
		})
	}
}
