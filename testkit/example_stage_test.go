package testkit_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

type ChargePayment struct {
	OrderID string `json:"order_id"`
	Cents   int64  `json:"cents"`
}

type PaymentCharged struct {
	OrderID string `json:"order_id"`
}

func charge(ctx context.Context, tx pgx.Tx, c participant.Command[ChargePayment]) (participant.Outcome, error) {
	_, err := tx.Exec(ctx, "INSERT INTO payments (order_id, cents) VALUES ($1, $2)", c.Body.OrderID, c.Body.Cents)
	return participant.Succeed(PaymentCharged{OrderID: c.Body.OrderID}), err
}

// ExampleNew shows the body of a test: a participant with one handler, a command, and its answer. docs/testing.md shows a whole
// file.
func ExampleNewStage() {
	_ = func(t *testing.T) {
		s := testkit.NewStage(t, testkit.StageConfig{
			SQL: "CREATE TABLE payments (order_id text PRIMARY KEY, cents bigint NOT NULL)",
			Handlers: func(_ *testkit.Stage, p *participant.Participant) {
				participant.Handle(p, charge)
			},
		})
		c := s.Command("o-1", ChargePayment{OrderID: "o-1", Cents: 9_99})
		s.Send(c)
		require.Equal(t, "o-1", testkit.Await[PaymentCharged](s, c).Body.OrderID)
	}
}

// ExampleCrashAtEveryStep tests a handler that calls another system. The call is repeated with each run, and only a test that
// counts the calls there can detect this: here a bank that counts them.
func ExampleCrashAtEveryStep() {
	_ = func(t *testing.T) {
		testkit.CrashAtEveryStep(t, testkit.StageConfig{
			SQL: "CREATE TABLE payments (order_id text, cents bigint); CREATE TABLE calls (order_id text)",
			Handlers: func(s *testkit.Stage, p *participant.Participant) {
				callTheBank := func(ctx context.Context, id string) error {
					_, err := s.Pool.Exec(ctx, "INSERT INTO calls VALUES ($1)", id)
					return err
				}
				type command = participant.Command[ChargePayment]
				participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c command) (participant.Outcome, error) {
					if err := callTheBank(ctx, c.Body.OrderID); err != nil {
						return participant.Outcome{}, err
					}
					return charge(ctx, tx, c)
				})
			},
		}, func(s *testkit.Stage) envelope.Message {
			return s.Command("o-1", ChargePayment{OrderID: "o-1", Cents: 9_99})
		}, testkit.Query("SELECT count(*) FROM calls"))
	}
}
