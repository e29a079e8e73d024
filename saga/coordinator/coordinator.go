package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/keyed"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/topics"
)

var (
	// ErrConflict is wrapped by the error of Start, Submit or Act if a concurrent transaction has changed or started the saga. It is
	// also wrapped if Postgres aborted the transaction because of another one, as in a deadlock. Run the whole transaction again: it
	// decides on the new state.
	ErrConflict = decisions.ErrConflict
	// ErrRefused is wrapped by the error about a start or an operator's action that is not allowed. The error gives the reason.
	ErrRefused = decisions.ErrRefused
	// ErrNotFound is wrapped by the error about a saga that is not in the database.
	ErrNotFound = decisions.ErrNotFound
)

// Config configures a Coordinator. Participant, Pool and Definitions are required.
//
// The hooks Parked, Decided, Stashed and Scheduled are called after the commit. Start and Act do not see the commit of a transaction that is not
// a participant's. They call the first three before it, and log the line about a parked saga: if the caller then rolls back, or the process
// ends, they have reported a decision that is not stored. All other hooks are not called if the process ends, or loses its connection, before
// it knows that the commit succeeded: alert on the parked sagas of Stats too, and read troupe.schedules.ran_at. No hook may block. A panic in Parked, Decided or
// Stashed ends the process, or is a panic of the caller of Start or Act. The hook is not called again for the same decision.
type Config struct {
	// Participant runs the coordinator: it consumes the events of the hops that the definitions name, and schedules the
	// deadlines. Its hop is the coordinator's hop.
	Participant *participant.Participant
	// Pool connects to the database of the participant.
	Pool *pgxpool.Pool
	// Definitions are the definitions of new sagas, at most one for each type. Sagas under way keep theirs.
	Definitions []*saga.Definition
	// Schemas reads and writes payloads that are not JSON; package schemas implements it for Avro. Default: all payloads are
	// JSON.
	Schemas Schemas
	// Parked is called for each saga that an operator must act on.
	Parked func(s saga.State, reason string)
	// Decided is called for each decision, also for one that changed nothing.
	Decided func(Decided)
	// Stashed is called for each event that is stashed, since it came before its saga.
	Stashed func(Stashed)
	// Scheduled is called for each occurrence of a schedule that this process has run.
	Scheduled func(Scheduled)
	// Conflict is called once for each transaction that failed because of a concurrent one, with an error that wraps ErrConflict.
	// Nothing of the transaction is stored. The participant and Submit run their transactions again. After Start and Act the caller
	// must try again.
	Conflict func(error)
	// Log gets a line for each saga that is parked, for stashed events that have expired, for each definition that another process has
	// stored, and for each problem, such as an event that is not kept. Log never gets a payload.
	Log zerolog.Logger
}

// Schemas reads payloads that are not JSON into values, with the name of their type. It writes a payload of a type from the JSON of its
// values. Each value has the one form that its type in the schema has, as schemas.Codec returns it. The value of a message is a
// map[string]any.
type Schemas interface {
	Values(ctx context.Context, payload []byte) (name string, value any, err error)
	FromValues(ctx context.Context, name string, text []byte) (envelope.Encoded, error)
}

// A Decided is the decision on one event for one saga.
type Decided struct {
	// Message is the index of the decided message among the messages of its transaction; -1: no message caused the decision.
	Message int
	ID      string
	At      time.Time // the time of the decision, by the database's clock
	Event   saga.Event
	State   saga.State // after the decision
	Effects saga.Effects
}

// A Stashed is an event that came before the saga that awaits it.
type Stashed struct {
	// Saga is the type of saga. The event finds its sagas by Value: the value of Variable or, if Variable is empty, the key.
	Saga, Variable, Value string
	Event                 saga.Event
	Expires               time.Time
}

// A Coordinator decides for the sagas of one service. It may be used concurrently. Several processes may run one: each decides for the
// partitions that its participant has.
type Coordinator struct {
	cfg         Config
	hop         topics.Hop
	definitions *decisions.Definitions
	decider     *decisions.Decider
	submissions *keyed.Lane[*submission, struct{}]
	waits       waits
	learnLimit  time.Duration
	mine        []topics.Hop // the hops of Config.Definitions: handleEvents gets their events; not changed once New has returned

	mu   sync.Mutex
	hops []string // the hops whose events are consumed; nil until New has found them; guarded by mu
}

