package participant_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// TestWhatIsAwayPausesItsPartition: no attempt is burnt, nothing else begins, one message tries, and all goes on.
func TestWhatIsAwayPausesItsPartition(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var away atomic.Bool
	away.Store(true)
	var tries, running, most atomic.Int32
	p := s.new(onePartition, onlyOnce, func(c *participant.Config) { c.Concurrency = 3 })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if away.Load() {
			tries.Add(1)
			return participant.Outcome{}, participant.Unavailable("the bank", errAsked)
		}
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer running.Add(-1)
		return count(ctx, tx, c)
	})
	s.provision(1)
	s.send(s.commands(10, 5)...)
	s.start(p)
	testkit.Wait(t, "tries", func() (bool, error) { return tries.Load() > 10, nil })
	require.ErrorContains(t, p.Ready(), "waits for the bank since")
	require.ErrorIs(t, p.Ready(), errAsked)
	require.Zero(t, s.count("SELECT count(*) FROM troupe.held"))
	away.Store(false)
	s.expectAll(10, 5)
	testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, nil })
}

// TestACompensationOvertakesItsHeldForwardCommand: what it undoes must not be done any more; another step's command
// keeps its place.
func TestACompensationOvertakesItsHeldForwardCommand(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition, func(c *participant.Config) { c.Retry.Attempts, c.Retry.Initial, c.Retry.Cap = 1000, 3600e9, 3600e9 })
	participant.Handle(p, count)
	s.provision(1)
	s.start(p)
	forward, other, undo := s.command("a", Count{N: 1, Fail: "error"}), s.command("a", Count{N: 2}), s.command("a", Count{N: 3})
	forward.SagaID, forward.SagaStep, forward.SagaOperation = "s", "charge", "forward"
	other.SagaID, other.SagaStep, other.SagaOperation = "s", "book", "forward"
	undo.SagaID, undo.SagaStep, undo.SagaOperation = "s", "charge", "compensate"
	s.send(forward, other)
	s.waitCount(2, "SELECT count(*) FROM troupe.held")
	s.send(undo)
	s.waitCount(0, "SELECT count(*) FROM troupe.held")
	require.Equal(t, 2, s.count("SELECT count(*) FROM done"))
	require.Equal(t, 3, s.count("SELECT n FROM done ORDER BY position DESC LIMIT 1"), "behind what came before it")
	s.send(forward, s.command("a", Count{N: 4}))
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 4")
	require.Zero(t, s.count("SELECT count(*) FROM done WHERE n = 1"), "a forward call after its compensation does nothing")
}
