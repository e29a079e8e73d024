package flow

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
)

var (
	//go:embed sql/arrive.sql
	arriveSQL string
	//go:embed sql/break.sql
	breakSQL string
	//go:embed sql/expire.sql
	expireSQL string
	//go:embed sql/insert_part.sql
	insertPartSQL string
	//go:embed sql/select_parts.sql
	selectPartsSQL string
	//go:embed sql/delete_parts.sql
	deletePartsSQL string
	//go:embed sql/forget_joins.sql
	forgetJoinsSQL string
)

// joinDeadline is the prefix of the deadline's name; the join's name follows.
const joinDeadline = "join."

// Joined is a join that has ended, with the messages that it waited for.
type Joined struct {
	Name string
	Key  string // the key of the messages
	// Messages are the messages that arrived, in the order of the declaration's Await. If a type arrived several times, it is the
	// first message of that type.
	Messages []envelope.Message
	// Missing lists the messages that did not arrive before the join expired, as "topic type".
	Missing []string

	codec envelope.Codec
}

// Read decodes the body of the message of type T that a join waited for. T may be a pointer to a struct, as code generated from Protobuf
// needs it: then the pointer is not nil.
func Read[T any](j Joined) (body T, err error) {
	codec := j.codec
	if _, plain := any(body).(envelope.Plain); plain || codec == nil {
		codec = envelope.JSONCodec{}
	}
	typ, err := codec.TypeOf(body)
	if err != nil {
		return body, fmt.Errorf("flow: join %q: %w", j.Name, err)
	}
	for _, m := range j.Messages {
		if m.Type == typ {
			var into any = &body
			if t := reflect.TypeFor[T](); t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct {
				body = reflect.New(t.Elem()).Interface().(T)
				into = body // codecs of Protobuf refuse a pointer to a pointer
			}
			err := codec.Decode(m, into)
			if errors.Is(err, envelope.ErrPayload) {
				err = retry.Permanent(err)
			}
			if err != nil {
				return body, fmt.Errorf("flow: join %q: decode %s: %w", j.Name, typ, err)
			}
			return body, nil
		}
	}
	return body, fmt.Errorf("flow: join %q: no message of type %s has come: %w", j.Name, typ, ErrMissing)
}

// ErrMissing is wrapped by the error of Read for a message that has not arrived.
var ErrMissing = errors.New("missing")

// A JoinHandler is called when a join has ended. As with any handler, its effects belong to tx, and it returns the service's
// answer.
type JoinHandler func(ctx context.Context, tx pgx.Tx, j Joined) (participant.Outcome, error)

// Ends are the handlers for the ends of a join.
type Ends struct {
	// Complete is called once for each key, in the transaction in which the last of the messages is handled. Required.
	Complete JoinHandler
	// Expired is called instead, once, when the declaration's Within has passed. Required if the declaration lists messages to be
	// sent then; without it the join expires without a message.
	Expired JoinHandler
}

// OnJoin registers the handlers of the declared join of that name. A join that is broken by a failure event calls none of them:
// compensate in a reaction to that event, with On.
//
// Call OnJoin before the participant's Run, which returns its errors.
func OnJoin(s *Service, name string, ends Ends) {
	j := s.joins[name]
	if err := s.take(j, ends); err != nil {
		s.mistaken(fmt.Errorf("join %q: %w", name, err))
		return
	}
	for _, m := range j.Await {
		s.p.Extension().Observe(m.Topic, m.Type, j.arrives)
	}
	for _, m := range j.Broken {
		s.p.Extension().Observe(m.Topic, m.Type, j.breaks)
	}
	if j.within > 0 {
		participant.OnDeadline(s.p, joinDeadline+name, j.expires)
		s.p.Extension().FireAfterBacklog(joinDeadline + name)
	}
}

// take stores ends as the handlers of j.
func (s *Service) take(j *join, ends Ends) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case j == nil:
		return errors.New("a handler is registered and no such join is declared: add it to the declaration, or take the handler out")
	case j.complete != nil:
		return errors.New("two handlers")
	case ends.Complete == nil:
		return errors.New("a handler without Complete")
	case ends.Expired != nil && j.within == 0:
		return errors.New("a handler for the end of its time, and no such time is declared: add within to the declaration")
	}
	j.complete, j.expired = ends.Complete, ends.Expired
	return nil
}