// New stores the definitions and registers the coordinator's handlers with its participant. Call it before the participant's
// Run, which runs the coordinator.
//
// Each definition is stored in a transaction of its own. If New fails, the ones that it has stored stay: other processes of the coordinator
// consume their hops, and stash events for them.
func New(ctx context.Context, cfg Config) (*Coordinator, error) {
	switch {
	case cfg.Participant == nil:
		return nil, errors.New("coordinator: config without a participant")
	case cfg.Pool == nil:
		return nil, errors.New("coordinator: config without a pool")
	case len(cfg.Definitions) == 0:
		return nil, errors.New("coordinator: config without definitions")
	}
	ds, err := decisions.NewDefinitions(cfg.Definitions)
	if err != nil {
		return nil, fmt.Errorf("coordinator: %w", err)
	}
	c := &Coordinator{cfg: cfg, hop: cfg.Participant.Hop(), definitions: ds, learnLimit: learnLimit}
	ds.Find = func(ctx context.Context, hash string) (*saga.Definition, error) {
		d, err := decisions.ReadDefinition(ctx, cfg.Pool, hash)
		if err == nil {
			c.consume(d)
		}
		return d, err
	}
	hops, err := c.store(ctx)
	if err != nil {
		return nil, fmt.Errorf("coordinator: %w", err)
	}
	c.decider = decisions.New(decisions.Config{
		Participant: cfg.Participant, Definitions: ds, Schemas: cfg.Schemas, Log: cfg.Log,
		Decided: c.decided, Stashed: c.stashed, Conflict: cfg.Conflict,
	})
	c.register(hops)
	c.hops = hops
	cfg.Participant.Extension().Alongside(c.watch)
	c.runSchedules()
	c.takeSubmissions()
	return c, nil
}

