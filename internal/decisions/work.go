package decisions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/topics"
)

// Config configures a Decider. Participant and Definitions are required.
type Config struct {
	// Participant writes the messages and the deadlines. It has the hop and the group of the coordinator.
	Participant *participant.Participant
	Definitions *Definitions
	Schemas     Schemas // nil: all payloads are JSON
	Log         zerolog.Logger
	// Decided, Stashed and Conflict are the hooks of a coordinator: see coordinator.Config. Each may be nil.
	Decided  func(Decided)
	Stashed  func(Stashed)
	Conflict func(error)
}

// Schemas reads payloads that are not JSON into values, with the name of their type. It writes a payload of a type from the JSON of its
// values.
type Schemas interface {
	Values(ctx context.Context, payload []byte) (name string, value any, err error)
	FromValues(ctx context.Context, name string, text []byte) (envelope.Encoded, error)
}

// A Decider decides for the sagas of one coordinator, and writes messages in the coordinator's name. It may be used concurrently.
type Decider struct {
	cfg Config
	hop topics.Hop
}

// New returns a Decider. It registers the handlers of the Decider's deadlines with the participant.
func New(cfg Config) *Decider {
	d := &Decider{cfg, cfg.Participant.Hop()}
	participant.OnDeadline(cfg.Participant, wakeName, d.wake)
	cfg.Participant.Extension().FireAfterBacklog(wakeName)
	participant.OnDeadline(cfg.Participant, grantName, d.wake)
	participant.OnDeadline(cfg.Participant, searchName, d.search)
	participant.OnDeadline(cfg.Participant, retryName, d.handleRetry)
	participant.OnDeadline(cfg.Participant, lastRetryName, d.handleRetry)
	cfg.Participant.Extension().FireAfterBacklog(lastRetryName)
	return d
}

// Work is one transaction of a coordinator. The caller first makes the decisions, by Messages, Start or Act. Then it calls End, or Finish,
// which writes everything that follows from them.
type Work struct {
	// Callers has the context of each caller that starts a saga in this transaction, by the saga's id. Submit sets Callers.
	Callers map[string]context.Context

	d                *Decider
	tx               pgx.Tx
	store            *Postgres
	pass             *pass
	conflictReported bool // Config.Conflict has been called
	expired          map[expiredKind]int
	warnings         []func()
}

// Warn adds a function that logs a line about this transaction. CallHooks calls it, so that a transaction that is rolled back logs nothing.
func (w *Work) Warn(log func()) { w.warnings = append(w.warnings, log) }

// Begin returns a Work that decides in tx.
func (d *Decider) Begin(tx pgx.Tx) *Work {
	store := NewPostgres(tx, d.hop.String(), d.cfg.Participant.Group())
	limit := d.cfg.Participant.Outbox().MaxBytes()
	if d.cfg.Schemas != nil {
		store.content = envelope.Avro
		limit = 0 // the size in Avro is not known before the message is written
	}
	w := &Work{d: d, tx: tx, store: store, pass: d.cfg.Definitions.begin(store), expired: make(map[expiredKind]int)}
	w.pass.limit = limit
	store.reportConflict = w.ReportConflict
	store.expired = func(s Stashed) { w.expired[expiredKind{s.Saga, s.Event.Hop, s.Event.Type}]++ }
	return w
}

// ReportConflict returns err, wrapped in ErrConflict if a concurrent transaction caused it. In that case it calls Config.Conflict, once
// for each Work.
func (w *Work) ReportConflict(err error) error {
	err = conflict(err)
	if hook := w.d.cfg.Conflict; hook != nil && !w.conflictReported && errors.Is(err, ErrConflict) {
		w.conflictReported = true
		hook(err)
	}
	return err
}

// WithFirstLoad sends batch together with the statement that loads the first sagas, so that batch takes no round trip of its own. Messages
// calls done when batch has been read, before its first decision. If Messages loads no saga, it sends batch by itself.
func (w *Work) WithFirstLoad(batch *pgx.Batch, done func() error) {
	w.store.withFirstLoad = batch
	w.pass.afterFirstLoad = func(ctx context.Context) error {
		if w.store.withFirstLoad != nil { // no saga was loaded
			w.store.withFirstLoad = nil
			if err := w.tx.SendBatch(ctx, batch).Close(); err != nil {
				return err
			}
		}
		return done()
	}
}

