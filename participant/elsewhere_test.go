package participant_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/topics"
)

// TestARedrivenEventIsForItsGroupOnly checks that other groups skip it, also when their inboxes have deleted it.
func TestARedrivenEventIsForItsGroupOnly(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	up := topics.MustHop(s.hop.Flow(), "order")
	s.topic(up.Events())
	event := func(n int) envelope.Message {
		m := s.command("a", Count{})
		m.Topic, m.Type, m.Payload, m.IdempotencyKey = up.Events(), "Counted", marshal(Counted{N: n}), ""
		return m
	}
	var failed, passed atomic.Int64
	listen := func(group string, first error) func(int64) {
		var runs atomic.Int64
		p := s.new(onePartition, func(c *participant.Config) {
			c.Group = group
			c.Hooks.Passed = func(p participant.Passed) {
				if p.Reason == participant.Elsewhere {
					passed.Add(1)
				}
			}
		})
		participant.On(p, up, func(context.Context, pgx.Tx, participant.Event[Counted]) error {
			if runs.Add(1) == 1 && first != nil {
				failed.Add(1)
				return first
			}
			return nil
		})
		s.start(p)
		return func(want int64) {
			waitFor(t, fmt.Sprintf("%d runs of %s", want, group), func() bool { return runs.Load() == want })
		}
	}
	fails, works := listen("fails", retry.Permanent(errAsked)), listen("works", nil)
	send := func(m envelope.Message) {
		require.NoError(t, s.client.ProduceSync(t.Context(), kafka.Record(m)).FirstErr())
	}
	first := event(1)
	send(first)
	fails(1)
	works(1)
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters")
	_, err := s.pool.Exec(t.Context(), forget)
	require.NoError(t, err)
	first.Extra = []envelope.Header{{Key: deadletter.HeaderRedrive, Value: []byte("1")},
		{Key: deadletter.HeaderRedriveGroup, Value: []byte("fails")}}
	send(first)
	send(event(2))
	fails(3)
	works(2)
	waitFor(t, "the redriven one to be passed over", func() bool { return passed.Load() > 0 })
	require.EqualValues(t, 1, passed.Load())
}
