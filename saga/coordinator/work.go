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

// work is one transaction of a coordinator: a pass on its tables, and then what follows.
type work struct {
	c    *Coordinator
	tx   pgx.Tx
	pass *pass
	gave bool // Conflict was told
	// callers are the contexts of those who start sagas in one transaction, by the sagas' ids.
	callers map[string]context.Context
}

func (c *Coordinator) begin(tx pgx.Tx) *work {
	store := NewPostgres(tx, c.hop.String(), c.cfg.Participant.Group())
	if c.cfg.Schemas != nil {
		store.content = envelope.Avro
	}
	w := &work{c: c, tx: tx, pass: c.definitions.begin(store)}
	store.lost = w.lost
	return w
}

// lost tells of a conflict, once.
func (w *work) lost(err error) error {
	err = conflict(err)
	if hook := w.c.cfg.Conflict; hook != nil && !w.gave && errors.Is(err, ErrConflict) {
		w.gave = true
		hook(err)
	}
	return err
}

// queued is a caller's transaction that collects statements, so that they go in one round trip.
type queued struct {
	pgx.Tx
	batch pgx.Batch
}

// QueueBatch keeps b.
func (q *queued) QueueBatch(b *pgx.Batch) error {
	q.batch.QueuedQueries = append(q.batch.QueuedQueries, b.QueuedQueries...)
	return nil
}

// flush sends what was collected.
func (q *queued) flush(ctx context.Context) error {
	if q.batch.Len() == 0 {
		return nil
	}
	return q.Tx.SendBatch(ctx, &q.batch).Close()
}

// correlationOf is that of what a caller begins.
func correlationOf(ctx context.Context) string {
	if cause := envelope.CauseOf(ctx); cause != nil {
		return cmp.Or(cause.Message.CorrelationID, cause.Message.ID)
	}
	return envelope.NewID()
}

// of is the context of whoever started a saga here, or ctx.
func (w *work) of(ctx context.Context, id string) context.Context {
	if caller := w.callers[id]; caller != nil {
		return caller
	}
	return ctx
}

// within runs do in a caller's transaction. Nothing is written before do has decided all.
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

// end saves, and writes what follows: messages, in the context of the one that each follows from, and wake-ups.
func (w *work) end(ctx context.Context, taken []participant.Taken) error {
	wake, err := w.pass.end(ctx)
	if err != nil {
		return err
	}
	out := w.c.cfg.Participant.Outbox()
	var rows outbox.Rows
	for _, d := range w.pass.decided {
		entries, err := w.c.entries(ctx, d)
		if err != nil {
			return at(d.Message, err)
		}
		caller := w.of(ctx, d.ID)
		if len(entries) > 0 && d.Event.Kind == saga.Started && envelope.CauseOf(caller) == nil {
			entries[0].ID = d.State.Correlation // the first of its flow
		}
		if err := out.Render(follow(caller, d, taken), &rows, entries...); err != nil {
			return at(d.Message, err)
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

// follow is the context of what follows from a decision. What no message brought, such as a person's action, a deadline or
// an event that was stashed, stays in the saga's flow.
func follow(ctx context.Context, d Decided, taken []participant.Taken) context.Context {
	if d.Message >= 0 && taken != nil {
		return taken[d.Message].Context()
	}
	if d.Message >= 0 || d.State.Correlation == "" {
		return ctx
	}
	own := &envelope.Cause{At: d.At, Handler: d.State.Correlation + "#" + strconv.Itoa(d.State.Version)}
	if cause := envelope.CauseOf(ctx); cause != nil {
		own.Message, own.At, own.Redrive = cause.Message, cause.At, cause.Redrive
	}
	own.Message.ID, own.Message.CorrelationID = cmp.Or(d.Event.Message, own.Message.ID), d.State.Correlation
	return envelope.WithCause(ctx, own)
}

func (w *work) schedule(ctx context.Context, ds *participant.Deadlines, c Change) error {
	p, id := w.c.cfg.Participant, c.State.ID()
	if c.WakeAt.IsZero() {
		return p.PlanCancel(ctx, ds, wakeName, id)
	}
	return p.Plan(ctx, ds, participant.Deadline{Name: wakeName, Scope: id, Key: c.State.Key, At: c.WakeAt, Body: Wake{id}})
}

// tell says what was decided when that is committed, as far as this side can tell.
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

// entries are the messages that follow from a decision.
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

// render gives e its payload.
func (c *Coordinator) render(ctx context.Context, e *outbox.Entry, fields map[string]any) error {
	text, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("%s: %w", e.Type, err)
	}
	e.Payload, e.ContentType = text, envelope.JSON
	if c.cfg.Schemas == nil || e.Type == saga.CallType {
		return nil
	}
	if e.Payload, err = c.cfg.Schemas.FromJSON(ctx, e.Type, text); err != nil {
		return fmt.Errorf("%s: %w", e.Type, err)
	}
	e.ContentType = envelope.Avro
	return nil
}

// message takes what the headers say.
func message(m envelope.Message, hop string) Message {
	return Message{
		ID: m.ID, Hop: hop, Type: m.Type, Key: string(m.Key), Outcome: string(m.Outcome), Correlation: cmp.Or(m.CorrelationID, m.ID),
		SagaID: m.SagaID, SagaStep: m.SagaStep, SagaOperation: m.SagaOperation, Epoch: epochOf(m.IdempotencyKey),
	}
}

// epochOf is that of the command whose idempotency key an answer carries, as entries wrote it.
func epochOf(key string) int {
	epoch, err := strconv.Atoi(key[strings.LastIndexByte(key, '/')+1:])
	if err != nil {
		return 0 // somebody else's key
	}
	return epoch
}

// read takes an event apart. What cannot be read is poison.
func (c *Coordinator) read(ctx context.Context, tx pgx.Tx, in envelope.Message) (Message, error) {
	topic, err := topics.Parse(in.Topic)
	if err != nil {
		return Message{}, retry.Permanent(err)
	}
	m := message(in, topic.Hop.Name())
	if in.Outcome == envelope.Exhausted {
		return c.exhausted(ctx, tx, in, m)
	}
	answers := m.SagaID != "" && m.SagaStep != ""
	if !answers && !c.definitions.concern(m.Hop, m.Type) {
		return m, nil
	}
	m.Fields, err = c.fields(ctx, in)
	if err == nil {
		return m, nil
	}
	if name, _, _ := strings.Cut(m.SagaID, "/"); answers && c.definitions.current[name] == nil && retry.IsPermanent(err) {
		return m, nil // most likely somebody else's
	}
	return m, fmt.Errorf("%s: %w", in.Type, err)
}

// fields are what the payload says. What can never be read is permanent.
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
