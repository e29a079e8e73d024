package sagadesk

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/topics"
)

// Config configures a Desk. Pool is required.
type Config struct {
	// Pool connects to a coordinator's database. The Desk uses at most two connections at a time.
	Pool *pgxpool.Pool
	// Schemas encodes the commands of flows whose payloads are Avro. It is not used for other flows, whose payloads are JSON.
	Schemas decisions.Schemas
}

// A Desk shows operators the sagas of one database and applies their actions, whether the coordinators run or not. It may be
// used concurrently.
type Desk struct {
	cfg         Config
	definitions *decisions.Definitions
}

// New makes a Desk. It does no I/O.
func New(cfg Config) (*Desk, error) {
	if cfg.Pool == nil {
		return nil, errors.New("sagadesk: config without a pool")
	}
	ds, err := decisions.NewDefinitions(nil)
	if err != nil {
		return nil, err
	}
	ds.Find = func(ctx context.Context, hash string) (*saga.Definition, error) {
		return decisions.ReadDefinition(ctx, cfg.Pool, hash)
	}
	ds.MaxBytes = 2 * formBytes // so that forms does not make it forget the definitions of the last sagas each time
	return &Desk{cfg, ds}, nil
}

// A Detail is everything that is stored of one saga, except its log.
type Detail struct {
	Row
	Definition *saga.Definition
	State      saga.State
	// ContentType is the content type of the messages that it sends.
	ContentType string
	// Now is the database's time when the saga was read.
	Now time.Time
	// Kept has the first 100 events that came before a step of the saga and are kept for it. Only Get sets it.
	Kept []KeptEvent
}

// A KeptEvent is an event that came before the step of a saga that awaits it. It finds the saga by the value of Variable, or by the key if
// Variable is empty. Long texts are cut to 200 characters.
type KeptEvent struct {
	Hop      string `json:"hop"`
	Type     string `json:"type"`
	Message  string `json:"message"` // its id
	Variable string `json:"variable,omitempty"`
}

const keptEvents = `
SELECT coalesce(left(event ->> 'hop', 200), ''), coalesce(left(event ->> 'type', 200), ''), coalesce(left(event ->> 'message', 200), ''),
       left(variable, 200)
FROM troupe.saga_stash
WHERE saga_id = @id AND saga_id <> ''
ORDER BY position
LIMIT 100`

// Get returns one saga. If it does not exist, the error wraps decisions.ErrNotFound.
func (d *Desk) Get(ctx context.Context, id string) (*Detail, error) {
	detail, err := d.get(ctx, d.cfg.Pool, id, "")
	if err != nil {
		return nil, fmt.Errorf("saga %s: %w", id, explain(err))
	}
	detail.Kept, err = collect[KeptEvent](ctx, d, "kept events", keptEvents, pgx.NamedArgs{"id": pgtext.Indexable(id)})
	return detail, err
}

