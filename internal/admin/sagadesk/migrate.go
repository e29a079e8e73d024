package sagadesk

import (
	"context"
	"errors"
	"fmt"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/saga"
)

// A Move reports whether a saga can continue on another definition.
type Move struct {
	ID     string      `json:"id"`
	Status saga.Status `json:"status"`
	From   string      `json:"from"` // hash
	// Obstacle is the reason why it cannot be moved; "": it can, or was.
	Obstacle string `json:"obstacle,omitempty"`
}

// A Migration selects sagas and the definition that they are moved to. To is required.
type Migration struct {
	// From is the definition that the sagas run on. Nil: any other definition of To's saga.
	From, To *saga.Definition
	// Actor and Reason are stored in the log of each saga that is moved. Plan needs neither.
	Actor, Reason string
}

// Validate returns an error if nothing could ever be moved.
func (m Migration) Validate() error {
	switch {
	case m.To == nil:
		return errors.New("a migration to no definition")
	case m.From == nil:
	case m.From.Hash() == m.To.Hash():
		return fmt.Errorf("from %s to itself: want two definitions", m.From)
	case m.From.Spec().Saga != m.To.Spec().Saga:
		return fmt.Errorf("from %s to %s: want two definitions of one saga", m.From, m.To)
	}
	return nil
}

// Plan calls do for each saga of To's type that has not ended and runs on From, in the order of their ids, with whether it
// can be moved. It changes nothing. A saga that cannot be read cannot be moved. Plan stops at the first error of do, and returns that error.
func (d *Desk) Plan(ctx context.Context, m Migration, do func(Move) error) error {
	if err := m.Validate(); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	which := "saga = @saga AND status IN ('waiting', 'running', 'compensating', 'parked') AND definition <> @to"
	args := pg.Args{"saga": m.To.Spec().Saga, "to": m.To.Hash()}
	if m.From != nil {
		which, args["from"] = which+" AND definition = @from", m.From.Hash()
	}
	return d.each(ctx, which, args, func(g *Detail, err error) error {
		one := Move{ID: g.ID, Status: g.Status, From: g.Row.Definition}
		if err == nil {
			_, err = saga.Migrate(g.Definition, m.To, g.State)
		}
		if err != nil {
			one.Obstacle = err.Error()
		}
		return do(one)
	})
}

// Migrate moves the sagas that Plan reports as movable, each in a transaction of its own, and calls do for every saga of the
// plan. A move is an entry of the saga's log, with the actor and the reason. Each saga is checked again under its lock, since
// it may have changed after the plan. If Migrate is interrupted, the same call continues with the rest.
//
// Running coordinators consume the hops that only this definition names within seconds. They start sagas with the definitions in
// Config.Definitions, as before.
func (d *Desk) Migrate(ctx context.Context, m Migration, do func(Move) error) error {
	err := m.Validate()
	if err == nil {
		err = decisions.CheckActor(saga.Event{Actor: m.Actor, Reason: m.Reason})
	}
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	to := m.To
	if err := decisions.StoreDefinition(ctx, d.cfg.Pool, to); err != nil {
		return fmt.Errorf("store definition %s: %w", to, explain(err))
	}
	return d.Plan(ctx, m, func(one Move) error {
		if one.Obstacle != "" {
			return do(one)
		}
		var unwritten error // the move would cause a message that this program cannot write
		err := d.change(ctx, one.ID, func(w *decisions.Work, g *Detail) error {
			if m.From != nil && g.Row.Definition != m.From.Hash() {
				one.Obstacle = "it was moved meanwhile"
				return nil
			}
			var in decisions.Obstacle
			e := saga.Event{Kind: saga.Migrated, From: g.Row.Definition, To: to.Hash(), Actor: m.Actor, Reason: m.Reason}
			err := w.Move(ctx, one.ID, to, e)
			if errors.As(err, &in) {
				one.Obstacle = in.Error()
				return nil
			}
			if err == nil {
				unwritten = d.canWrite(g.ContentType, w.Decided()...)
				err = unwritten
			}
			return err
		})
		switch {
		case err == nil:
		case unwritten != nil && errors.Is(err, unwritten):
			one.Obstacle = unwritten.Error()
		default:
			return err
		}
		return do(one)
	})
}
