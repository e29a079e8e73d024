package participant_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/participant"
)

// TestAnIdempotencyKeyStandsForOneRequest checks that another body or another key with an idempotency key that was answered
// does not get that answer.
func TestAnIdempotencyKeyStandsForOneRequest(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 10} {
		t.Run(strconv.Itoa(batch), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.provision(1)
			first := s.command("a", Count{N: 1})
			repeated, otherBody, otherKey := first, s.command("a", Count{N: 2}), s.command("b", Count{N: 1})
			repeated.ID = envelope.NewID()
			otherBody.IdempotencyKey, otherKey.IdempotencyKey = first.IdempotencyKey, first.IdempotencyKey
			s.send(first, repeated, otherBody, s.command("a", Count{N: 3}))
			p := s.new(onePartition, func(c *participant.Config) { c.Batch = batch })
			participant.Handle(p, count)
			s.start(p)
			s.waitEvents(4)
			s.send(otherKey) // it has no order with messages of other keys: first could lose against it
			s.waitEvents(5)
			require.Equal(t, 2, s.count("SELECT count(*) FROM done"))
			require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'permanent' AND error LIKE $1",
				fmt.Sprintf("idempotency key %q was used before%%", first.IdempotencyKey)))
		})
	}
}

// TestARedrivenCommandIsAnsweredToItsSender checks one whose body may have been edited, and whose sender sends it again
// unchanged.
func TestARedrivenCommandIsAnsweredToItsSender(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	asSent := s.command("a", Count{N: 1, Fail: "permanent"})
	edited, again := asSent, asSent
	edited.Payload = marshal(Count{N: 1})
	edited.Extra = []envelope.Header{{Key: deadletter.HeaderRedrive, Value: []byte("1")}}
	again.ID = envelope.NewID()
	s.send(asSent, edited, again)
	p := s.new(onePartition)
	participant.Handle(p, count)
	s.start(p)
	events := s.waitEvents(3)
	require.Equal(t, []envelope.Outcome{envelope.Exhausted, envelope.Success, envelope.Success},
		[]envelope.Outcome{events[0].Outcome, events[1].Outcome, events[2].Outcome})
	require.Equal(t, 1, s.count("SELECT count(*) FROM done"))
}