func (d *Desk) get(ctx context.Context, q decisions.Querier, id, lock string) (*Detail, error) {
	var g Detail
	var state []byte
	err := q.QueryRow(ctx, "SELECT "+detailColumns+" FROM troupe.sagas WHERE id = $1"+lock, id).Scan(g.targets(&state)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("%w: troupe saga list shows what there is", decisions.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return &g, d.complete(ctx, &g, state)
}

// Preview returns what Act would do now, with the effects of the stashed events that the saga would take: saga.Decide on the stored state. It
// locks and writes nothing, so the right to read suffices, and e needs no actor and no reason. Act may decide differently if the saga changes in
// between.
func (d *Desk) Preview(ctx context.Context, id string, e saga.Event) (decisions.Decided, error) {
	if !e.Kind.Action() {
		return decisions.Decided{}, fmt.Errorf("saga %s: %w: %q is no action", id, decisions.ErrRefused, e.Kind)
	}
	g, err := d.Get(ctx, id)
	if err != nil {
		return decisions.Decided{}, err
	}
	would, err := decisions.Preview{Definition: g.Definition, State: g.State, Group: g.Group, Now: g.Now}.Act(ctx, d.cfg.Pool, e)
	if err != nil {
		return decisions.Decided{}, d.withAnswerer(ctx, id, e, explain(err))
	}
	return caused(would), d.canWrite(g.ContentType, would...)
}

// caused returns one decision that has the effects of the action in all[0] and of the stashed events that its saga took. It leaves out the
// decisions for other sagas, which got what the saga has left when it ended.
func caused(all []decisions.Decided) decisions.Decided {
	one := all[0]
	for _, d := range all[1:] {
		if d.ID != one.ID {
			continue
		}
		fx := &one.Effects
		one.State = d.State
		fx.Commands, fx.Events = slices.Concat(fx.Commands, d.Effects.Commands), slices.Concat(fx.Events, d.Effects.Events)
		fx.Scheduled, fx.Cancelled = slices.Concat(fx.Scheduled, d.Effects.Scheduled), slices.Concat(fx.Cancelled, d.Effects.Cancelled)
		fx.Met, fx.Moments = slices.Concat(fx.Met, d.Effects.Met), slices.Concat(fx.Moments, d.Effects.Moments)
		fx.Unlock, fx.Alert = fx.Unlock || d.Effects.Unlock, cmp.Or(d.Effects.Alert, fx.Alert)
	}
	return one
}

// StateHash returns a hash of the saga's status, its direction, its variables, the phase of each step, and State.Held. ActIfUnchanged compares it
// with the hash of a preview. How often an operator has sent a step's command again is no part of it: a saga that was retried, and is parked
// again at the same step, has the same hash.
func (g *Detail) StateHash() string {
	facts := struct {
		Status saga.Status
		Data   map[string]any
		Steps  []saga.StepState
		Back   bool   `json:",omitempty"`
		Held   string `json:",omitempty"` // a resume passes this condition, and must not pass one that the preview did not show
	}{Status: g.Status, Data: g.State.Data, Back: g.State.Back, Held: g.State.Held}
	for _, s := range g.State.Steps {
		facts.Steps = append(facts.Steps, saga.StepState{Name: s.Name, Phase: s.Phase})
	}
	text, _ := json.Marshal(facts) // the values came from JSON
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

func checkAction(e saga.Event) error {
	if !e.Kind.Action() {
		return fmt.Errorf("%w: %q is no action", decisions.ErrRefused, e.Kind)
	}
	return decisions.CheckActor(e)
}

// Act applies an operator's action, as Coordinator.Act does, in a transaction of its own and in the name of the coordinator
// that the saga belongs to. That coordinator need not run: the commands are then stored in its outbox. It returns the
// decision, with the effects of the stashed events that the saga took, and the state after them.
func (d *Desk) Act(ctx context.Context, id string, e saga.Event) (decisions.Decided, error) {
	return d.ActIfUnchanged(ctx, id, e, "")
}

// ActIfUnchanged is Act for an operator who has looked at a preview. previewed is Detail.StateHash of the preview: if the saga's hash is another
// one now, nothing is done, and the error wraps decisions.ErrRefused. If previewed is "", the state is not compared.
func (d *Desk) ActIfUnchanged(ctx context.Context, id string, e saga.Event, previewed string) (done decisions.Decided, err error) {
	if err := checkAction(e); err != nil {
		return done, fmt.Errorf("saga %s: %w", id, err)
	}
	e.Message = cmp.Or(e.Message, envelope.NewID())
	for range decisions.StartTries {
		err = d.change(ctx, id, func(w *decisions.Work, g *Detail) error {
			if previewed != "" && g.StateHash() != previewed {
				return fmt.Errorf("saga %s: %w: the saga has changed since the preview, and is %s now: nothing was done; open the preview again", id, decisions.ErrRefused, g.Status)
			}
			if _, err := w.Act(ctx, id, e); err != nil {
				return err
			}
			done = caused(w.Decided())
			return d.canWrite(g.ContentType, w.Decided()...)
		})
		if !errors.Is(err, decisions.ErrConflict) { // such as a deadlock with a time-out that fires
			break
		}
	}
	return done, d.withAnswerer(ctx, id, e, err)
}

// change locks a saga in a transaction, runs do, and saves its decisions.
func (d *Desk) change(ctx context.Context, id string, do func(*decisions.Work, *Detail) error) error {
	err := pgx.BeginTxFunc(ctx, d.cfg.Pool, decisions.Committed, func(tx pgx.Tx) error {
		if err := admin.LimitLocks(ctx, tx); err != nil {
			return err
		}
		g, err := d.get(ctx, tx, id, " FOR UPDATE")
		if err != nil {
			return fmt.Errorf("saga %s: %w", id, err)
		}
		c, err := d.deciderFor(g)
		if err != nil {
			return fmt.Errorf("saga %s: %w", id, err)
		}
		return c.Within(ctx, tx, func(w *decisions.Work) error { return do(w, g) })
	})
	if pg.Classify(err) == pg.Conflict && !errors.Is(err, decisions.ErrConflict) { // of the lock on the row
		err = fmt.Errorf("%w: %w", decisions.ErrConflict, err)
	}
	return explain(err)
}

// deciderFor returns a Decider that writes in the name of the coordinator that a saga belongs to. It handles no messages.
func (d *Desk) deciderFor(g *Detail) (*decisions.Decider, error) {
	hop, err := topics.ParseHop(g.Hop)
	if err != nil {
		return nil, err
	}
	p, err := participant.New(participant.Config{Pool: d.cfg.Pool, Hop: hop, Group: g.Group, Local: true})
	if err != nil {
		return nil, err
	}
	cfg := decisions.Config{Participant: p, Definitions: d.definitions}
	if g.ContentType == envelope.Avro {
		cfg.Schemas = d.cfg.Schemas
	}
	return decisions.New(cfg), nil
}

// canWrite returns an error if the messages of one of the decisions must be Avro and no schema registry is configured. An action may cause
// several decisions: the saga then takes events that were stashed.
func (d *Desk) canWrite(content string, all ...decisions.Decided) error {
	if content != envelope.Avro || d.cfg.Schemas != nil {
		return nil
	}
	for _, done := range all {
		var types []string
		for _, s := range done.Effects.Commands {
			if s.Type != saga.CallType { // always JSON
				types = append(types, s.Type)
			}
		}
		for _, e := range done.Effects.Events {
			types = append(types, e.Type)
		}
		if len(types) > 0 {
			return fmt.Errorf("saga %s: %w: it would send %s, and the payloads of this flow have schemas: name the schema registry "+
				"(--registry or SCHEMA_REGISTRY_URL)", done.ID, decisions.ErrRefused, strings.Join(types, ", "))
		}
	}
	return nil
}

// Possible returns the actions that a saga's state allows at now, each as the event without actor and reason. ActSkip and
// ActResolve also take the outputs of a step, and ActSet the variables. It leaves out ActAnswer, whose events QuestionsOf returns, and the retry of
// a step that is running: its answer is mostly on its way.
func Possible(d *saga.Definition, s saga.State, now time.Time) (all []saga.Event) {
	try := func(e saga.Event) {
		if _, fx := saga.Decide(d, s, e, now); fx.Refused == "" && fx.Ignored == "" {
			all = append(all, e)
		}
	}
	for _, step := range s.Steps {
		if step.Phase != saga.Intent && step.Phase != saga.CompensateIntent {
			try(saga.Event{Kind: saga.ActRetry, Step: step.Name})
		}
		try(saga.Event{Kind: saga.ActSkip, Step: step.Name})
		try(saga.Event{Kind: saga.ActResolve, Step: step.Name, Happened: true})
		try(saga.Event{Kind: saga.ActResolve, Step: step.Name})
	}
	try(saga.Event{Kind: saga.ActSet})
	try(saga.Event{Kind: saga.ActResume})
	try(saga.Event{Kind: saga.ActCancel})
	try(saga.Event{Kind: saga.ActCompensate})
	try(saga.Event{Kind: saga.ActAbandon})
	return all
}

// MarshalJSON returns the JSON that troupe saga show prints.
func (g *Detail) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Row
		State saga.State      `json:"state"`
		Spec  json.RawMessage `json:"spec"`
		Kept  []KeptEvent     `json:"kept,omitempty"`
	}{g.Row, g.State, g.Definition.JSON(), g.Kept})
}

func explain(err error) error { return admin.Explain(err, "docs/operating-sagas.md") }