// A join is a declared join with its handlers.
type join struct {
	Join
	s        *Service
	within   time.Duration
	awaited  []string // "topic type" of Await
	complete JoinHandler
	expired  JoinHandler
}

// deadlineBody is the body of the deadline of a join or an expectation. Name and scope identify the deadline; the body tells an operator
// which messages it is about.
type deadlineBody struct {
	Expects []string `json:"expects,omitempty"` // topic and type of each awaited or expected message
}

// bodyOf returns the body of the deadline for the messages that are awaited or expected.
func bodyOf(messages []Message) deadlineBody {
	var b deadlineBody
	for _, m := range messages {
		b.Expects = append(b.Expects, name(m))
	}
	return b
}

// MessageType returns the message's ce_type.
func (deadlineBody) MessageType() string { return "troupe.Deadline" }

// PlainJSON makes it JSON, whatever codec the flow uses.
func (deadlineBody) PlainJSON() {}

func newJoin(s *Service, declared Join) (*join, error) {
	j := &join{Join: declared, s: s}
	if !partName.MatchString(j.Name) {
		return nil, errors.New("want a name of 1 to 80 letters, digits, dots, dashes and underscores")
	}
	if len(j.Await) == 0 || len(j.Await) > maxAwaited {
		return nil, fmt.Errorf("awaits %d messages: want 1 to %d", len(j.Await), maxAwaited)
	}
	if err := readable(slices.Concat(j.Await, j.Broken)...); err != nil {
		return nil, err
	}
	for i, m := range j.Await {
		if has(j.Await[:i], m) || has(j.Broken, m) {
			return nil, fmt.Errorf("awaits %s twice, or is broken by it", name(m))
		}
		j.awaited = append(j.awaited, name(m))
	}
	if j.Within == "" {
		if len(j.Expired) > 0 {
			return nil, errors.New("has something to send when its time is over, and no within")
		}
		return j, nil
	}
	var err error
	j.within, err = within(j.Within)
	return j, err
}

// state is the result of a statement on a join's row.
type state struct {
	news   bool // the statement changed the row
	status string
	n      int // number of messages that have arrived
}

// move executes one of the statements that change a join's row.
func (j *join) move(ctx context.Context, tx pgx.Tx, sql string, args pg.Args) (st state, err error) {
	err = tx.QueryRow(ctx, sql, args).Scan(&st.news, &st.status, &st.n)
	return st, err
}

// args returns the arguments that identify the join's row and the message.
func (j *join) args(key string, m envelope.Message) pg.Args {
	return pg.Args{
		"group": j.s.p.Group(), "name": j.Name, "key": key, "retention": j.s.cfg.Retention.Seconds(),
		"part": m.Topic + " " + m.Type,
	}
}

// arrives records one of the messages, and completes the join if it was the last.
func (j *join) arrives(ctx context.Context, tx pgx.Tx, m envelope.Message) error {
	key, err := keyOf(m)
	if err != nil {
		return fmt.Errorf("join %q: %w", j.Name, err)
	}
	args := j.args(key, m)
	args["awaited"] = j.awaited
	st, err := j.move(ctx, tx, arriveSQL, args)
	switch {
	case err != nil:
		return fmt.Errorf("join %q: %w", j.Name, err)
	case !st.news:
		j.s.cfg.Log.Debug().Str("join", j.Name).Str("key", key).Str("part", name(partOf(m))).Str("status", st.status).Msg("nothing new for a join")
		return nil
	case st.status == "complete":
		return j.completes(ctx, tx, key, m)
	}
	args["headers"], args["payload"] = envelope.MarshalHeaders(m.Headers()), m.Payload
	if err := participant.Queue(ctx, tx, insertPartSQL, args); err != nil || st.n > 1 {
		return err
	}
	return j.begins(ctx, tx)
}

// begins is called for the first message of a join. It deletes rows whose retention has passed and schedules the deadline.
func (j *join) begins(ctx context.Context, tx pgx.Tx) error {
	if err := participant.Queue(ctx, tx, forgetJoinsSQL); err != nil || j.within == 0 {
		return err
	}
	return j.s.p.Schedule(ctx, tx, participant.Deadline{Name: joinDeadline + j.Name, After: j.within, Body: bodyOf(j.Await)})
}