// Decided returns the decisions so far.
func (w *Work) Decided() []Decided { return w.pass.decided }

// Messages decides on ms, in their order. If it fails because of one message, the error is a FailedAt.
func (w *Work) Messages(ctx context.Context, ms []Message) error { return w.pass.messages(ctx, ms) }

// Load loads and locks the sagas of ids in one statement, before the caller decides for them.
func (w *Work) Load(ctx context.Context, ids []string) error { return w.pass.load(ctx, ids) }

// Start starts the saga of s. Call Load with the saga's id before.
func (w *Work) Start(ctx context.Context, s Start) (StartResult, error) {
	is := w.pass.found(s.target)
	return is, w.pass.start(ctx, s.target)
}

// StartNamed starts a saga of the type name, on the type's current definition.
func (w *Work) StartNamed(ctx context.Context, name string, fields map[string]any) (StartResult, error) {
	return w.pass.begin(ctx, name, fields)
}

// StartOn starts a saga on definition d. e has the values, the actor and the reason.
func (w *Work) StartOn(ctx context.Context, d *saga.Definition, e saga.Event) (StartResult, error) {
	return w.pass.beginOn(ctx, d, e)
}

// Move moves a saga to the definition to. If the saga cannot be moved, the error is an Obstacle.
func (w *Work) Move(ctx context.Context, id string, to *saga.Definition, e saga.Event) error {
	return w.pass.move(ctx, id, to, e)
}

// Act applies an operator's action to a saga.
func (w *Work) Act(ctx context.Context, id string, e saga.Event) (saga.Effects, error) {
	return w.pass.act(ctx, id, e)
}

// Queued is a transaction that collects the statements of QueueBatch, and sends them in one round trip. All other statements are sent
// at once.
type Queued struct {
	pgx.Tx
	Batch pgx.Batch
}

// QueueBatch adds the statements of b. Flush sends them.
func (q *Queued) QueueBatch(b *pgx.Batch) error {
	q.Batch.QueuedQueries = append(q.Batch.QueuedQueries, b.QueuedQueries...)
	return nil
}

// Flush sends the collected statements.
func (q *Queued) Flush(ctx context.Context) error {
	if q.Batch.Len() == 0 {
		return nil
	}
	return q.Tx.SendBatch(ctx, &q.Batch).Close()
}

// correlationOf returns the correlation id for a saga that a caller starts: the one of the message whose handler calls, or a new one.
func correlationOf(ctx context.Context) string {
	if cause := envelope.CauseOf(ctx); cause != nil {
		return cmp.Or(cause.Message.CorrelationID, cause.Message.ID)
	}
	return envelope.NewID()
}

// callerContext returns the context of the caller that starts the saga id, or ctx if no caller in Callers starts it.
func (w *Work) callerContext(ctx context.Context, id string) context.Context {
	if caller := w.Callers[id]; caller != nil {
		return caller
	}
	return ctx
}

// Within runs do in a caller's transaction. The sagas, the messages and the deadlines are written after do has decided everything.
// Locks and stashed events are written at once, so the caller must roll back after an error. The hooks are called before the caller
// commits, unless tx is the transaction of a participant's handler: then they are called after its commit.
func (d *Decider) Within(ctx context.Context, tx pgx.Tx, do func(*Work) error) error {
	q := &Queued{Tx: tx}
	w := d.Begin(q)
	w.pass.correlation = correlationOf(ctx)
	err := do(w)
	if err == nil {
		err = w.End(ctx, nil)
	}
	if err == nil {
		err = q.Flush(ctx)
	}
	if err == nil {
		w.callHooksOnCommit(tx)
	}
	return w.ReportConflict(err)
}

