package coordinator

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
)

// A StartResult reports which saga a call of Start or Submit has started or found.
type StartResult struct {
	// ID is the saga's id: its type, a slash and its key.
	ID string
	// Existed is true if a saga of this key existed, running or ended. That saga stays as it is, and nothing was started. If the same
	// request was sent twice, answer the second as you answered the first.
	Existed bool
	// OtherData is true if the existing saga was started with other values. Two different requests have the same key then: answer the
	// second with an error, not with the result of the first. OtherData is false for a saga that was started by a version of this
	// package that did not store the data for this comparison.
	OtherData bool
}

// Start begins an instance of a saga in tx. fields has values for its variables, at least for the key. The first commands are sent
// after tx has committed: when Start returns, no step has run. If an instance of that key exists, running or ended, it stays as it is
// and nothing is started. The result reports that, and whether the data differ.
//
// If the saga takes a lock or awaits events, tx must have the isolation level read committed, and Start refuses any other. In a
// transaction that sees an earlier snapshot, the saga could wait for a lock that is free, or for an event that has come.
//
// After an error about a value that the definition cannot take, tx is unchanged. After any other error, roll tx back. If the error
// wraps ErrConflict, a concurrent transaction was faster: try again, and the start is decided on the new state.
func (c *Coordinator) Start(ctx context.Context, tx pgx.Tx, name string, fields map[string]any) (is StartResult, err error) {
	err = c.decider.Within(ctx, tx, func(w *decisions.Work) error {
		started, err := w.StartNamed(ctx, name, fields)
		is = StartResult(started)
		return err
	})
	if err != nil {
		return StartResult{}, fmt.Errorf("coordinator: start: %w", err)
	}
	return is, nil
}

// Act applies an operator's action to a saga, in tx, whose isolation level must be as for Start. saga.ActRetry and the other saga.Act
// constants are the actions. e needs an Actor and a Reason, which are stored in the saga's log. If the saga's state does not allow the
// action, the error wraps ErrRefused and gives the reason, and nothing was written.
//
// Act is not idempotent: if the result of tx's commit is unknown, read the saga's log before you call Act again.
func (c *Coordinator) Act(ctx context.Context, tx pgx.Tx, id string, e saga.Event) (saga.Effects, error) {
	if err := decisions.CheckActor(e); err != nil {
		return saga.Effects{}, fmt.Errorf("coordinator: %w", err)
	}
	e.Message = cmp.Or(e.Message, envelope.NewID())
	var fx saga.Effects
	err := c.decider.Within(ctx, tx, func(w *decisions.Work) (err error) {
		fx, err = w.Act(ctx, id, e)
		return err
	})
	if err != nil {
		return fx, fmt.Errorf("coordinator: %w", err)
	}
	return fx, nil
}