// completes is called for the last message of a join. It calls the handler with all messages.
func (j *join) completes(ctx context.Context, tx pgx.Tx, key string, last envelope.Message) error {
	joined, err := j.joined(ctx, tx, key, last.Key, last)
	if err != nil {
		return err
	}
	if j.within > 0 {
		if err := j.s.p.Cancel(ctx, tx, joinDeadline+j.Name, ""); err != nil {
			return err
		}
	}
	return j.end(ctx, tx, joined, j.complete, j.Success)
}

// joined reads the stored messages and deletes them.
func (j *join) joined(ctx context.Context, tx pgx.Tx, key string, raw []byte, last ...envelope.Message) (Joined, error) {
	got := make(map[string]envelope.Message, len(j.awaited))
	for _, m := range last {
		got[name(partOf(m))] = m
	}
	joined := Joined{Name: j.Name, Key: key, codec: j.s.p.Extension().Codec()}
	args := j.args(key, envelope.Message{})
	// Also for a join of one message: if its declaration awaited more before, messages may be stored.
	if err := j.parts(ctx, tx, args, got); err != nil {
		return joined, fmt.Errorf("join %q: %w", j.Name, err)
	}
	if err := participant.Queue(ctx, tx, deletePartsSQL, args); err != nil {
		return joined, err
	}
	for i, part := range j.awaited {
		m, there := got[part]
		if !there {
			joined.Missing = append(joined.Missing, part)
			continue
		}
		m.Topic, m.Key = j.Await[i].Topic, raw
		joined.Messages = append(joined.Messages, m)
	}
	return joined, nil
}

func (j *join) parts(ctx context.Context, tx pgx.Tx, args pg.Args, got map[string]envelope.Message) error {
	rows, err := tx.Query(ctx, selectPartsSQL, args)
	if err != nil {
		return err
	}
	var part string
	var headers, payload []byte
	_, err = pgx.ForEachRow(rows, []any{&part, &headers, &payload}, func() error {
		m, err := restored(headers, payload)
		got[part] = m
		headers, payload = nil, nil
		return err
	})
	return err
}

// end calls a handler and writes its outcome.
func (j *join) end(ctx context.Context, tx pgx.Tx, joined Joined, fn JoinHandler, declared []Message) error {
	ctx = j.s.withStableIDs(ctx, "join", j.Name, joined.Key, joined.Messages)
	outcome, err := j.s.diligent(ctx, fmt.Sprintf("join %q", j.Name), declared, nil, func(ctx context.Context) (participant.Outcome, error) {
		return fn(ctx, tx, joined)
	})
	if err != nil {
		return err
	}
	return j.s.p.Extension().Answer(ctx, tx, outcome)
}

// breaks ends the join because of a failure event: one of its messages will not arrive.
func (j *join) breaks(ctx context.Context, tx pgx.Tx, m envelope.Message) error {
	key, err := keyOf(m)
	if err != nil {
		return fmt.Errorf("join %q: %w", j.Name, err)
	}
	args := j.args(key, m)
	st, err := j.move(ctx, tx, breakSQL, args)
	switch {
	case err != nil:
		return fmt.Errorf("join %q: %w", j.Name, err)
	case !st.news:
		return nil
	}
	j.s.cfg.Log.Info().Str("join", j.Name).Str("key", key).Str("by", name(partOf(m))).Int("arrived", st.n).Msg("a join is broken")
	if st.n == 0 {
		return participant.Queue(ctx, tx, forgetJoinsSQL)
	}
	if err := participant.Queue(ctx, tx, deletePartsSQL, args); err != nil || j.within == 0 {
		return err
	}
	return j.s.p.Cancel(ctx, tx, joinDeadline+j.Name, "")
}

// expires ends the join when Within has passed.
func (j *join) expires(ctx context.Context, tx pgx.Tx, d participant.Due[deadlineBody]) error {
	key, err := keyOf(d.Message)
	if err != nil {
		return fmt.Errorf("join %q: %w", j.Name, err)
	}
	var was bool
	err = tx.QueryRow(ctx, expireSQL, j.args(key, envelope.Message{})).Scan(&was)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // it ended while the deadline was on its way
	}
	if err != nil {
		return fmt.Errorf("join %q: %w", j.Name, err)
	}
	joined, err := j.joined(ctx, tx, key, d.Message.Key)
	if err != nil {
		return err
	}
	j.s.cfg.Log.Info().Str("join", j.Name).Str("key", key).Strs("missing", joined.Missing).Msg("a join has expired")
	if j.expired == nil {
		return nil
	}
	return j.end(ctx, tx, joined, j.expired, j.Expired)
}
