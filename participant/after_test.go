package participant_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
)

func tomorrow(context.Context, pgx.Tx, participant.Command[Count]) (participant.Outcome, error) {
	return participant.Outcome{}, retry.After(errAsked, time.Hour)
}

// An error may name the time of the next try: not even the tries at once come before it.

func TestAHeldMessageIsNotTriedBeforeItsErrorSays(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new()
	participant.Handle(p, tomorrow)
	s.start(p)
	s.send(s.command("a", Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts = 1 AND next_try > clock_timestamp() + interval '59 min'")
}

func TestLocalWorkIsNotTriedBeforeItsErrorSays(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	p := s.new()
	participant.Handle(p, tomorrow)
	s.start(p)
	testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, p.Ready() })
	s.write("a", Count{N: 1})
	s.waitCount(1, "SELECT count(*) FROM troupe.local_work WHERE attempts = 1 AND next_try > clock_timestamp() + interval '59 min'")
}

func TestARetryTopicIsNextWhenAnErrorSaysNotNow(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	attempts := make(chan int, 10)
	p := s.new(onePartition)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		attempts <- c.Attempt
		return tomorrow(ctx, tx, c)
	}, participant.RetryTopics(time.Hour))
	s.start(p)
	s.send(s.command("a", Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Retry(time.Hour))
	require.Len(t, attempts, 1)
}
