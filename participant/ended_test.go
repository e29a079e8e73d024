package participant_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestOnlyMessagesOfAnEndedTransactionBecomeDeadLetters lets the database go away before the dead letter is written: when it is
// back, messages that came meanwhile are in the same batch.
func TestOnlyMessagesOfAnEndedTransactionBecomeDeadLetters(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	n := &network{}
	pool := s.through(n)
	p := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Pool = 100, pool })
	var began atomic.Bool
	hold := make(chan struct{})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if c.Body.N > 1 {
			return count(ctx, tx, c)
		}
		began.Store(true)
		<-hold
		_, err := tx.Conn().Exec(ctx, "ROLLBACK")
		n.set(true)
		return participant.Succeed(Counted{}), err
	})
	s.start(p)
	s.send(s.command("a", Count{N: 1}))
	waitFor(t, "the first", began.Load)
	for i := range 6 {
		s.send(s.command("a", Count{N: i + 2}))
	}
	waitFor(t, "the others to wait", func() bool { return p.Backlog() >= 6 })
	close(hold)
	waitFor(t, "the outage to be noticed", func() bool { return p.Ready() != nil })
	n.mend()
	s.waitCount(7, "SELECT (SELECT count(*) FROM done) + (SELECT count(*) FROM troupe.dead_letters)")
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters"))
}
