package flow_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// observerStage returns a service that expects Shipped or Refused within 30 s after Paid.
func observerStage(t testing.TB) testkit.StageConfig {
	return testkit.StageConfig{
		Hop: "watch", Participant: participant.Config{Retry: quick},
		Handlers: func(s *testkit.Stage, p *participant.Participant) {
			name := s.Hop.Flow()
			service := bind(t, p, flow.Declaration{
				Hop: name + ".watch",
				Expectations: []flow.Expectation{{
					Name: "shipped", After: events(name, "payment", "Paid"), Within: "30s", Raise: events(name, "watch", "TimedOut"),
					Expect: []flow.Message{events(name, "shipping", "Shipped"), events(name, "shipping", "Refused")},
				}},
			})
			flow.OnMissed(service, "shipped", func(_ context.Context, _ pgx.Tx, m flow.Missed) (participant.Outcome, error) {
				return participant.Refuse(TimedOut{Missing: []string{string(m.After.Key), string(m.After.Payload)}}), nil
			})
		},
	}
}

const timedOut = `failure o-1 TimedOut {"Missing":["o-1","{\"Cents\":999}"]}`

// TestAnExpectedEventThatDoesNotComeIsRaisedOnce also checks that a late or repeated message changes nothing.
func TestAnExpectedEventThatDoesNotComeIsRaisedOnce(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, observerStage(t))
	paid, shipped := event(s, "payment", "o-1", Paid{999}), event(s, "shipping", "o-1", Shipped{})
	s.Send(paid, paid, event(s, "payment", "o-1", Paid{1}))
	s.Settle()
	require.Len(t, s.Deadlines(), 1)
	require.Equal(t, 1, count(t, s, "SELECT count(*) FROM troupe.deadlines WHERE convert_from(payload, 'UTF8')::jsonb -> 'expects' ->> 0 LIKE '%.shipping.events Shipped'"))
	s.Advance(31 * time.Second)
	s.Settle()
	require.Equal(t, []string{timedOut}, said(s))
	s.Send(shipped, shipped, event(s, "shipping", "o-1", Shipped{}), event(s, "payment", "o-1", Paid{2}))
	s.Settle()
	s.Replay()
	s.Settle()
	require.Equal(t, []string{timedOut}, said(s))
	require.Empty(t, s.Deadlines())
	require.Equal(t, 1, count(t, s, "SELECT count(*) FROM troupe.expectations WHERE raised_at < met_at AND payload IS NULL"), "late")
}

// TestAnExpectedEventInTimeRaisesNothing sends the expected message after the message that it is expected after, before it, and in
// each of the expected types.
func TestAnExpectedEventInTimeRaisesNothing(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, observerStage(t))
	s.Send(event(s, "payment", "behind", Paid{1}), event(s, "payment", "other", Paid{1}), event(s, "shipping", "before", Shipped{}))
	s.Settle()
	require.Len(t, s.Deadlines(), 2)
	s.Send(event(s, "shipping", "behind", Shipped{}), failure(s, "shipping", "other", Refused{}), event(s, "payment", "before", Paid{1}))
	s.Settle()
	require.Empty(t, s.Deadlines())
	s.Advance(time.Hour)
	s.Settle()
	require.Empty(t, said(s))
	require.Equal(t, 3, count(t, s, "SELECT count(*) FROM troupe.expectations WHERE met_at IS NOT NULL AND after_at IS NOT NULL AND forget_at > now()"))
}

// TestAnExpectationIsWholeWhereverItIsInterrupted cuts the connection at each statement of its beginning and of its end.
func TestAnExpectationIsWholeWhereverItIsInterrupted(t *testing.T) {
	t.Parallel()
	effect := testkit.Query(`
		SELECT after_at IS NULL, met_at IS NULL, raised_at IS NULL, (SELECT count(*) FROM troupe.deadlines) FROM troupe.expectations`)
	for name, given := range map[string]func(s *testkit.Stage) envelope.Message{
		"begins": func(s *testkit.Stage) envelope.Message { return event(s, "payment", "o-1", Paid{999}) },
		"met": func(s *testkit.Stage) envelope.Message {
			s.Send(event(s, "payment", "o-1", Paid{999}))
			s.Settle()
			return event(s, "shipping", "o-1", Shipped{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.CrashAtEveryStep(t, observerStage(t), given, effect)
		})
	}
}

// TestAnExpectationWhoseDatabaseWasSetBackRaisesTheSameAgain lets an expectation begin and end twice, as after a failover to a
// standby that lagged.
func TestAnExpectationWhoseDatabaseWasSetBackRaisesTheSameAgain(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, observerStage(t))
	paid := []envelope.Message{event(s, "payment", "o-1", Paid{999}), event(s, "payment", "o-2", Paid{999})}
	ids := func() (all []string) {
		s.Send(paid...)
		s.Settle()
		s.Advance(31 * time.Second)
		s.Settle()
		for _, m := range s.Entries(s.Hop.Events()) {
			all = append(all, m.ID)
		}
		_, err := s.Pool.Exec(t.Context(), `DELETE FROM troupe.expectations; DELETE FROM troupe.deadlines;
			DELETE FROM troupe.outbox; DELETE FROM troupe.inbox; DELETE FROM troupe.inbox_recent`)
		require.NoError(t, err)
		return all
	}
	before := ids()
	require.Len(t, before, 2)
	require.NotEqual(t, before[0], before[1])
	require.ElementsMatch(t, before, ids())
}
