package participant_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
)

// bank takes effect outside the database, and its response is lost while away is set.
type bank struct {
	charged atomic.Int32
	away    atomic.Bool
	err     error
}

func (b *bank) ask(context.Context, participant.Command[[]byte]) (struct{}, error) {
	b.charged.Add(1)
	if b.away.Load() {
		return struct{}{}, b.err
	}
	return struct{}{}, nil
}

func (b *bank) take(context.Context, pgx.Tx, participant.Command[[]byte], struct{}) (participant.Outcome, error) {
	return participant.Succeed(Counted{}), nil
}

// TestACompensationInDoubtUndoesACallOutsideThatFailed checks a call that has no answer, but may have taken effect.
func TestACompensationInDoubtUndoesACallOutsideThatFailed(t *testing.T) {
	t.Parallel()
	late := errors.New("no response in time")
	for _, test := range []struct {
		name string
		err  error
		opts []participant.HandlerOption
		at   string // where the failed call is
	}{
		{"it is held", late, nil, "SELECT count(*) FROM troupe.held WHERE attempts = 1"},
		{"it is a dead letter", retry.Permanent(late), nil, "SELECT count(*) FROM troupe.dead_letters"},
		{"it is on a retry topic", late, []participant.HandlerOption{participant.RetryTopics(time.Hour)},
			"SELECT count(*) FROM troupe.outbox WHERE topic LIKE '%retry%'"},
	} {
		for _, alone := range []bool{false, true} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				s.provision(1)
				b := &bank{err: test.err}
				b.away.Store(true)
				p := s.new(onePartition, holdLong)
				if alone {
					participant.Handle(p, func(ctx context.Context, _ pgx.Tx, _ participant.Command[Count]) (participant.Outcome, error) {
						_, err := b.ask(ctx, participant.Command[[]byte]{})
						return participant.Succeed(Counted{}), err
					}, append(test.opts, participant.Alone())...)
				} else {
					participant.Ask(p, "Count", b.ask, b.take, test.opts...)
				}
				participant.Handle(p, undo)
				s.start(p)
				s.send(call{saga: "order/o-1", step: "charge", operation: "forward", key: "f:1", n: 1}.message(s, "a"))
				s.waitCount(1, test.at)
				s.send(call{saga: "order/o-1", step: "charge", operation: "compensate", key: "c:1", n: 1, doubt: true}.message(s, "a"))
				s.waitCount(1, "SELECT count(*) FROM done WHERE n = -1")
				require.EqualValues(t, 1, b.charged.Load())
			})
		}
	}
}

// TestACompensationInDoubtOfACallOutsideThatNeverBeganDoesNothing checks a call that waited behind another message of its key.
func TestACompensationInDoubtOfACallOutsideThatNeverBeganDoesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	b := &bank{err: errAsked}
	b.away.Store(true)
	p := s.new(onePartition, holdLong)
	participant.Ask(p, "Count", b.ask, b.take)
	participant.Handle(p, undo)
	s.start(p)
	s.send(s.command("a", Count{N: 7}))
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts = 1")
	s.send(call{saga: "order/o-1", step: "charge", operation: "forward", key: "f:1", n: 1}.message(s, "a"))
	s.waitCount(2, "SELECT count(*) FROM troupe.held")
	c := call{saga: "order/o-1", step: "charge", operation: "compensate", key: "c:1", n: 1, doubt: true}.message(s, "a")
	s.send(c)
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE message_id = $1", c.ID)
	b.away.Store(false)
	s.due()
	events := s.waitEvents(2)
	require.Equal(t, "troupe.Nothing", events[1].Type)
	require.Equal(t, envelope.Success, events[1].Outcome)
	require.Zero(t, s.count("SELECT count(*) FROM done WHERE n = -1"))
	require.EqualValues(t, 2, b.charged.Load(), "both for the first message")
}