// End saves the sagas, and writes the messages and the deadlines that follow from the decisions. A message is written in the context of
// the message that caused it. taken has the messages that were decided on; nil: a call or a deadline caused the decisions.
func (w *Work) End(ctx context.Context, taken []participant.Taken) error {
	wake, err := w.pass.end(ctx)
	if err != nil {
		return err
	}
	out := w.d.cfg.Participant.Outbox()
	var rows outbox.Rows
	causes := make(map[causeKey]*envelope.Cause)
	rendered := 0
	for _, d := range w.pass.decided {
		entries, err := w.d.entries(ctx, d)
		if err != nil {
			return at(d.Message, err)
		}
		for _, e := range entries {
			rendered += len(e.Payload)
		}
		if rendered > maxDecided && d.Message >= 0 && len(w.pass.decidedFor) > 1 {
			return at(d.Message, fmt.Errorf("the messages of this transaction have more than %d MiB", maxDecided>>20))
		}
		caller := w.callerContext(ctx, d.ID)
		if len(entries) > 0 && taken == nil && d.Event.Kind == saga.Started && envelope.CauseOf(caller) == nil {
			entries[0].ID = d.State.Correlation // the saga begins the flow, whose correlation id is the id of its first message
		}
		for i, e := range entries {
			path := ""
			if k := i - len(d.Effects.Commands); k >= 0 {
				path = d.Effects.Events[k].Path
			}
			if err := out.Render(follow(caller, d, e, path, taken, causes), &rows, e); err != nil {
				return at(d.Message, err)
			}
		}
	}
	deadlines := w.d.cfg.Participant.Extension().Deadlines()
	for _, c := range wake {
		if err := w.schedule(w.callerContext(ctx, c.State.ID()), deadlines, c); err != nil {
			return err
		}
	}
	for _, id := range w.pass.unread {
		if err := deadlines.Schedule(ctx, grant(id, w.pass.now)); err != nil {
			return err
		}
	}
	for _, s := range w.pass.search {
		if err := deadlines.Schedule(ctx, searchAt(s, w.pass.now)); err != nil {
			return err
		}
	}
	if err := w.scheduleRetries(ctx, deadlines, taken); err != nil {
		return err
	}
	batch := &pgx.Batch{}
	out.Queue(batch, &rows)
	deadlines.Queue(batch)
	return queue(ctx, w.tx, batch)
}

// Finish calls End, unless err, the error of the decisions, is set. It has CallHooks called after the commit, or at once if the transaction
// does not report its commit. Finish returns the error as ReportConflict does.
func (w *Work) Finish(ctx context.Context, taken []participant.Taken, err error) error {
	if err == nil {
		err = w.End(ctx, taken)
	}
	if err == nil {
		w.callHooksOnCommit(w.tx)
	}
	return w.ReportConflict(err)
}

// callHooksOnCommit calls CallHooks after tx has committed, or at once if tx does not report its commit.
func (w *Work) callHooksOnCommit(tx pgx.Tx) {
	if !participant.AfterCommit(tx, w.CallHooks) {
		w.CallHooks()
	}
}

// expiredKind is a kind of stashed events that expired: the type of the saga that awaited them, and the event.
type expiredKind struct{ saga, hop, event string }

// CallHooks calls Config.Stashed and Config.Decided for everything that this Work has done. It also logs the stashed events that have
// expired, and the lines of Warn, such as the early answers that are ignored or have waited for an hour.
// If the process ends between the commit and CallHooks, these log lines are lost, as the calls of the hooks are.
//
// Call it after the commit. In a caller's transaction, whose commit is not reported, call it after the last statement.
func (w *Work) CallHooks() {
	for _, log := range w.warnings {
		log()
	}
	for kind, n := range w.expired {
		w.d.cfg.Log.Info().Str("saga", kind.saga).Str("hop", kind.hop).Str("event", kind.event).Int("events", n).
			Msg("stashed events have expired: no saga took them")
	}
	if hook := w.d.cfg.Stashed; hook != nil {
		for _, s := range w.pass.stashed {
			hook(s)
		}
	}
	if hook := w.d.cfg.Decided; hook != nil {
		for _, d := range w.pass.decided {
			hook(d)
		}
	}
}

// MessageOf returns the Message of m's headers. Its Fields are not set.
func MessageOf(m envelope.Message, hop string) Message {
	return Message{
		ID: m.ID, Hop: hop, Type: m.Type, Key: string(m.Key), Outcome: string(m.Outcome), Correlation: cmp.Or(m.CorrelationID, m.ID),
		SagaID: m.SagaID, SagaStep: m.SagaStep, SagaOperation: m.SagaOperation, Epoch: epochOf(m.IdempotencyKey),
	}
}

// epochOf returns the epoch in the idempotency key of an answer, which is the key of the answered command: entries writes it.
func epochOf(key string) int {
	epoch, err := strconv.Atoi(key[strings.LastIndexByte(key, '/')+1:])
	if err != nil {
		return 0 // no coordinator wrote this key
	}
	return epoch
}
