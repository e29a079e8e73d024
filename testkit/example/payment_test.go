package payment_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// The service: one table, one handler.

type ChargePayment struct {
	OrderID string `json:"order_id"`
	Cents   int64  `json:"cents"`
}

type PaymentCharged struct {
	OrderID string `json:"order_id"`
}

type PaymentRefused struct {
	Reason string `json:"reason"`
}

const tables = `CREATE TABLE payments (order_id text PRIMARY KEY, cents bigint NOT NULL CHECK (cents >= 0))`

func charge(ctx context.Context, tx pgx.Tx, c participant.Command[ChargePayment]) (participant.Outcome, error) {
	if c.Body.Cents > 100_00 {
		return participant.Refuse(PaymentRefused{Reason: "credit limit"}), nil
	}
	_, err := tx.Exec(ctx, "INSERT INTO payments (order_id, cents) VALUES ($1, $2)", c.Body.OrderID, c.Body.Cents)
	return participant.Succeed(PaymentCharged{OrderID: c.Body.OrderID}), err
}

// Its tests.

func TestMain(m *testing.M) { testkit.Main(m) }

func paymentService() testkit.StageConfig {
	return testkit.StageConfig{
		SQL: tables,
		Handlers: func(_ *testkit.Stage, p *participant.Participant) {
			participant.Handle(p, charge)
		},
	}
}

func TestAPaymentIsChargedOrRefused(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, paymentService())
	small := s.Command("o-1", ChargePayment{OrderID: "o-1", Cents: 9_99})
	large := s.Command("o-2", ChargePayment{OrderID: "o-2", Cents: 250_00})
	s.Send(small, large, small) // the first one twice

	require.Equal(t, "o-1", testkit.Await[PaymentCharged](s, small).Body.OrderID)
	require.Equal(t, "credit limit", testkit.Await[PaymentRefused](s, large).Body.Reason)
	s.Settle()
	require.Len(t, s.Entries(s.Hop.Events()), 2, "the duplicate is not answered")
}

func TestACommandThatCannotBeChargedIsADeadLetter(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, paymentService())
	negative := s.Command("o-1", ChargePayment{OrderID: "o-1", Cents: -1})
	unreadable := s.Command("o-2", ChargePayment{})
	unreadable.Payload = []byte("\x00\x01")
	s.Send(negative, unreadable)

	require.Equal(t, participant.Permanent, s.AwaitDeadLetter(negative).Class)
	require.Equal(t, participant.Poison, s.AwaitDeadLetter(unreadable).Class)
}

func TestAPaymentWaitsForItsTable(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, paymentService())
	_, err := s.Pool.Exec(t.Context(), "ALTER TABLE payments RENAME TO away")
	require.NoError(t, err)
	c := s.Command("o-1", ChargePayment{OrderID: "o-1", Cents: 9_99})
	s.Send(c)
	s.AwaitHeld(c, 3) // tried three times at once; from now on with back-off

	_, err = s.Pool.Exec(t.Context(), "ALTER TABLE away RENAME TO payments")
	require.NoError(t, err)
	s.Advance(time.Minute)
	testkit.Await[PaymentCharged](s, c)
}

func TestAPaymentIsChargedOnceWhereverItIsInterrupted(t *testing.T) {
	t.Parallel()
	testkit.CrashAtEveryStep(t, paymentService(),
		func(s *testkit.Stage) envelope.Message {
			return s.Command("o-1", ChargePayment{OrderID: "o-1", Cents: 9_99})
		},
		testkit.Query("SELECT order_id, cents FROM payments"),
	)
}
