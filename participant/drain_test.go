package participant_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// blocking is a handler that says when it runs and goes on when it may.
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

// run is Run, to be waited for.
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

func TestWhatRunsIsFinishedAtTheEnd(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newBlocking()
	p := s.new(onePartition)
	participant.Handle(p, b.count)
	s.provision(1)
	stop, ended := s.run(p)
	s.send(s.command("a", Count{N: 1}), s.command("a", Count{N: 2}))
	<-b.runs
	stop()
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
	runs, may := make(chan struct{}), make(chan struct{})
	p := s.new(onePartition, func(c *participant.Config) { c.Timeout, c.Drain = 50*time.Millisecond, -1 })
	participant.Handle(p, func(_ context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		close(runs)
		<-may // and not ctx
		return count(context.Background(), tx, c)
	})
	s.provision(1)
	stop, ended := s.run(p)
	s.send(s.command("a", Count{N: 1}))
	<-runs
	require.NoError(t, p.Ready())
	testkit.Wait(t, "not ready", func() (bool, error) { return p.Ready() != nil, nil })
	require.ErrorContains(t, p.Ready(), "ignores its time-out")
	stop()
	require.ErrorContains(t, <-ended, "still run")
	close(may)
	testkit.Wait(t, "its connection given back", func() (bool, error) { return s.pool.Stat().AcquiredConns() == 0, nil })
	require.Zero(t, s.count("SELECT count(*) FROM done"), "it must not commit any more")
}

// TestAPartitionThatIsBusyFetchesNoMore and holds up no other.
func TestAPartitionThatIsBusyFetchesNoMore(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newBlocking()
	p := s.new()
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
		s.produce(s.records("a", many/15, strings.Repeat("x", 2000))...)
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
