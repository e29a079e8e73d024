package testkit_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// Remind is the payload of a deadline.
type Remind struct {
	Order string `json:"order"`
}

// TestAdvanceMakesDeadlinesCome lets ten days pass one after the other, without waiting for them.
func TestAdvanceMakesDeadlinesCome(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.SQL = ""
	cfg.Handlers = func(s *testkit.Stage, p *participant.Participant) {
		participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Pay]) (participant.Outcome, error) {
			err := p.Schedule(ctx, tx, participant.Deadline{Name: "remind", After: 10 * 24 * time.Hour, Body: Remind{Order: c.Message.Subject}})
			return participant.Succeed(Paid{}), err
		})
		participant.OnDeadline(p, "remind", func(ctx context.Context, tx pgx.Tx, d participant.Due[Remind]) error {
			return p.Outbox().Write(ctx, tx, outbox.Entry{Topic: s.Hop.Events(), Key: d.Scope, Body: d.Body})
		})
	}
	s := testkit.NewStage(t, cfg)
	pay := s.Command("o-1", Pay{Cents: 1})
	s.Send(pay)
	testkit.Await[Paid](s, pay)
	pending := s.Deadlines()
	require.Len(t, pending, 1)
	require.Equal(t, []string{"remind", "o-1"}, []string{pending[0].Name, pending[0].Scope})
	s.Advance(9 * 24 * time.Hour)
	s.Settle()
	require.Len(t, s.Entries(s.Hop.Events()), 1, "a day is left")
	require.Less(t, s.Deadlines()[0].Wait, 24*time.Hour)
	s.Advance(24 * time.Hour)
	s.Settle()
	require.JSONEq(t, `{"order":"o-1"}`, string(s.Entries(s.Hop.Events())[1].Payload))
	require.Empty(t, s.Deadlines())
	s.Advance(24 * time.Hour)
	s.Settle()
	require.Len(t, s.Entries(s.Hop.Events()), 2, "it comes once")
}
