package coordinator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/topics"
)

// work is one transaction of a coordinator: first a pass on the sagas' tables, then the messages and deadlines that follow.
type work struct {
	c     *Coordinator
	tx    pgx.Tx
	store *Postgres
	pass  *pass
	gave  bool // Config.Conflict has been called
	// callers are, by the sagas' ids, the contexts of the callers who start sagas in one transaction.
	callers map[string]context.Context
}

func (c *Coordinator) begin(tx pgx.Tx) *work {
	store := NewPostgres(tx, c.hop.String(), c.cfg.Participant.Group())
	if c.cfg.Schemas != nil {
		store.content = envelope.Avro
	}
	w := &work{c: c, tx: tx, store: store, pass: c.definitions.begin(store)}
	store.lost = w.lost
	return w
}

// lost calls Config.Conflict if err is a conflict, once for each work.
func (w *work) lost(err error) error {
	err = conflict(err)
	if hook := w.c.cfg.Conflict; hook != nil && !w.gave && errors.Is(err, ErrConflict) {
		w.gave = true
		hook(err)
	}
	return err
}

// queued is a caller's transaction that collects statements, so that they are sent in one round trip.
type queued struct {
	pgx.Tx
	batch pgx.Batch
}

// QueueBatch adds b to the statements that flush sends.
func (q *queued) QueueBatch(b *pgx.Batch) error {
	q.batch.QueuedQueries = append(q.batch.QueuedQueries, b.QueuedQueries...)
	return nil
}

// flush sends the collected statements.
func (q *queued) flush(ctx context.Context) error {
	if q.batch.Len() == 0 {
		return nil
	}
	return q.Tx.SendBatch(ctx, &q.batch).Close()
}

// correlationOf returns the correlation id for a saga that a caller begins: the one of the message whose handler calls, or a
// new one.
func correlationOf(ctx context.Context) string {
	if cause := envelope.CauseOf(ctx); cause != nil {
		return cmp.Or(cause.Message.CorrelationID, cause.Message.ID)
	}
	return envelope.NewID()
}

// of returns the context of the caller who starts the saga, or ctx.
func (w *work) of(ctx context.Context, id string) context.Context {
	if caller := w.callers[id]; caller != nil {
		return caller
	}
	return ctx
}

// within runs do in a caller's transaction. Nothing is written before do has decided everything.
func (c *Coordinator) within(ctx context.Context, tx pgx.Tx, do func(*work) error) error {
	q := &queued{Tx: tx}
	w := c.begin(q)
	w.pass.correlation = correlationOf(ctx)
	err := do(w)
	if err == nil {
		err = w.end(ctx, nil)
	}
	if err == nil {
		err = q.flush(ctx)
	}
	if err == nil {
		w.told()
	}
	return w.lost(err)
}

