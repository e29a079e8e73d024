package participant_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// TestOnAllTakesThePlaceOfAnOptionalOneWhileTheParticipantRuns: the function of ObserveEvents gets the events then. The optional one gives way if it
// comes later, too.
func TestOnAllTakesThePlaceOfAnOptionalOneWhileTheParticipantRuns(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]bool{"the optional one is first": false, "the optional one is last": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			other := []topics.Hop{topics.MustHop(s.hop.Flow(), "other")}
			s.topic(other[0].Events())
			p := s.new(onePartition)
			participant.Handle(p, count)
			calls := make(chan string, 10)
			p.Extension().ObserveEvents(func(m envelope.Message) bool { return m.Topic == other[0].Events() }, func(context.Context, pgx.Tx, envelope.Message) error {
				calls <- "the observer"
				return nil
			})
			s.start(p)
			s.send(s.command("a", Count{N: 1}))
			s.waitCount(1, "SELECT count(*) FROM done")
			own := func() {
				participant.OnAll(p, other, func(context.Context, pgx.Tx, []participant.Taken) error { calls <- "its own"; return nil })
			}
			if later {
				own()
			}
			p.Extension().OnAllOptional(other, func(context.Context, pgx.Tx, []participant.Taken) error { calls <- "the optional one"; return nil })
			if !later {
				own()
			}
			m := s.command("b", Count{N: 1})
			m.Topic, m.Outcome = other[0].Events(), envelope.Success
			s.send(m)
			require.Equal(t, []string{"the observer", "its own"}, []string{<-calls, <-calls})
		})
	}
}
