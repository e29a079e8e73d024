package participant_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestAFetchOfManyMessagesEntersItsQueueInParts: a fetch of some kilobytes may have a hundred thousand messages of a partition, and each of them
// took a kilobyte in the queue.
func TestAFetchOfManyMessagesEntersItsQueueInParts(t *testing.T) {
	t.Parallel()
	const keys, each = 4, 3000
	s := newStage(t)
	s.provision(1)
	s.send(s.commands(keys, each)...)
	p := s.new(onePartition, func(c *participant.Config) { c.Batch = 100 })
	opened := make(chan struct{})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		select {
		case <-opened:
			return count(ctx, tx, c)
		case <-ctx.Done():
			return participant.Outcome{}, ctx.Err()
		}
	})
	s.start(p)
	waitFor(t, "a fetch", func() bool { return partitionOf(p, s.hop.Commands()).Running > 0 })
	of := partitionOf(p, s.hop.Commands())
	require.Greater(t, of.Waiting+of.Running, participant.PushAtOnce, "the fetch was too small for this test")
	require.True(t, of.Paused)
	require.LessOrEqual(t, p.Backlog(), participant.PushAtOnce)
	close(opened)
	s.expectAll(keys, each)
}
