package coordinator

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/saga"
)

// A Move is whether a saga can go on with another definition.
type Move struct {
	ID     string      `json:"id"`
	Status saga.Status `json:"status"`
	From   string      `json:"from"` // hash
	// Obstacle is why it cannot be moved; "": it can, or was.
	Obstacle string `json:"obstacle,omitempty"`
}

// Plan gives do each saga of to's type that has not ended and runs on another definition, in the order of their ids, with
// whether it can be moved. Nothing is changed.
func (d *Desk) Plan(ctx context.Context, to *saga.Definition, do func(Move) error) error {
	after := ""
	for {
		page, err := d.movable(ctx, to, after)
		if err != nil {
			return fmt.Errorf("plan: %w", explain(err))
		}
		if len(page) == 0 {
			return nil
		}
		for _, g := range page {
			m := Move{ID: g.ID, Status: g.Status, From: g.Row.Definition}
			if _, err := saga.Migrate(g.Definition, to, g.State); err != nil {
				m.Obstacle = err.Error()
			}
			if err := do(m); err != nil {
				return err
			}
			after = g.ID
		}
	}
}

// movable are the next sagas that Plan looks at.
func (d *Desk) movable(ctx context.Context, to *saga.Definition, after string) ([]*Detail, error) {
	const read = `
SELECT ` + rowColumns + `, state
FROM troupe.sagas
WHERE saga = @saga
  AND status IN ('waiting', 'running', 'compensating', 'parked')
  AND definition <> @definition
  AND id > @after
ORDER BY id
LIMIT 1000`
	rows, err := d.cfg.Pool.Query(ctx, read, pgx.NamedArgs{"saga": to.Spec().Saga, "definition": to.Hash(), "after": after})
	if err != nil {
		return nil, err
	}
	var states [][]byte
	page, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Detail, error) {
		g, state := new(Detail), []byte(nil)
		err := row.Scan(append(g.Row.fields(), &state)...)
		states = append(states, state)
		return g, err
	})
	if err != nil {
		return nil, err
	}
	for i, g := range page {
		if g.Definition, err = d.definitions.of(ctx, g.Row.Definition); err == nil {
			g.State, err = g.Definition.ReadState(states[i])
		}
		if err != nil {
			return nil, fmt.Errorf("saga %s: %w", g.ID, err)
		}
	}
	return page, nil
}

// Migrate moves what Plan says can be moved, each saga in a transaction of its own, and tells do of all. A move is an entry
// of the saga's log, with who and why. What changed since it was looked at is looked at again. Interrupted, the same call
// goes on with the rest.
//
// Coordinators must know the definition before (Config.Definitions, and started anew): else they do not read the events
// of the hops that only it names.
func (d *Desk) Migrate(ctx context.Context, to *saga.Definition, actor, reason string, do func(Move) error) error {
	if err := checkAction(saga.Event{Kind: saga.ActRetry, Actor: actor, Reason: reason}); err != nil {
		return err
	}
	s := to.Spec()
	if _, err := d.cfg.Pool.Exec(ctx, insertDefinition, to.Hash(), s.Saga, s.Version, string(to.JSON())); err != nil {
		return fmt.Errorf("store definition %s: %w", to, explain(err))
	}
	return d.Plan(ctx, to, func(m Move) error {
		if m.Obstacle != "" {
			return do(m)
		}
		err := d.change(ctx, m.ID, func(w *work, g *Detail) error {
			var in obstacle
			err := w.pass.move(ctx, m.ID, to, saga.Event{Kind: saga.Migrated, From: g.Row.Definition, To: to.Hash(), Actor: actor, Reason: reason})
			if errors.As(err, &in) {
				m.Obstacle = in.Error()
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
		return do(m)
	})
}

// obstacle is why a saga cannot be moved.
type obstacle struct{ error }

// move gives a saga another definition, and what was stashed for what it can be found by from now on.
func (p *pass) move(ctx context.Context, id string, to *saga.Definition, e saga.Event) error {
	if err := p.load(ctx, []string{id}); err != nil {
		return err
	}
	l := p.sagas[id]
	s, err := saga.Migrate(l.d, to, l.state)
	if err != nil {
		return obstacle{err}
	}
	l.entries = append(l.entries, Entry{s.Version, p.now, e, []saga.Moment{{What: saga.SagaMigrated, Why: "to " + to.String()}}})
	l.d, l.state = to, s
	return p.unstash(ctx, -1, id)
}
