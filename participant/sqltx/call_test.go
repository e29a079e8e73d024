package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/participant/sqltx"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// registerTax registers a reaction that sends a command to its own hop, and the Call that handles that command.
func registerTax(p *participant.Participant, shipping topics.Hop, tax func(key string) (int64, error)) {
	out := p.Outbox()
	sqltx.React(p, shipping, func(ctx context.Context, tx *sql.Tx, e participant.Event[Shipped]) (participant.Outcome, error) {
		return participant.Done(), out.WriteSQL(ctx, tx, outbox.Entry{
			Topic: p.Hop().Commands(), Key: e.Body.OrderID, IdempotencyKey: e.Body.OrderID + "/charge", Body: Charge{OrderID: e.Body.OrderID},
		})
	})
	sqltx.Call(p, func(_ context.Context, c participant.Command[Charge]) (int64, error) {
		return tax(c.Message.IdempotencyKey)
	}, func(ctx context.Context, tx *sql.Tx, c participant.Command[Charge], cents int64) (participant.Outcome, error) {
		_, err := tx.ExecContext(ctx, "INSERT INTO payments VALUES ($1, $2)", c.Body.OrderID, cents)
		return participant.Succeed(Charged{OrderID: c.Body.OrderID}), err
	})
}

// TestAnEventLeadsToACall checks the way from an event to a call of another service: the reaction sends a command to its own hop, once for
// an event that comes twice, and Call handles it with the idempotency key that the reaction set.
func TestAnEventLeadsToACall(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	s := testkit.NewStage(t, testkit.StageConfig{
		SQL:         tables,
		Participant: participant.Config{Immediate: 2, Retry: retry.Policy{Attempts: 3}},
		Handlers: func(s *testkit.Stage, p *participant.Participant) {
			registerTax(p, topics.MustHop(s.Hop.Flow(), "shipping"), func(key string) (int64, error) {
				if key != "o-1/charge" {
					return 0, retry.Permanent(errors.New("another key: " + key))
				}
				if calls.Add(1) == 1 {
					return 0, errors.New("the tax office is busy")
				}
				return 19, nil
			})
		},
	})
	event := s.Event(topics.MustHop(s.Hop.Flow(), "shipping"), "o-1", Shipped{OrderID: "o-1"})
	s.Send(event, event)
	s.Settle()
	commands := s.Entries(s.Hop.Commands())
	require.Len(t, commands, 1)

	s.Send(commands[0], commands[0])
	require.Equal(t, "o-1", testkit.Await[Charged](s, commands[0]).Body.OrderID)
	s.Settle()
	require.EqualValues(t, 2, calls.Load())
	var cents int64
	require.NoError(t, s.Pool.QueryRow(t.Context(), "SELECT cents FROM payments WHERE order_id = 'o-1'").Scan(&cents))
	require.EqualValues(t, 19, cents)
}
