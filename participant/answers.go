package participant

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/retry"
)

// A command that comes again under another id, with the same idempotency key, was repeated by a sender that got no answer. It gets the stored answer,
// and its handler does not run again. A command of a saga is identified by its saga, step and operation instead: see barrier.go.

var (
	//go:embed sql/find_answers.sql
	findAnswers string
	//go:embed sql/find_forgotten.sql
	findForgotten string
	//go:embed sql/insert_answer.sql
	insertAnswer string
	//go:embed sql/insert_answers.sql
	insertAnswers string
	//go:embed sql/delete_answer.sql
	deleteAnswer string
)

// answerKey is the key of a stored answer. It has three forms:
//
//   - a command: its type, and its idempotency key;
//   - an event that React handles: its topic and type, since events of other hops may have the same type, and its idempotency key;
//   - a command of a saga: its operation and step, and the saga's id.
type answerKey struct{ typ, key string }

type storedAnswer struct {
	outcome     envelope.Outcome
	typ         string
	contentType string
	payload     []byte
	commandKey  string  // of a saga's command
	request     []byte  // requestHash of any other message; nil if there is nothing to compare
	version     *uint32 // of the row; nil if this transaction has written it
}

type answers map[answerKey]storedAnswer

func (m *message) answerKey() answerKey {
	if m.ofSaga() {
		return m.stepKey(m.SagaOperation)
	}
	if m.handler.reacts {
		return answerKey{indexable(m.Topic + " " + m.Type), indexable(deadletter.EventKey(m.Message))}
	}
	return answerKey{indexable(m.Type), indexable(m.IdempotencyKey)}
}

// requestHash hashes m's key and body. Two messages with one idempotency key must have the same hash, since the key identifies one request.
func (m *message) requestHash() []byte {
	h := sha256.New()
	_ = binary.Write(h, binary.BigEndian, int64(len(m.Key))) // a hash returns no error
	h.Write(m.Key)
	h.Write(m.Payload)
	return h.Sum(nil)
}

// differs returns a permanent error if m's message key or body differs from the ones of the message to which stored is the answer: an idempotency
// key identifies one request. It returns nil if stored has no request hash to compare with.
func (m *message) differs(stored storedAnswer) error {
	if len(stored.request) == 0 || bytes.Equal(stored.request, m.requestHash()) {
		return nil
	}
	return classified{Permanent, fmt.Errorf("idempotency key %q was used before, for a message of type %s with another key or body, "+
		"which was answered: send this one with an idempotency key of its own", readable(m.IdempotencyKey, 255), m.Type)}
}

// answered reports whether m's answer is stored under an answerKey: m's handler answers, and m has an idempotency key or is a command of a saga.
func (m *message) answered() bool {
	return m.handler != nil && m.handler.answers && (m.IdempotencyKey != "" || m.ofSaga())
}

// findAnswers queues the query for the stored answers that decide on the messages: the answer to each message, and for a command of a saga also the
// answer to the other operation and the mark of the call (begun.go). asked is false if no message can have an answer.
func (p *Participant) findAnswers(b *pgx.Batch, ms []*message) (asked bool) {
	var types, keys []string
	add := func(k answerKey) { types, keys = append(types, k.typ), append(keys, k.key) }
	for _, m := range ms {
		if !m.answered() {
			continue
		}
		add(m.answerKey())
		if m.ofSaga() {
			add(m.stepKey(m.otherOperation()))
			if p.needsCallMark(m) {
				add(m.stepKey(begun))
			}
		}
	}
	if len(keys) > 0 {
		b.Queue(findAnswers, p.cfg.Group, types, keys)
	}
	return len(keys) > 0
}

// maxAnswers limits the stored answers to the messages of one transaction, in bytes. A sender of commands can repeat the idempotency keys of many
// commands with large answers in a few bytes.
const maxAnswers = 64 << 20

// errLargeAnswers means that messages run alone, since the answers to all of them would take too much memory.
var errLargeAnswers = fmt.Errorf("the stored answers to these messages have more than %d MiB", maxAnswers>>20)

// readAnswers returns the answers to messages, or errLargeAnswers. There is no limit for the answers to one message.
func readAnswers(results pgx.BatchResults, messages int) (answers, error) {
	rows, _ := results.Query()
	size := 0
	var all answers
	var k answerKey
	var s storedAnswer
	fields := []any{&k.typ, &k.key, &s.outcome, &s.typ, &s.contentType, &s.payload, &s.commandKey, &s.version, &s.request}
	_, err := pgx.ForEachRow(rows, fields, func() error {
		if size += len(s.payload); size > maxAnswers && messages > 1 {
			return errLargeAnswers
		}
		if all == nil {
			all = make(answers)
		}
		all[k] = s
		s.payload, s.version, s.request = nil, nil, nil
		return nil
	})
	return all, err
}

// findForgotten queues the query for the time up to which answers to sagas' commands may have been deleted, if one of the messages is such a command.
// Queue it after findAnswers: if an answer is deleted between the two queries, the first one lacks the answer and the second one returns the time of
// the deletion.
func (p *Participant) findForgotten(b *pgx.Batch, ms []*message) (asked bool) {
	asked = slices.ContainsFunc(ms, func(m *message) bool { return m.answered() && m.ofSaga() })
	if asked {
		b.Queue(findForgotten, p.cfg.Group)
	}
	return asked
}

func readForgotten(results pgx.BatchResults) (deleted *time.Time, err error) {
	err = results.QueryRow().Scan(&deleted)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return deleted, err
}

