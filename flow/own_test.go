package flow_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// reserving returns a service that reserves the goods of a paid order, and expects it to be shipped within 30 s. out is set to
// its outbox.
func reserving(t testing.TB, out **outbox.Outbox) testkit.StageConfig {
	return testkit.StageConfig{
		Hop: "inventory", Participant: participant.Config{Retry: quick, Batch: 10},
		Handlers: func(s *testkit.Stage, p *participant.Participant) {
			name := s.Hop.Flow()
			reserved := events(name, "inventory", "Reserved")
			service := bind(t, p, flow.Declaration{
				Hop:       name + ".inventory",
				Starts:    []flow.Message{reserved},
				Reactions: []flow.Reaction{{On: events(name, "payment", "Paid"), Success: []flow.Message{reserved}}},
				Expectations: []flow.Expectation{{
					Name: "shipped", After: reserved, Within: "30s", Raise: events(name, "inventory", "TimedOut"),
					Expect: []flow.Message{events(name, "shipping", "Shipped")},
				}},
			})
			flow.On(service, topics.MustHop(name, "payment"), func(_ context.Context, _ pgx.Tx, e participant.Event[Paid]) (participant.Outcome, error) {
				return participant.Succeed(Reserved{e.Body.Cents}), nil
			})
			flow.OnMissed(service, "shipped", func(_ context.Context, _ pgx.Tx, m flow.Missed) (participant.Outcome, error) {
				return participant.Refuse(TimedOut{Missing: []string{string(m.After.Key), m.After.Type, string(m.After.Payload)}}), nil
			})
			if out != nil {
				*out = p.Outbox()
			}
		},
	}
}

const (
	waiting  = "SELECT count(*) FROM troupe.expectations WHERE after_at IS NOT NULL AND forget_at IS NULL"
	handled  = "SELECT count(*) FROM troupe.inbox_recent"
	notCome  = `failure o-1 TimedOut {"Missing":["o-1","Reserved","{\"Titles\":7}"]}`
	reserved = `success o-1 Reserved {"Titles":7}`
)

// TestAnExpectationBeginsWhereItsEventIsWritten checks that it begins in the same transaction, and not again when the event
// is consumed.
func TestAnExpectationBeginsWhereItsEventIsWritten(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, reserving(t, nil))
	s.Send(event(s, "payment", "o-1", Paid{7}), event(s, "payment", "o-2", Paid{8}), event(s, "payment", "o-3", Paid{9}))
	s.Settle()
	require.Equal(t, 3, count(t, s, waiting), "nothing of this hop has been published")
	require.Len(t, s.Deadlines(), 3)
	own := s.Entries(s.Hop.Events())
	s.Send(own...)
	s.Settle()
	require.Equal(t, 3, count(t, s, waiting), "some are handled, since they were in the log when the participant first read it")
	before := count(t, s, handled)
	for i := range own {
		own[i].ID = envelope.NewID()
	}
	s.Send(own...)
	s.Send(event(s, "shipping", "o-2", Shipped{}), event(s, "shipping", "o-2", Shipped{}))
	s.Settle()
	require.Equal(t, before+2, count(t, s, handled), "its own events are passed over")
	require.Len(t, s.Deadlines(), 2)
	s.Send(event(s, "shipping", "o-3", Shipped{}))
	s.Settle()
	s.Advance(31 * time.Second)
	s.Settle()
	s.Replay()
	s.Settle()
	require.Contains(t, said(s), reserved)
	require.Contains(t, said(s), notCome)
	require.Len(t, said(s), 4)
	require.Empty(t, s.Deadlines())
	require.Zero(t, count(t, s, waiting))
}

// TestAnOwnEventThatAnObserverOfEventsDoesNotWantIsPassedOver: a participant with expectations may also have a coordinator, which observes all events.
func TestAnOwnEventThatAnObserverOfEventsDoesNotWantIsPassedOver(t *testing.T) {
	t.Parallel()
	cfg := reserving(t, nil)
	register := cfg.Handlers
	cfg.Handlers = func(s *testkit.Stage, p *participant.Participant) {
		register(s, p)
		p.Extension().ObserveEvents(func(envelope.Message) bool { return false }, nil)
	}
	s := testkit.NewStage(t, cfg)
	s.Send(event(s, "payment", "o-1", Paid{7}))
	s.Settle()
	own := s.Entries(s.Hop.Events())
	require.Len(t, own, 1)
	s.Send(own...) // in the log when the participant first reads it: it is handled
	s.Settle()
	before := count(t, s, handled)
	own[0].ID = envelope.NewID()
	s.Send(own...)
	s.Send(event(s, "shipping", "o-2", Shipped{}))
	s.Settle()
	require.Equal(t, before+1, count(t, s, handled), "its own event is passed over")
}

