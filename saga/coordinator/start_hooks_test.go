package coordinator_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// TestAStartInAHandlerIsReportedAfterItsCommit: the handler starts a saga, and fails at its first attempt.
func TestAStartInAHandlerIsReportedAfterItsCommit(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	flow := testkit.Flow(t)
	p, err := participant.New(participant.Config{
		Pool: pool, Hop: topics.MustHop(flow, "order"), Local: true, Log: zerolog.Nop(),
		Retry: retry.Policy{Initial: time.Millisecond, Cap: time.Millisecond, Attempts: 5},
	})
	require.NoError(t, err)
	var decided, attempts atomic.Int32
	c, err := coordinator.New(t.Context(), coordinator.Config{
		Participant: p, Pool: pool, Definitions: []*saga.Definition{parsed(t, billing)}, Log: zerolog.Nop(),
		Decided: func(coordinator.Decided) { decided.Add(1) },
	})
	require.NoError(t, err)
	reported := make(chan int32, 1)
	type (
		Place  struct{}
		Placed struct{}
	)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, _ participant.Command[Place]) (participant.Outcome, error) {
		if _, err := c.Start(ctx, tx, "billing", map[string]any{"id": "b-1", "of": "sales"}); err != nil {
			return participant.Outcome{}, err
		}
		if attempts.Add(1) == 1 {
			return participant.Outcome{}, errors.New("later")
		}
		reported <- decided.Load()
		return participant.Succeed(Placed{}), nil
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	out, err := outbox.New(outbox.Config{Source: "shop"})
	require.NoError(t, err)
	require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return out.Write(ctx, tx, outbox.Entry{Topic: flow + ".order.commands", Key: "k", Type: "Place", Payload: []byte("{}"), ContentType: envelope.JSON})
	}))
	require.Zero(t, <-reported)
	require.Eventually(t, func() bool { return decided.Load() == 1 }, 30*time.Second, 5*time.Millisecond)
	stop()
	require.NoError(t, <-done)
}
