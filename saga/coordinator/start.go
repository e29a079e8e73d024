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
}

// startTries is how often a start is tried that gives way to another one.
const startTries = 3

// ErrNoHop is wrapped by errors about a start of which nobody knows whose it is.
var ErrNoHop = errors.New("there is none of this type yet, which would say whose it is")

func (r StartRequest) event() (saga.Event, error) {
	e := saga.Event{Kind: saga.Started, Fields: r.Fields, Actor: r.Actor, Reason: r.Reason}
	if r.Definition == nil {
		return e, errors.New("start: no definition")
	}
	if err := checkWho(e); err != nil {
		return e, fmt.Errorf("saga %s: %w", r.Definition.Spec().Saga, err)
	}
	return e, nil
}

// PreviewStart is what Start would do now, but for what events did that came before the saga. Nothing is locked and nothing
// written, so the right to read suffices; what happens in between can make it otherwise.
func (d *Desk) PreviewStart(ctx context.Context, r StartRequest) (Decided, error) {
	e, err := r.event()
	if err != nil {
		return Decided{}, err
	}
	would, err := d.previewStart(ctx, r, e)
	if err != nil {
		return Decided{}, fmt.Errorf("start saga %s: %w", r.Definition.Spec().Saga, explain(err))
	}
	return would, nil
}

func (d *Desk) previewStart(ctx context.Context, r StartRequest, e saga.Event) (would Decided, err error) {
	key, data, err := startData(r.Definition, r.Fields)
	if err != nil {
		return would, err
	}
	would = Decided{Message: -1, ID: r.Definition.Spec().Saga + "/" + key, Event: e}
	would.Event.Fields = data
	if is, err := d.get(ctx, d.cfg.Pool, would.ID, ""); !errors.Is(err, ErrNotFound) {
		if err == nil {
			would.At = is.Now
			would.State, would.Effects = saga.Decide(is.Definition, is.State, would.Event, is.Now)
		}
		return would, err
	}
	home, err := d.home(ctx, d.cfg.Pool, r)
	if err != nil {
		return would, err
	}
	if _, err := d.standIn(home); err != nil {
		return would, err
	}
	lock, err := r.Definition.Lock(data)
	if err != nil {
		return would, fmt.Errorf("lock: %w", err)
	}
	const look = "SELECT clock_timestamp(), EXISTS (SELECT FROM troupe.saga_locks WHERE name = $1)"
	if err := d.cfg.Pool.QueryRow(ctx, look, indexable(r.Definition.Spec().Saga+"/"+lock)).Scan(&would.At, &would.Event.Locked); err != nil {
		return would, err
	}
	would.State, would.Effects = saga.Decide(r.Definition, saga.State{}, would.Event, would.At)
	if would.Effects.Refused != "" {
		return would, fmt.Errorf("%w: %s", ErrRefused, would.Effects.Refused)
	}
	return would, d.canWrite(home.ContentType, would)
}

// Start begins a saga as Coordinator.Start does, in a transaction of its own and in the name of a coordinator that need not
// run: its first commands stand in the outbox then. It gives what was decided, with the state after it. If there is a saga
// of that key, also an ended one, nothing is started: Effects.Ignored says so, and the state is that one's.
func (d *Desk) Start(ctx context.Context, r StartRequest) (done Decided, err error) {
	e, err := r.event()
	if err != nil {
		return done, err
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
	if err != nil {
		return done, fmt.Errorf("start saga %s: %w", r.Definition.Spec().Saga, explain(err))
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
		return d.canWrite(home.ContentType, done)
	})
	return done, err
}

// home is whose saga it will be.
func (d *Desk) home(ctx context.Context, q querier, r StartRequest) (*Detail, error) {
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
	err := q.QueryRow(ctx, find, r.Definition.Spec().Saga).Scan(&g.Hop, &g.Group, &g.ContentType)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("%w: name the coordinator's hop, such as order.order (--hop)", ErrNoHop)
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
