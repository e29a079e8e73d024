package participant_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// TestDeadlinesWaitForNoPartitionThatCannotBeRead blocks a partition that the group has consumed before, and one of a topic
// that it begins to consume, which may have the messages of months. Deadlines that wait for the messages that came before are
// fired nevertheless.
func TestDeadlinesWaitForNoPartitionThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit   time.Duration
		message func(s *stage) envelope.Message
	}{
		"a partition that cannot be read": {time.Millisecond, func(s *stage) envelope.Message { return s.command("a", Count{N: 2}) }},
		"a topic that is new to the group": {time.Hour, func(s *stage) envelope.Message {
			m := s.command("a", Count{N: 2})
			m.Topic, m.Outcome = topics.MustHop(s.hop.Flow(), "other").Events(), envelope.Success
			testkit.Topics(s.t, s.client, 1, m.Topic)
			return m
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDeadlineStage(t)
			s.provision(1)
			stop := s.start(s.expecting())
			s.send(s.command("a", Count{N: 1}))
			s.waitCount(1, "SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 0", s.hop.Commands())
			stop()

			began, may := make(chan struct{}, 10), make(chan struct{})
			wait := func(ctx context.Context) error {
				began <- struct{}{}
				select {
				case <-may:
				case <-ctx.Done():
				}
				return ctx.Err()
			}
			p := s.new(onePartition)
			p.BacklogLimit(test.limit)
			participant.OnDeadline(p, overdueName, overdue)
			p.Extension().FireAfterBacklog(overdueName)
			participant.Handle(p, func(ctx context.Context, _ pgx.Tx, _ participant.Command[Count]) (participant.Outcome, error) {
				return participant.Succeed(Counted{}), wait(ctx)
			})
			participant.On(p, topics.MustHop(s.hop.Flow(), "other"), func(ctx context.Context, _ pgx.Tx, _ participant.Event[Count]) error { return wait(ctx) })
			require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Key: "b", Body: Overdue{N: 1}, At: time.Now().Add(-time.Hour)}))
			s.send(test.message(s))
			s.start(p)
			<-began
			s.fired(1)
			close(may)
		})
	}
}
