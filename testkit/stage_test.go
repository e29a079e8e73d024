package testkit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// Pay is the command of these tests. Fail selects how its handler fails.
type Pay struct {
	Cents int
	Fail  string
}

type Paid struct{ Cents int }

type Declined struct{ Reason string }

const payments = `
CREATE TABLE payments (position bigint GENERATED ALWAYS AS IDENTITY, key text NOT NULL, cents int NOT NULL);
CREATE TABLE calls (at timestamptz NOT NULL DEFAULT now());`

func pay(ctx context.Context, tx pgx.Tx, c participant.Command[Pay]) (participant.Outcome, error) {
	switch c.Body.Fail {
	case "decline":
		return participant.Refuse(Declined{Reason: "no credit"}), nil
	case "error":
		return participant.Outcome{}, errors.New("bank away")
	}
	_, err := tx.Exec(ctx, "INSERT INTO payments (key, cents) VALUES ($1, $2)", string(c.Message.Key), c.Body.Cents)
	return participant.Succeed(Paid{c.Body.Cents}), err
}

func config() testkit.StageConfig {
	return testkit.StageConfig{
		SQL:      payments,
		Handlers: func(_ *testkit.Stage, p *participant.Participant) { participant.Handle(p, pay) },
	}
}

// paid returns the amounts of a key, in the order in which they were paid.
func paid(s *testkit.Stage, t testing.TB, key string) []int {
	t.Helper()
	rows, err := s.Pool.Query(t.Context(), "SELECT cents FROM payments WHERE key = $1 ORDER BY position", key)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[int])
	require.NoError(t, err)
	return all
}

func TestACommandIsAnswered(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, config())
	good, bad := s.Command("o-1", Pay{Cents: 999}), s.Command("o-2", Pay{Fail: "decline"})
	s.Send(good, bad)
	answer := testkit.Await[Paid](s, good)
	require.Equal(t, Paid{999}, answer.Body)
	require.Equal(t, envelope.Success, answer.Message.Outcome)
	require.Equal(t, good.ID, answer.Message.CausationID)
	require.Equal(t, Declined{"no credit"}, testkit.Await[Declined](s, bad).Body)
}

func TestAMessageDeliveredTwiceTakesEffectOnce(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, config())
	m := s.Command("o-1", Pay{Cents: 999})
	s.Send(m, m)
	s.Settle()
	require.Equal(t, []int{999}, paid(s, t, "o-1"))
	s.Replay()
	s.Settle()
	require.Equal(t, []int{999}, paid(s, t, "o-1"))
	require.Len(t, s.Entries(s.Hop.Events()), 1)
}

func TestOrderIsThatOfSending(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, config())
	first, second := s.Command("o-1", Pay{Cents: 1}), s.Command("o-1", Pay{Cents: 2})
	s.Send(second, first)
	s.Settle()
	require.Equal(t, []int{2, 1}, paid(s, t, "o-1"))
}

func TestPoisonIsADeadLetter(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, config())
	m := s.Command("o-1", Pay{})
	m.Payload = []byte{0, 1, 2}
	s.Send(m)
	letter := s.AwaitDeadLetter(m)
	require.Equal(t, participant.Poison, letter.Class)
	require.Equal(t, m.Payload, letter.Payload)
	require.Equal(t, letter.ID, testkit.Await[participant.Exhausted](s, m).Body.DeadLetterID)

	stranger := s.Produce(kgo.KeySliceRecord([]byte("o-2"), []byte("hello")))
	require.Equal(t, participant.Poison, s.AwaitDeadLetter(stranger).Class)
}

func TestAdvanceSparesTheBackOff(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.Participant.Retry = retry.Policy{Initial: time.Hour, Cap: time.Hour, Attempts: 5, NoJitter: true}
	s := testkit.NewStage(t, cfg)
	bad, behind := s.Command("o-1", Pay{Fail: "error"}), s.Command("o-1", Pay{Cents: 1})
	s.Send(bad, behind)
	held := s.AwaitHeld(bad, 3) // the first attempt, and two immediate ones
	require.Equal(t, 3, held.Attempts)
	require.Equal(t, participant.Transient, held.Class)
	require.Contains(t, held.Error, "bank away")
	s.Advance(59 * time.Minute)
	held = s.AwaitHeld(bad, 3)
	require.Less(t, held.Wait, time.Minute)
	require.Equal(t, 3, held.Attempts, "one minute is left")
	s.Advance(time.Minute)
	require.Equal(t, 4, s.AwaitHeld(bad, 4).Attempts)
	require.Empty(t, paid(s, t, "o-1"), "the key waits")
	s.Advance(time.Hour)
	require.Equal(t, 5, s.AwaitDeadLetter(bad).Attempts)
	require.Equal(t, Paid{1}, testkit.Await[Paid](s, behind).Body)
}