// store stores the definitions of Config. It returns the hops whose events the coordinator must consume: the hops of these definitions,
// of the definitions in use, and of all stored definitions of the same types. Another process, or an operator, may begin a saga of a
// stored definition at any time.
func (c *Coordinator) store(ctx context.Context) (hops []string, err error) {
	const mayRun = `
SELECT definition, bool_or(in_use)
FROM (SELECT definition, true AS in_use
      FROM troupe.sagas
      WHERE hop = $1 AND consumer_group = $2 AND status IN ('waiting', 'running', 'compensating', 'parked')
      UNION
      SELECT hash, false
      FROM troupe.saga_definitions
      WHERE saga = ANY ($3)) AS found
GROUP BY definition
ORDER BY definition`
	if err := decisions.CheckNoOtherCoordinator(ctx, c.cfg.Pool, c.definitions.Names(), c.hop.String(), c.cfg.Participant.Group()); err != nil {
		return nil, err
	}
	for _, d := range c.cfg.Definitions {
		if err := decisions.StoreDefinition(ctx, c.cfg.Pool, d); err != nil {
			return nil, fmt.Errorf("store definition %s: %w", d, err)
		}
		hops = append(hops, d.Hops()...)
	}
	rows, err := c.cfg.Pool.Query(ctx, mayRun, c.hop.String(), c.cfg.Participant.Group(), c.definitions.Names())
	if err != nil {
		return nil, fmt.Errorf("look for definitions in use: %w", err)
	}
	type row struct {
		Hash  string
		InUse bool
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil {
		return nil, fmt.Errorf("look for definitions in use: %w", err)
	}
	for _, is := range all {
		d, err := c.readStored(ctx, is.Hash, is.InUse)
		var mistakes saga.Mistakes
		unreadable := errors.As(err, &mistakes)
		if unreadable {
			text, err := decisions.ReadText(ctx, c.cfg.Pool, is.Hash)
			if err != nil {
				return nil, err
			}
			c.definitions.AddUnreadable(is.Hash, text, !is.InUse)
		}
		switch {
		case is.InUse && (unreadable || errors.Is(err, decisions.ErrNoDefinition)): // as after a rollback to an older program
			c.cfg.Log.Error().Err(err).Str("definition", is.Hash).
				Msg("sagas under way have a definition that this process cannot read: it cannot decide for them. Their events on hops that it consumes become dead letters; other hops are not consumed for them")
		case unreadable:
			c.cfg.Log.Warn().Err(err).Str("definition", is.Hash).Msg(unreadableText)
		case err != nil:
			return nil, fmt.Errorf("definition %s: %w", is.Hash, err)
		default:
			hops = append(hops, d.Hops()...)
		}
	}
	slices.Sort(hops)
	return slices.Compact(hops), nil
}

// readStored reads a stored definition and adds it to the known ones, as idle unless a saga under way has it.
func (c *Coordinator) readStored(ctx context.Context, hash string, inUse bool) (*saga.Definition, error) {
	if inUse {
		return c.definitions.Of(ctx, hash)
	}
	d, err := decisions.ReadDefinition(ctx, c.cfg.Pool, hash)
	if err == nil && !c.definitions.Has(hash) {
		c.definitions.AddIdle(hash, d)
	}
	return d, err
}

// register registers the handlers of the events of hops. The participant may have other handlers for events of a hop that only definitions of
// other versions read: OnAllOptional gives way to them, and they are observed.
func (c *Coordinator) register(hops []string) {
	p := c.cfg.Participant
	p.Extension().NotRebuilt("the group has a coordinator, whose events decide sagas: give the handler a participant with a group of its own")
	var others []topics.Hop
	for _, name := range hops {
		hop := topics.MustHop(c.hop.Flow(), name)
		reads := func(d *saga.Definition) bool { return slices.Contains(d.Hops(), name) }
		switch {
		case slices.ContainsFunc(c.cfg.Definitions, reads):
			c.mine = append(c.mine, hop)
		case hop != c.hop:
			others = append(others, hop)
		}
	}
	if len(c.mine) > 0 {
		participant.OnAll(p, c.mine, c.handleEvents)
	}
	c.consumeAlso(others)
	if !slices.Contains(c.mine, c.hop) {
		participant.On(p, c.hop, c.gaveUp)
	}
	p.Extension().ObserveEvents(c.mayConcern, c.handleObserved)
}

// consumeAlso consumes the events of hops that only definitions of other versions read.
func (c *Coordinator) consumeAlso(hops []topics.Hop) {
	if len(hops) == 0 {
		return
	}
	c.cfg.Participant.Extension().OnAllOptional(hops, c.handleEvents)
}

// handleEvents handles the events of one transaction of the participant. It decides again if the process has learned new definitions.
func (c *Coordinator) handleEvents(ctx context.Context, tx pgx.Tx, taken []participant.Taken) error {
	for {
		w, err := c.decide(ctx, tx, taken)
		if errors.Is(err, errNewDefinitions) {
			continue
		}
		err = w.Finish(ctx, taken, err)
		var failed decisions.FailedAt
		if errors.As(err, &failed) && failed.Message >= 0 {
			return participant.At(failed.Message, failed.Err)
		}
		return err
	}
}

// decide decides on the events by the definitions that this process knows. If it finds new ones in the database, it learns them and
// returns errNewDefinitions, before it has written anything.
func (c *Coordinator) decide(ctx context.Context, tx pgx.Tx, taken []participant.Taken) (*decisions.Work, error) {
	w := c.decider.Begin(tx)
	c.queryNewDefinitions(w)
	ms := make([]decisions.Message, 0, len(taken))
	for i, t := range taken {
		m, err := c.read(ctx, w, tx, t.Message)
		if err != nil {
			return w, decisions.FailedAt{Message: i, Err: err}
		}
		ms = append(ms, m)
	}
	return w, w.Messages(ctx, ms)
}

// gaveUp handles an exhausted event of the coordinator's own hop. If the dead letter is an answer that the coordinator could not decide
// on, the saga is parked.
func (c *Coordinator) gaveUp(ctx context.Context, tx pgx.Tx, e participant.Event[participant.Exhausted]) error {
	w := c.decider.Begin(tx)
	m, err := c.exhausted(ctx, w, tx, e.Message)
	if err != nil {
		return err
	}
	return w.Finish(ctx, nil, w.Messages(ctx, []decisions.Message{m}))
}

// mayConcern reports whether an event that handleEvents does not get may be for a saga of another version's definition. An event that the
// coordinator's own sagas emit is mostly for other services: it may concern a saga only if a known definition starts by it or awaits it.
// mayConcern returns false for an exhausted event of the coordinator's own hop, which gaveUp handles.
func (c *Coordinator) mayConcern(m envelope.Message) bool {
	t, err := topics.Parse(m.Topic)
	own := t.Hop == c.hop
	switch {
	case err != nil || t.Hop.Flow() != c.hop.Flow() || slices.Contains(c.mine, t.Hop) || own && m.Type == (participant.Exhausted{}).MessageType():
		return false
	case m.SagaStep != "" || own && m.SagaID == "":
		return true
	}
	return c.definitions.Concern(t.Hop.Name(), m.Type)
}

// handleObserved decides on an event for which mayConcern has returned true.
func (c *Coordinator) handleObserved(ctx context.Context, tx pgx.Tx, in envelope.Message) error {
	for {
		w := c.decider.Begin(tx)
		c.queryNewDefinitions(w)
		m, err := c.read(ctx, w, tx, in)
		if err == nil {
			err = w.Messages(ctx, []decisions.Message{m})
		}
		if errors.Is(err, errNewDefinitions) {
			continue
		}
		return w.Finish(ctx, nil, err)
	}
}

// decided calls the hooks for a decision, notifies the calls of Wait, and logs a saga that is parked.
func (c *Coordinator) decided(d decisions.Decided) {
	if d.State.Ended() {
		c.waits.notify(d.ID)
	}
	if c.cfg.Decided != nil {
		c.cfg.Decided(Decided(d))
	}
	if d.Effects.Alert == "" {
		return
	}
	c.cfg.Log.Error().Str("saga", d.ID).Str("reason", d.Effects.Alert).Msg("saga parked: a person must act, unless an answer that is under way resumes it")
	if c.cfg.Parked != nil {
		c.cfg.Parked(d.State, d.Effects.Alert)
	}
}

func (c *Coordinator) stashed(s decisions.Stashed) {
	if c.cfg.Stashed != nil && s.For == "" {
		c.cfg.Stashed(Stashed{s.Saga, s.Variable, s.Value, s.Event, s.Expires})
	}
}
