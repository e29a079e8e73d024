package participant_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestAMessageThatKillsItsProcessIsPoison_Defect5: the first crash is nobody's fault; after five more behind its mark the
// message is a dead letter, and what came with it has its effect once.
func TestAMessageThatKillsItsProcessIsPoison_Defect5(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.batch = 10
	s.provision(1)
	s.send(s.command("a", Count{N: 1}), s.command("b", Count{N: 1, Fail: "kill"}), s.command("c", Count{N: 1}),
		s.command("b", Count{N: 2}), s.command("a", Count{N: 2}))
	for range 6 {
		s.member("", 0).killed(t)
	}
	last := s.member("", 0)
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'poison' AND error = 'the process ended 5 times while this message ran'")
	s.waitCount(4, "SELECT count(*) FROM done")
	require.Equal(t, 1, s.count("SELECT count(*) FROM counters WHERE key = 'b' AND total = 1"))
	s.waitCount(0, "SELECT count(*) FROM troupe.started")
	last.terminate(t)
}

// TestWhatIsAwayIsNoCrash: a held message after a crash, whose bank is away more often than a message may end its
// process, is no poison.
func TestWhatIsAwayIsNoCrash(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var tries atomic.Int32
	p := s.new(onePartition, func(c *participant.Config) { c.Immediate = -1 })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		switch n := tries.Add(1); {
		case n == 1:
			return participant.Outcome{}, errAsked
		case n < 12:
			return participant.Outcome{}, participant.Unavailable("the bank", errAsked)
		}
		return count(ctx, tx, c)
	})
	s.provision(1)
	_, err := s.pool.Exec(t.Context(), `
		INSERT INTO troupe.leases (consumer_group, topic, partition, owner) VALUES ($1, $2, 0, 'one that crashed')`,
		s.hop.String(), s.hop.Commands())
	require.NoError(t, err)
	s.send(s.command("a", Count{N: 1}))
	s.start(p)
	s.waitCount(1, "SELECT count(*) FROM done")
	s.waitCount(0, "SELECT count(*) FROM troupe.started")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
}
