package participant_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestALockedHeldRowIsLoggedAndHoldsUpNoOtherKey checks a session that has the row of a held message locked, such as an
// operator's open one.
func TestALockedHeldRowIsLoggedAndHoldsUpNoOtherKey(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	var logged safeBuffer
	p := s.new(onePartition, func(c *participant.Config) {
		c.Immediate, c.Retry.Attempts, c.Batch, c.Concurrency, c.Log = -1, 1<<20, 10, 1, zerolog.New(&logged)
	})
	p.StatementLimit(500 * time.Millisecond)
	var broken atomic.Bool
	broken.Store(true)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if string(c.Message.Key) == "a" && broken.Load() {
			return participant.Outcome{}, errAsked
		}
		return count(ctx, tx, c)
	})
	s.start(p)
	s.send(s.command("a", Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts > 0")
	open, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = open.Exec(t.Context(), "SELECT FROM troupe.held FOR UPDATE")
	require.NoError(t, err)
	broken.Store(false)
	waitFor(t, "a log line", func() bool { return strings.Contains(logged.String(), "another session has locked rows") })
	for n := range 5 {
		s.send(s.command(fmt.Sprint("b", n), Count{N: n}))
	}
	s.waitCount(5, "SELECT count(*) FROM done WHERE key <> 'a'")
	require.NoError(t, open.Rollback(t.Context()))
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'a'")
}
