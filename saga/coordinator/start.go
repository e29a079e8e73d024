package coordinator

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/saga"
)

// A StartRequest is what Desk.Start begins. Definition, Fields, Actor and Reason are required.
type StartRequest struct {
	Definition *saga.Definition
	// Fields are values for variables of the saga, at least its key.
	Fields map[string]any
	// Actor and Reason stand in the saga's log.
	Actor, Reason string
	// Hop (flow.name) and Group are the coordinator's that shall decide for it. Default: those of the sagas of this type
	// that there are; without any, Hop is required, and Group is as a participant's, the hop. Avro says that the payloads of
	// that flow are Avro; without a Hop it is what those sagas say.
	Hop, Group string
	Avro       bool
	// DryRun decides, and writes nothing.
	DryRun bool
}

// startTries is how often a start is tried that gives way to another one.
const startTries = 3

var errDryRun = errors.New("dry run")

// Start begins a saga as Coordinator.Start does, in a transaction of its own and in the name of a coordinator that need not
// run: its first commands stand in the outbox then. It gives what was decided, with the state after it. If there is a saga
// of that key, also an ended one, nothing is started: Effects.Ignored says so, and the state is that one's.
func (d *Desk) Start(ctx context.Context, r StartRequest) (done Decided, err error) {
	if r.Definition == nil {
		return done, errors.New("start: no definition")
	}
	name := r.Definition.Spec().Saga
	e := saga.Event{Kind: saga.Started, Fields: r.Fields, Actor: r.Actor, Reason: r.Reason}
	if err := checkWho(e); err != nil {
		return done, fmt.Errorf("saga %s: %w", name, err)
	}
	for range startTries {
		err = pgx.BeginFunc(ctx, d.cfg.Pool, func(tx pgx.Tx) error {
			done, err = d.start(ctx, tx, r, e)
			return err
		})
		if !errors.Is(err, ErrConflict) {
			break
		}
	}
	if errors.Is(err, errDryRun) {
		err = nil
	}
	if err != nil {
		return done, fmt.Errorf("start saga %s: %w", name, explain(err))
	}
	return done, nil
}

func (d *Desk) start(ctx context.Context, tx pgx.Tx, r StartRequest, e saga.Event) (done Decided, err error) {
	if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '"+lockLimit+"'"); err != nil {
		return done, err
	}
	home, err := d.home(ctx, tx, r)
	if err != nil {
		return done, err
	}
	c, err := d.standIn(home)
	if err != nil {
		return done, err
	}
	err = c.within(ctx, tx, func(w *work) error {
		if _, err := w.pass.beginOn(ctx, r.Definition, e); err != nil {
			return err
		}
		done = w.pass.decided[0]
		if err := d.canWrite(home.ContentType, done); err != nil || !r.DryRun {
			return err
		}
		return errDryRun
	})
	return done, err
}

// home is whose saga it will be.
func (d *Desk) home(ctx context.Context, tx pgx.Tx, r StartRequest) (*Detail, error) {
	var g Detail
	if r.Hop != "" {
		g.Hop, g.Group, g.ContentType = r.Hop, r.Group, envelope.JSON
		if g.Group == "" {
			g.Group = r.Hop
		}
		if r.Avro {
			g.ContentType = envelope.Avro
		}
		return &g, nil
	}
	const find = "SELECT hop, consumer_group, content_type FROM troupe.sagas WHERE saga = $1 LIMIT 1"
	err := tx.QueryRow(ctx, find, r.Definition.Spec().Saga).Scan(&g.Hop, &g.Group, &g.ContentType)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, errors.New("there is none of this type yet, which would say whose it is: name the coordinator's hop, " +
			"such as order.order (--hop)")
	}
	return &g, err
}

// Definition gives one that a coordinator has stored: the one that was stored last of a saga of this name, or the one of this
// hash. One that there is not is an error that wraps ErrNotFound.
func (d *Desk) Definition(ctx context.Context, nameOrHash string) (*saga.Definition, error) {
	const find = `
SELECT hash
FROM troupe.saga_definitions
WHERE saga = $1 OR hash = $1
ORDER BY created_at DESC, hash
LIMIT 1`
	var hash string
	err := d.cfg.Pool.QueryRow(ctx, find, nameOrHash).Scan(&hash)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("definition %s: %w: troupe saga list --counts shows what there is; a coordinator stores its "+
			"definitions when it starts", nameOrHash, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("definition %s: %w", nameOrHash, explain(err))
	}
	return d.definitions.of(ctx, hash)
}
