package participant_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestAPartitionThatWaitsForAnotherQuarantineIsGivenUp revokes a partition whose suspected message waits for the quarantined run
// of another partition: its handler has not begun, so it is not one that ignores its context.
func TestAPartitionThatWaitsForAnotherQuarantineIsGivenUp(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(2)
	keys := s.keys(2)
	warm := s.new()
	participant.Handle(warm, count)
	stop := s.start(warm)
	s.send(s.command(keys[0], Count{N: 1}), s.command(keys[1], Count{N: 1}))
	s.waitCount(2, "SELECT count(*) FROM done")
	stop()
	_, err := s.pool.Exec(t.Context(), `UPDATE troupe.leases SET released_at = NULL;
		INSERT INTO troupe.started (lease_id, topic_id, "offset") SELECT id, topic_id, 1 FROM troupe.leases WHERE topic_id IS NOT NULL`)
	require.NoError(t, err)
	s.send(s.command(keys[0], Count{N: 2}), s.command(keys[1], Count{N: 2}))
	var logged safeBuffer
	running := make(chan string, 2)
	p := s.new(func(c *participant.Config) {
		c.Log, c.Drain, c.Timeout = zerolog.New(&logged), time.Millisecond, 5*time.Minute
	})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		running <- string(c.Message.Key)
		<-ctx.Done()
		return participant.Outcome{}, ctx.Err()
	})
	s.start(p)
	<-running
	second := s.new()
	participant.Handle(second, count)
	s.start(second)
	s.waitCount(3, "SELECT count(*) FROM done")
	require.NotContains(t, logged.String(), "wedged")
}
