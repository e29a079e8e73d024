package participant_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
)

// TestOtherKeysGoOnWhileManyHeldKeysAreAlwaysDue holds more keys than a partition keeps messages in memory. Each fails again as soon as
// it is tried.
func TestOtherKeysGoOnWhileManyHeldKeysAreAlwaysDue(t *testing.T) {
	t.Parallel()
	const keys = 700
	s := newStage(t)
	s.provision(1)
	p := s.new(onePartition, func(c *participant.Config) {
		c.Immediate = -1
		c.Retry = retry.Policy{Initial: time.Millisecond, Cap: time.Millisecond, NoJitter: true, Attempts: 1 << 20}
	})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if strings.HasPrefix(string(c.Message.Key), "broken") {
			return participant.Outcome{}, errAsked
		}
		return count(ctx, tx, c)
	})
	s.start(p)
	var all []envelope.Message
	for n := range keys {
		all = append(all, s.command(fmt.Sprintf("broken %d", n), Count{}))
	}
	s.send(all...)
	s.waitAll("held keys", keys, func() int { return s.count("SELECT count(*) FROM troupe.held") })
	for n := range 3 {
		s.send(s.command("a", Count{N: n + 1}))
		s.waitCount(n+1, "SELECT count(*) FROM done")
	}
	s.waitAll("keys that were tried again", keys, func() int { return s.count("SELECT count(*) FROM troupe.held WHERE attempts > 1") })
}
