package sagadesk

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/saga"
)

// A StartRequest describes the saga that Desk.Start begins. Definition, Fields, Actor and Reason are required.
type StartRequest struct {
	Definition *saga.Definition
	// Fields are values for variables of the saga, at least its key.
	Fields map[string]any
	// Actor and Reason are stored in the saga's log.
	Actor, Reason string
	// Hop (flow.name) and Group name the coordinator that is to run the saga. Default: the coordinator of the existing sagas
	// of this type. If there are none, Hop is required, and Group defaults to the hop, as a participant's does. Avro means
	// that the payloads of that flow are Avro; without a Hop it is taken from the existing sagas.
	Hop, Group string
	Avro       bool
}

// ErrNoHop is wrapped by the error about a start for which the coordinator is unknown.
var ErrNoHop = errors.New("there is none of this type yet, which would say whose it is")

func (r StartRequest) event() (saga.Event, error) {
	e := saga.Event{Kind: saga.Started, Fields: r.Fields, Actor: r.Actor, Reason: r.Reason}
	if r.Definition == nil {
		return e, errors.New("start: no definition")
	}
	return e, nil
}

// PreviewStart returns what Start would do now, without the effects of stashed events that came before the saga. It locks and
// writes nothing, so the right to read suffices, and r needs no actor and no reason. Start may decide differently if something changes in between.
func (d *Desk) PreviewStart(ctx context.Context, r StartRequest) (decisions.Decided, error) {
	e, err := r.event()
	if err != nil {
		return decisions.Decided{}, err
	}
	would, err := d.previewStart(ctx, r, e)
	if err != nil {
		return decisions.Decided{}, fmt.Errorf("start saga %s: %w", r.Definition.Spec().Saga, explain(err))
	}
	return would, nil
}

func (d *Desk) previewStart(ctx context.Context, r StartRequest, e saga.Event) (would decisions.Decided, err error) {
	key, data, err := decisions.StartData(r.Definition, r.Fields)
	if err != nil {
		return would, err
	}
	would = decisions.Decided{Message: -1, ID: r.Definition.Spec().Saga + "/" + key, Event: e}
	would.Event.Fields = data
	home, err := d.home(ctx, d.cfg.Pool, r)
	if err != nil {
		return would, err
	}
	if is, err := d.get(ctx, d.cfg.Pool, would.ID, ""); !errors.Is(err, decisions.ErrNotFound) {
		if err != nil {
			return would, err
		}
		if is.Hop != home.Hop || is.Group != home.Group {
			return would, fmt.Errorf("saga %s: %w: %s", would.ID, decisions.ErrRefused, decisions.OwnedBy(is.Hop+" (group "+is.Group+")"))
		}
		would.At = is.Now
		would.State, would.Effects = saga.Decide(is.Definition, is.State, would.Event, is.Now)
		return would, nil
	}
	if _, err := d.deciderFor(home); err != nil {
		return would, err
	}
	lock, err := r.Definition.Lock(data)
	if err != nil {
		return would, fmt.Errorf("lock: %w", err)
	}
	const look = "SELECT clock_timestamp(), EXISTS (SELECT FROM troupe.saga_locks WHERE name = $1)"
	if err := d.cfg.Pool.QueryRow(ctx, look, pgtext.Indexable(r.Definition.Spec().Saga+"/"+lock)).Scan(&would.At, &would.Event.Locked); err != nil {
		return would, err
	}
	would.State, would.Effects = saga.Decide(r.Definition, saga.State{}, would.Event, would.At)
	if would.Effects.Refused != "" {
		return would, fmt.Errorf("%w: %s", decisions.ErrRefused, would.Effects.Refused)
	}
	return would, d.canWrite(home.ContentType, would)
}

// Start begins a saga as Coordinator.Start does, in a transaction of its own and in the name of a coordinator that need not
// run: the first commands are then stored in its outbox. It returns the decision, with the state after it. If a saga of that
// key exists, running or ended, nothing is started: Effects.Ignored gives the reason, and the state is the existing saga's.
func (d *Desk) Start(ctx context.Context, r StartRequest) (done decisions.Decided, err error) {
	e, err := r.event()
	if err != nil {
		return done, err
	}
	if err := decisions.CheckActor(e); err != nil {
		return done, fmt.Errorf("saga %s: %w", r.Definition.Spec().Saga, err)
	}
	for range decisions.StartTries {
		err = pgx.BeginTxFunc(ctx, d.cfg.Pool, decisions.Committed, func(tx pgx.Tx) error {
			done, err = d.start(ctx, tx, r, e)
			return err
		})
		if !errors.Is(err, decisions.ErrConflict) {
			break
		}
	}
	if err != nil {
		return done, fmt.Errorf("start saga %s: %w", r.Definition.Spec().Saga, explain(err))
	}
	return done, nil
}

func (d *Desk) start(ctx context.Context, tx pgx.Tx, r StartRequest, e saga.Event) (done decisions.Decided, err error) {
	if err := admin.LimitLocks(ctx, tx); err != nil {
		return done, err
	}
	home, err := d.home(ctx, tx, r)
	if err != nil {
		return done, err
	}
	c, err := d.deciderFor(home)
	if err != nil {
		return done, err
	}
	err = c.Within(ctx, tx, func(w *decisions.Work) error {
		if _, err := w.StartOn(ctx, r.Definition, e); err != nil {
			return err
		}
		done = w.Decided()[0]
		return d.canWrite(home.ContentType, w.Decided()...)
	})
	return done, err
}

// home returns the hop, the group and the content type of the coordinator that will run the saga. While another coordinator has
// sagas of the type under way it returns an error: a saga of each would keep both coordinators' processes from starting.
func (d *Desk) home(ctx context.Context, q decisions.Querier, r StartRequest) (*Detail, error) {
	g, err := d.named(ctx, q, r)
	if err == nil {
		err = decisions.CheckNoOtherCoordinator(ctx, q, []string{r.Definition.Spec().Saga}, g.Hop, g.Group)
	}
	return g, err
}

// named returns the coordinator that the request names, or else the coordinator of the saga of the type that started last: earlier ones may be
// of a hop or a group that was renamed since.
func (d *Desk) named(ctx context.Context, q decisions.Querier, r StartRequest) (*Detail, error) {
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
	const find = `
SELECT s.hop, s.consumer_group, s.content_type
FROM unnest($2::text[]) AS of (status)
CROSS JOIN LATERAL (
  SELECT hop, consumer_group, content_type, started_at
  FROM troupe.sagas
  WHERE saga = $1 AND status = of.status
  ORDER BY started_at DESC
  LIMIT 1) AS s
ORDER BY s.started_at DESC
LIMIT 1`
	err := q.QueryRow(ctx, find, r.Definition.Spec().Saga, decisions.Statuses).Scan(&g.Hop, &g.Group, &g.ContentType)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("%w: name the coordinator's hop, such as order.order (--hop)", ErrNoHop)
	}
	return &g, err
}

// Definition returns a stored definition: the one with this hash, or the latest stored of the saga with this name. If there
// is none, the error wraps decisions.ErrNotFound.
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
			"definitions when it starts", nameOrHash, decisions.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("definition %s: %w", nameOrHash, explain(err))
	}
	return d.definitions.Of(ctx, hash)
}