func TestEventsOfOtherHopsAreHandled(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, testkit.StageConfig{
		Hop: "order", SQL: payments,
		Handlers: func(s *testkit.Stage, p *participant.Participant) {
			payment := topics.MustHop(s.Hop.Flow(), "payment")
			participant.On(p, payment, func(ctx context.Context, tx pgx.Tx, e participant.Event[Paid]) error {
				return p.Outbox().Write(ctx, tx, outbox.Entry{
					Topic: payment.Commands(), Key: string(e.Message.Key), Body: Pay{Cents: -e.Body.Cents},
				})
			})
		},
	})
	payment := topics.MustHop(s.Hop.Flow(), "payment")
	m := s.Event(payment, "o-1", Paid{5})
	s.Send(m)
	s.Settle()
	commands := s.Entries(payment.Commands())
	require.Len(t, commands, 1)
	require.Equal(t, "Pay", commands[0].Type)
	require.JSONEq(t, `{"Cents": -5, "Fail": ""}`, string(commands[0].Payload))
	require.Equal(t, m.ID, commands[0].CausationID)
}

// TestAnEventOfAFlowThatTestsShareIsRefused uses a hop that is a constant of the service's code, and so is the same for all of
// its tests.
func TestAnEventOfAFlowThatTestsShareIsRefused(t *testing.T) {
	t.Parallel()
	said := failures(t, func(t testing.TB) {
		testkit.NewStage(t, config()).Event(topics.MustHop("order", "payment"), "o-1", Paid{5})
	})
	require.Len(t, said, 1)
	require.Contains(t, said[0], `Event of the hop order.payment: tests that run in parallel with this one would share its topic. `+
		`Take topics.MustHop(s.Hop.Flow(), "payment")`)
}

func TestTablesComeFromAProgramToo(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.SQL = ""
	cfg.Migrate = func(ctx context.Context, url string) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, payments)
		return errors.Join(err, conn.Close(ctx))
	}
	s := testkit.NewStage(t, cfg)
	m := s.Command("o-1", Pay{Cents: 1})
	s.Send(m)
	testkit.Await[Paid](s, m)
}

func TestAnotherAnswerFailsTheTest(t *testing.T) {
	t.Parallel()
	said := failures(t, func(t testing.TB) {
		s := testkit.NewStage(t, config())
		m := s.Command("o-1", Pay{Fail: "decline"})
		s.Send(m)
		testkit.Await[Paid](s, m)
	})
	require.Len(t, said, 1)
	require.Contains(t, said[0], `Pay was answered with the failure event Declined, want Paid: "{\"Reason\":\"no credit\"}"`)

	said = failures(t, func(t testing.TB) {
		cfg := config()
		cfg.Participant.Retry.Attempts = 1
		s := testkit.NewStage(t, cfg)
		m := s.Command("o-1", Pay{Fail: "error"})
		s.Send(m)
		testkit.Await[Paid](s, m)
	})
	require.Len(t, said, 1)
	require.Contains(t, said[0], "bank away")
}

func TestMistakesInTheConfigAreSaid(t *testing.T) {
	t.Parallel()
	failing := func(context.Context, string) error { return errors.New("away") }
	for want, change := range map[string]func(*testkit.StageConfig){
		"StageConfig without Handlers": func(c *testkit.StageConfig) { c.Handlers = nil },
		"StageConfig.SQL":              func(c *testkit.StageConfig) { c.SQL = "CREATE TABEL x" },
		"StageConfig.Migrate": func(c *testkit.StageConfig) {
			c.Migrate = failing
		},
		`hop "Payment"`: func(c *testkit.StageConfig) { c.Hop = "Payment" },
		"the participant ended": func(c *testkit.StageConfig) {
			c.Handlers = func(*testkit.Stage, *participant.Participant) {}
		},
	} {
		cfg := config()
		change(&cfg)
		said := failures(t, func(t testing.TB) { testkit.NewStage(t, cfg) })
		require.NotEmpty(t, said, want)
		require.Contains(t, said[0], want)
	}
}

func BenchmarkNewStage(b *testing.B) {
	testkit.NewStage(b, config()) // starts the servers
	for b.Loop() {
		testkit.NewStage(b, config())
	}
}