// TestTheSameEventAgainLeavesTheClock emits the event under another id: this moves no deadline, and begins nothing after the
// end.
func TestTheSameEventAgainLeavesTheClock(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, reserving(t, nil))
	s.Send(event(s, "payment", "o-1", Paid{7}))
	s.Settle()
	due := func() (at string) {
		require.NoError(t, s.Pool.QueryRow(t.Context(), "SELECT string_agg(due_at::text, ', ') FROM troupe.deadlines").Scan(&at))
		return at
	}
	first := due()
	s.Send(event(s, "payment", "o-1", Paid{8}))
	s.Settle()
	require.Equal(t, first, due())
	s.Send(event(s, "shipping", "o-1", Shipped{}))
	s.Settle()
	s.Send(event(s, "payment", "o-1", Paid{9}))
	s.Settle()
	s.Advance(time.Hour)
	s.Settle()
	require.Len(t, said(s), 3, "nothing is raised")
	require.Zero(t, count(t, s, waiting))
}

// TestAnOwnEventThatWasWrittenInAnotherWayBeginsToo writes the event by SQL, and as an earlier version of the service wrote
// it.
func TestAnOwnEventThatWasWrittenInAnotherWayBeginsToo(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, reserving(t, nil))
	written := s.Event(s.Hop, "o-1", Reserved{7})
	other := s.Event(s.Hop, "o-2", Reserved{7})
	other.Extra = []envelope.Header{{Key: ce.HeaderObserved, Value: []byte(s.Hop.String() + "/expect.other")}}
	s.Send(written, other)
	s.Settle()
	require.Equal(t, 2, count(t, s, waiting))
	s.Send(event(s, "shipping", "o-2", Shipped{}))
	s.Settle()
	s.Advance(31 * time.Second)
	s.Settle()
	require.Equal(t, []string{notCome}, said(s))
}

// TestAnExpectationBeginsWithAFlow checks an expectation that begins in the transaction of the request that starts a flow, or
// not at all.
func TestAnExpectationBeginsWithAFlow(t *testing.T) {
	t.Parallel()
	var out *outbox.Outbox
	s := testkit.NewStage(t, reserving(t, &out))
	begin := func(key string, end error) error {
		return pgx.BeginFunc(t.Context(), s.Pool, func(tx pgx.Tx) error {
			err := out.Write(t.Context(), tx, outbox.Entry{Topic: s.Hop.Events(), Key: key, Body: Reserved{7}, Outcome: envelope.Success})
			return errors.Join(err, end)
		})
	}
	require.NoError(t, begin("o-1", nil))
	undone := errors.New("undone")
	require.ErrorIs(t, begin("o-2", undone), undone)
	require.ErrorContains(t, begin("", nil), "belongs to nothing")
	require.Equal(t, 1, count(t, s, waiting))
	s.Advance(31 * time.Second)
	s.Settle()
	require.Equal(t, []string{reserved, notCome}, said(s))
}

// TestAHandlerInARebuildBeginsNoExpectation checks that the event which it writes, and which is discarded, begins none: it would never be met,
// and it would be reported as missed.
func TestAHandlerInARebuildBeginsNoExpectation(t *testing.T) {
	t.Parallel()
	var out *outbox.Outbox
	s := testkit.NewStage(t, reserving(t, &out))
	write := func(key, rebuild string) {
		require.NoError(t, pgx.BeginFunc(t.Context(), s.Pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "SELECT set_config('troupe.rebuild', $1, true)", rebuild)
			entry := outbox.Entry{Topic: s.Hop.Events(), Key: key, Body: Reserved{7}, Outcome: envelope.Success}
			return errors.Join(err, out.Write(t.Context(), tx, entry))
		}))
	}
	write("o-1", "on")
	require.Zero(t, count(t, s, "SELECT count(*) FROM troupe.expectations"))
	write("o-1", "")
	require.Equal(t, 1, count(t, s, waiting))
	write("o-1", "on")
	require.Equal(t, 1, count(t, s, waiting))
	require.Len(t, s.Deadlines(), 1)
}

// TestABeginningIsWholeWhereverItIsInterrupted checks that event, expectation and deadline are all stored, or none of them.
func TestABeginningIsWholeWhereverItIsInterrupted(t *testing.T) {
	t.Parallel()
	testkit.CrashAtEveryStep(t, reserving(t, nil),
		func(s *testkit.Stage) envelope.Message { return event(s, "payment", "o-1", Paid{7}) },
		testkit.Query(`SELECT count(*), count(after_at), (SELECT count(*) FROM troupe.deadlines),
			(SELECT count(*) FROM troupe.outbox WHERE type = 'Reserved') FROM troupe.expectations`))
}

// TestAnOldEventThatIsRedrivenBeginsNoExpectation checks an event whose expectation began when it was written, and was met and forgotten since.
func TestAnOldEventThatIsRedrivenBeginsNoExpectation(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, reserving(t, nil))
	old, fresh := s.Event(s.Hop, "o-1", Reserved{7}), s.Event(s.Hop, "o-2", Reserved{7})
	old.Time, fresh.Time = time.Now().Add(-8*24*time.Hour), time.Now()
	for _, m := range []*envelope.Message{&old, &fresh} {
		m.Extra = []envelope.Header{
			{Key: ce.HeaderObserved, Value: []byte(s.Hop.String() + "/expect.shipped")},
			{Key: deadletter.HeaderRedrive, Value: []byte("1")}, {Key: deadletter.HeaderRedriveGroup, Value: []byte(s.Hop.String())},
		}
	}
	s.Send(old, fresh)
	s.Settle()
	require.Equal(t, 1, count(t, s, waiting))
	require.Equal(t, 1, count(t, s, waiting+" AND key = 'o-2'"))
}