// end saves the sagas, and writes the messages, each in the context of the message that caused it, and the deadlines that
// wake sagas.
func (w *work) end(ctx context.Context, taken []participant.Taken) error {
	wake, err := w.pass.end(ctx)
	if err != nil {
		return err
	}
	out := w.c.cfg.Participant.Outbox()
	var rows outbox.Rows
	causes := make(map[causeKey]*envelope.Cause)
	for _, d := range w.pass.decided {
		entries, err := w.c.entries(ctx, d)
		if err != nil {
			return at(d.Message, err)
		}
		caller := w.of(ctx, d.ID)
		if len(entries) > 0 && taken == nil && d.Event.Kind == saga.Started && envelope.CauseOf(caller) == nil {
			entries[0].ID = d.State.Correlation // its id is the correlation id of the flow that it begins
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
	var deadlines participant.Deadlines
	for _, c := range wake {
		if err := w.schedule(w.of(ctx, c.State.ID()), &deadlines, c); err != nil {
			return err
		}
	}
	if err := w.scheduleApart(ctx, &deadlines, taken); err != nil {
		return err
	}
	batch := &pgx.Batch{}
	out.Queue(batch, &rows)
	w.c.cfg.Participant.QueueDeadlines(batch, &deadlines)
	return queue(ctx, w.tx, batch)
}

// causeKey identifies what the id of a message depends on: the message that is handled, the saga, the event, and the command or topic
// and type.
type causeKey struct {
	message        int
	id, from, what string
}

// follow returns the context for a message of a decision. Its id depends on the saga, the event and the command, or else the topic
// and the type: the commands of two sagas have different ids, also if one message, handler or call caused both. It does not depend
// on the decisions for other sagas, nor on the other messages of the decision. If the database was set back, a message may come
// again when it moves only one of the sagas, or when it leads to another command, which its hop must not take for the lost one. And an
// event may follow from another message than before: the id of one that a part of the definition lists, which is the path, depends on
// the saga, its flow and the part alone.
// A decision without a message of its own (an operator's action, a deadline, or a call) stays in the saga's flow.
func follow(ctx context.Context, d Decided, e outbox.Entry, path string, taken []participant.Taken, causes map[causeKey]*envelope.Cause) context.Context {
	if d.Message >= 0 && taken != nil {
		ctx = taken[d.Message].Context()
	}
	cause := envelope.CauseOf(ctx)
	if d.Message >= 0 && cause == nil || d.Message < 0 && d.State.Correlation == "" {
		return ctx
	}
	key := causeKey{d.Message, d.ID, d.Event.Message, cmp.Or(e.IdempotencyKey, e.Topic+" "+e.Type)}
	if d.Message < 0 {
		key.from = "#" + strconv.Itoa(d.State.Version)
	}
	if own := causes[key]; own != nil {
		return envelope.WithCause(ctx, own)
	}
	own := &envelope.Cause{At: d.At}
	if cause != nil {
		own.Message, own.At, own.Redrive = cause.Message, cause.At, cause.Redrive
	}
	if d.Message >= 0 {
		own.Handler = cause.Handler + " " + key.id + " " + key.from + " " + key.what
	} else {
		own.Handler = d.State.Correlation + " " + d.ID + key.from + " " + key.what
		own.Message.ID, own.Message.CorrelationID = cmp.Or(d.Event.Message, own.Message.ID), d.State.Correlation
	}
	if path != "" && d.State.Correlation != "" {
		own.Name = fmt.Sprintf("%q", []string{d.ID, d.State.Correlation, path, key.what})
	}
	causes[key] = own
	return envelope.WithCause(ctx, own)
}

func (w *work) schedule(ctx context.Context, ds *participant.Deadlines, c Change) error {
	p, id := w.c.cfg.Participant, c.State.ID()
	if c.WakeAt.IsZero() {
		return p.PlanCancel(ctx, ds, wakeName, id)
	}
	return p.Plan(ctx, ds, participant.Deadline{Name: wakeName, Scope: id, Key: c.State.Key, At: c.WakeAt, Body: Wake{id}})
}

// tell calls the hooks after the commit, or at once if tx does not report its commit.
func (w *work) tell() {
	if !participant.AfterCommit(w.tx, w.told) {
		w.told()
	}
}

func (w *work) told() {
	if hook := w.c.cfg.Stashed; hook != nil {
		for _, s := range w.pass.stashed {
			hook(s)
		}
	}
	for _, d := range w.pass.decided {
		if d.State.Ended() {
			w.c.waits.notify(d.ID)
		}
		if w.c.cfg.Decided != nil {
			w.c.cfg.Decided(d)
		}
		if d.Effects.Alert == "" {
			continue
		}
		w.c.cfg.Log.Error().Str("saga", d.ID).Str("reason", d.Effects.Alert).Msg("saga parked: a person must act")
		if w.c.cfg.Parked != nil {
			w.c.cfg.Parked(d.State, d.Effects.Alert)
		}
	}
}

// entries returns the messages of a decision.
func (c *Coordinator) entries(ctx context.Context, d Decided) (all []outbox.Entry, err error) {
	for _, s := range d.Effects.Commands {
		e := outbox.Entry{
			Topic: topics.MustHop(c.hop.Flow(), s.Hop).Commands(), Key: d.State.Key, Type: s.Type,
			IdempotencyKey: d.ID + "/" + s.Step + "/" + s.Operation + "/" + strconv.Itoa(s.Epoch),
			SagaID:         d.ID, SagaStep: s.Step, SagaOperation: s.Operation,
		}
		if s.Doubt {
			e.Headers = append(e.Headers, envelope.Header{Key: participant.HeaderDoubt, Value: []byte("true")})
		}
		if s.First < s.Epoch {
			first := d.ID + "/" + s.Step + "/" + s.Operation + "/" + strconv.Itoa(s.First)
			e.Headers = append(e.Headers, envelope.Header{Key: participant.HeaderFirstKey, Value: []byte(first)})
		}
		if !s.Since.IsZero() {
			e.Headers = append(e.Headers, envelope.Header{Key: participant.HeaderSince, Value: []byte(s.Since.Format(time.RFC3339))})
		}
		if r := s.Retry; r != nil {
			policy := retry.Policy{Initial: time.Duration(r.Initial), Cap: time.Duration(r.Cap), Attempts: r.Attempts}
			h, err := participant.RetryHeader(policy, time.Duration(r.Try))
			if err != nil {
				return nil, retry.Permanent(err)
			}
			e.Headers = append(e.Headers, h)
		}
		if err := c.render(ctx, &e, s.Fields); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	for _, m := range d.Effects.Events {
		hop := c.hop
		if m.Hop != "" {
			hop = topics.MustHop(c.hop.Flow(), m.Hop)
		}
		e := outbox.Entry{Topic: hop.Events(), Key: d.State.Key, Type: m.Type, Outcome: envelope.Success, SagaID: d.ID}
		if m.Failure {
			e.Outcome = envelope.Failure
		}
		if err := c.render(ctx, &e, m.Fields); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// render sets e's payload.
func (c *Coordinator) render(ctx context.Context, e *outbox.Entry, fields map[string]any) error {
	text, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("%s: %w", e.Type, err)
	}
	e.Payload, e.ContentType = text, envelope.JSON
	if c.cfg.Schemas == nil || e.Type == saga.CallType {
		return nil
	}
	if e.Payload, err = c.cfg.Schemas.FromValues(ctx, e.Type, text); err != nil {
		return fmt.Errorf("%s: %w", e.Type, err)
	}
	e.ContentType = envelope.Avro
	return nil
}

// message returns the Message of m's headers, without its payload.
func message(m envelope.Message, hop string) Message {
	return Message{
		ID: m.ID, Hop: hop, Type: m.Type, Key: string(m.Key), Outcome: string(m.Outcome), Correlation: cmp.Or(m.CorrelationID, m.ID),
		SagaID: m.SagaID, SagaStep: m.SagaStep, SagaOperation: m.SagaOperation, Epoch: epochOf(m.IdempotencyKey),
	}
}

// epochOf returns the epoch of the command that an answer's idempotency key names, in the form that entries writes.
func epochOf(key string) int {
	epoch, err := strconv.Atoi(key[strings.LastIndexByte(key, '/')+1:])
	if err != nil {
		return 0 // not a key that a coordinator wrote
	}
	return epoch
}

// read decodes an event. One that can never be decoded is a permanent error.
func (c *Coordinator) read(ctx context.Context, tx pgx.Tx, in envelope.Message) (Message, error) {
	topic, err := topics.Parse(in.Topic)
	if err != nil {
		return Message{}, retry.Permanent(err)
	}
	m := message(in, topic.Hop.Name())
	if in.Outcome == envelope.Exhausted {
		return c.exhausted(ctx, tx, in, m)
	}
	answers, concerns := m.SagaID != "" && m.SagaStep != "", c.definitions.concern(m.Hop, m.Type)
	if !answers && !concerns {
		return m, nil
	}
	m.Fields, err = c.fields(ctx, in)
	if err == nil {
		return m, nil
	}
	err = fmt.Errorf("%s: %w", in.Type, err)
	if name, _, _ := strings.Cut(m.SagaID, "/"); answers && !concerns && c.definitions.current[name] == nil && retry.IsPermanent(err) {
		m.unreadable = err // an error only if the saga is stored as this coordinator's
		return m, nil
	}
	return m, err
}

// fields decodes the payload. A payload that can never be decoded is a permanent error.
func (c *Coordinator) fields(ctx context.Context, in envelope.Message) (map[string]any, error) {
	if c.cfg.Schemas != nil && in.ContentType == envelope.Avro {
		name, value, err := c.cfg.Schemas.Values(ctx, in.Payload)
		if errors.Is(err, envelope.ErrPayload) {
			err = retry.Permanent(err)
		}
		fields, is := value.(map[string]any)
		if err == nil && !is {
			err = retry.Permanent(fmt.Errorf("%s is no record", name))
		}
		if err == nil {
			err = retry.Permanent(saga.Canonical(fields))
		}
		return fields, err
	}
	if len(in.Payload) == 0 {
		return nil, nil
	}
	fields, err := saga.ReadFields(in.Payload)
	return fields, retry.Permanent(err)
}

func reasonOf(e participant.Exhausted) string {
	return fmt.Sprintf("%s gave up after %d attempts: %s", e.Handler, e.Attempts, e.Error)
}