// storeAnswer queues the row that stores e, the answer to m, under m's idempotency key. It does nothing if m's answer is not stored (see answered).
// If two messages with one idempotency key run at the same time, the second insertion violates the unique key. That message runs again, and finds
// the answer to the first.
func (u *unit) storeAnswer(m *message, e outbox.Entry) {
	if !m.answered() {
		return
	}
	s := storedAnswer{outcome: e.Outcome, typ: e.Type, contentType: e.ContentType, payload: e.Payload}
	if m.ofSaga() {
		s.commandKey = indexable(m.IdempotencyKey)
	} else if m.redrive == 0 { // a redriven message may have been edited: its sender repeats the original
		s.request = m.requestHash()
	}
	u.store(m, m.answerKey(), s)
}

// store queues the row of s under k. s is the answer to m, or to the other call of m's step. It replaces an answer that this transaction has found.
// If another transaction has changed that answer since, the row is not deleted, the insertion fails, and the whole transaction runs again.
func (u *unit) store(m *message, k answerKey, s storedAnswer) {
	group := u.w.p.cfg.Group
	if old, ok := u.answers[k]; ok {
		u.tx.answers.queue(&u.tx.stored) // the old answer may be among the rows that are not inserted yet
		u.tx.stored.Queue(deleteAnswer, group, k.typ, k.key, old.version)
	}
	var commandKey *string // null for a command that is no saga's
	if m.ofSaga() {
		commandKey = &s.commandKey
	}
	u.tx.answers.add(group, k, s, commandKey)
	if len(u.toRun) > 1 { // later messages of the transaction must see it
		if u.answers == nil {
			u.answers = make(answers, len(u.toRun))
		}
		u.answers[k] = s
	}
}

// answerRows collects the answers that a transaction inserts, so that one statement inserts several.
type answerRows struct {
	group                                       string
	types, keys, outcomes, bodies, contentTypes []string
	payloads                                    [][]byte
	commandKeys                                 []*string
	requests                                    [][]byte
}

func (r *answerRows) add(group string, k answerKey, s storedAnswer, commandKey *string) {
	r.group, r.types, r.keys = group, append(r.types, k.typ), append(r.keys, k.key)
	r.outcomes, r.bodies = append(r.outcomes, string(s.outcome)), append(r.bodies, s.typ)
	r.contentTypes, r.payloads = append(r.contentTypes, s.contentType), append(r.payloads, s.payload)
	r.commandKeys, r.requests = append(r.commandKeys, commandKey), append(r.requests, s.request)
}

// queue adds to b the statement that inserts the collected answers, and empties r.
func (r *answerRows) queue(b *pgx.Batch) {
	switch len(r.types) {
	case 0:
		return
	case 1:
		b.Queue(insertAnswer, r.group, r.types[0], r.keys[0], r.outcomes[0], r.bodies[0], r.contentTypes[0], r.payloads[0], r.commandKeys[0],
			r.requests[0])
	default:
		b.Queue(insertAnswers, r.group, r.types, r.keys, r.outcomes, r.bodies, r.contentTypes, r.payloads, r.commandKeys, r.requests)
	}
	*r = answerRows{}
}

// repeatAnswer answers m with the stored answer to the same request under another id.
func (p *Participant) repeatAnswer(ctx context.Context, tx *handlerTx, m *message, s storedAnswer) error {
	if s.typ == "" {
		return nil // the handler returned Done
	}
	e := p.reply(m)
	e.Outcome, e.Type, e.ContentType, e.Payload = s.outcome, s.typ, s.contentType, s.payload
	tx.answered += len(e.Payload) // many commands may repeat one
	if err := p.out.Render(ctx, &tx.events, e); err != nil {
		return classified{Permanent, err}
	}
	return nil
}

// answer renders the outcome event of m and stores the answer. deadletter.Reply sets the event's key, ids and headers. The codec may
// panic, such as on a nil pointer in the outcome: that is a failed run, like a panic of the handler.
func (u *unit) answer(ctx context.Context, m *message, o Outcome) (err error) {
	defer recovered(&err)
	p := u.w.p
	e := p.reply(m)
	if o.done && m.handler.reacts {
		u.storeAnswer(m, e)
		return nil
	}
	if e, err = p.event(e, o); err != nil {
		return err
	}
	if err := p.checked.Render(ctx, &u.tx.events, e); err != nil {
		return classified{Permanent, err} // Render writes nothing to the database: the event is too large, or the contract does not declare it
	}
	u.tx.answered += len(e.Payload)
	u.storeAnswer(m, e)
	u.endCall(m)
	return u.precede(m)
}

// event returns e with the kind and the encoded body of o.
func (p *Participant) event(e outbox.Entry, o Outcome) (outbox.Entry, error) {
	switch {
	case o.done:
		return e, classified{Permanent, errors.New("a command is to be answered: Done is for reactions")}
	case o.kind == envelope.None:
		return e, errNoOutcome
	case o.body == nil:
		return e, classified{Permanent, errors.New("outcome without a body")}
	}
	e.Outcome = o.kind
	encoded, err := p.cfg.Codec.Encode(e.Topic, o.body)
	if err != nil && retry.NotBefore(err) > 0 {
		return e, err // the codec needs a service that is away, such as a store of keys
	}
	if err != nil {
		return e, classified{Permanent, err}
	}
	e.Payload, e.Type, e.ContentType = encoded.Payload, encoded.Type, encoded.ContentType
	return e, nil
}

// reply returns an entry for the hop's events topic that answers m.
func (p *Participant) reply(m *message) outbox.Entry { return deadletter.Reply(p.cfg.Hop, m.Message) }
