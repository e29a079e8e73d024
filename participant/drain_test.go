package participant_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// blocking has a handler that reports when it runs and continues when it may.
type blocking struct{ runs, may chan struct{} }

func newBlocking() *blocking { return &blocking{make(chan struct{}, 100), make(chan struct{})} }

func (b *blocking) count(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
	outcome, err := count(ctx, tx, c)
	b.runs <- struct{}{}
	select {
	case <-b.may:
	case <-ctx.Done():
		return participant.Outcome{}, ctx.Err()
	}
	return outcome, err
}

// run calls Run in the background.
func (s *stage) run(p *participant.Participant) (stop func(), ended <-chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		result <- p.Run(ctx)
	}()
	s.t.Cleanup(func() {
		cancel()
		<-done
	})
	return cancel, result
}

func TestRunningHandlersAreFinishedAtShutdown(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newBlocking()
	p := s.new(onePartition, func(c *participant.Config) { c.Drain = time.Minute })
	participant.Handle(p, b.count)
	s.provision(1)
	stop, ended := s.run(p)
	s.send(s.command("a", Count{N: 1}), s.command("a", Count{N: 2}))
	<-b.runs
	stop()
	waitFor(t, "the end has begun", func() bool { return p.Assigned() == 0 })
	select {
	case <-ended:
		t.Fatal("Run did not wait for the handler")
	case <-time.After(100 * time.Millisecond):
	}
	close(b.may)
	require.NoError(t, <-ended)
	require.Equal(t, 1, s.count("SELECT count(*) FROM done"), "nothing new was begun")
	require.ErrorContains(t, p.Ready(), "not running")
	require.EqualValues(t, 1, s.committed(0), "the offset was committed")
	require.ErrorContains(t, p.Run(t.Context()), "called before")
}

func TestDrainEndsWhatTakesTooLong(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newBlocking()
	p := s.new(onePartition, onlyOnce, func(c *participant.Config) { c.Drain = 50 * time.Millisecond })
	participant.Handle(p, b.count)
	s.provision(1)
	stop, ended := s.run(p)
	s.send(s.command("a", Count{N: 1}))
	<-b.runs
	stop()
	require.NoError(t, <-ended)
	require.Zero(t, s.count("SELECT count(*) FROM done"), "rolled back")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"), "and not counted")
	next := s.new(onePartition)
	participant.Handle(next, count)
	s.start(next)
	s.waitCount(1, "SELECT count(*) FROM done")
}

func TestAWedgedHandlerIsReported(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const limit = 500 * time.Millisecond
	runs, may := make(chan time.Time, 1), make(chan struct{})
	p := s.new(onePartition, func(c *participant.Config) { c.Timeout, c.Drain = limit, -1 })
	participant.Handle(p, func(_ context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		runs <- time.Now()
		<-may // and not ctx
		return count(context.Background(), tx, c)
	})
	s.provision(1)
	stop, ended := s.run(p)
	s.send(s.command("a", Count{N: 1}))
	began := <-runs
	if ready := p.Ready(); time.Since(began) < limit { // or the answer came too late to be of use
		require.NoError(t, ready)
	}
	s.waitWedged(p)
	stop()
	require.ErrorContains(t, <-ended, "still run")
	close(may)
	testkit.Wait(t, "its connection given back", func() (bool, error) { return s.pool.Stat().AcquiredConns() == 0, nil })
	require.Zero(t, s.count("SELECT count(*) FROM done"), "it must not commit any more")
}

// waitWedged waits until p reports that a handler does not end: while it waits for that handler, and when it has ended.
func (s *stage) waitWedged(p *participant.Participant) {
	s.t.Helper()
	testkit.Wait(s.t, "not ready for the handler's sake", func() (bool, error) {
		why := fmt.Sprint(p.Ready())
		if !strings.Contains(why, "ignores its time-out") {
			return false, errors.New(why)
		}
		return true, nil
	})
}

// TestAPartitionThatIsBusyFetchesNoMore checks also that it does not delay another partition.
func TestAPartitionThatIsBusyFetchesNoMore(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newBlocking()
	// The blocking handler must not reach its time-out: then its key would be held, and all later messages of it.
	p := s.new(func(c *participant.Config) { c.Batch, c.Timeout = 50, 10*time.Minute })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if c.Body.Fail == "block" {
			return b.count(ctx, tx, c)
		}
		return count(ctx, tx, c)
	})
	s.provision(2)
	s.start(p)
	s.send(s.command("a", Count{N: 1, Fail: "block"}))
	<-b.runs
	const many = 1500 // of 2 KB: 1 MiB may wait and one fetch
	for range 15 {
		var records []*kgo.Record
		for range many / 15 {
			records = append(records, s.records("a", 1, incompressible(2000))...)
		}
		s.produce(records...)
	}
	for n := range 20 { // keys on both partitions
		s.send(s.command("b"+string(rune('a'+n)), Count{N: 1}))
	}
	testkit.Wait(t, "the other partition", func() (bool, error) { return s.count("SELECT count(*) FROM done") > 5, nil })
	require.Less(t, p.Backlog(), 1000)
	close(b.may)
	s.waitCount(many+1, "SELECT count(*) FROM done WHERE key = 'a'")
	testkit.Wait(t, "nothing waits", func() (bool, error) { return p.Backlog() == 0, nil })
}

// incompressible returns text of n bytes that a batch cannot compress: else one fetch could bring all messages.
func incompressible(n int) string {
	b := make([]byte, n/2)
	fill(b)
	return hex.EncodeToString(b)
}
